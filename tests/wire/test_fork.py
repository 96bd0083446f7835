"""Processes: forked in every situation, spawned with a pickled client, killed. Parent and child both go on."""

import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from conftest import MakeClient

from tosnative.client import TosClient
from tosnative.testing import LocalTos
from tosnative.wire.engine import ENGINE

BODIES = {f"k{number}": os.urandom(number * 997 % 200_000) for number in range(40)}


@pytest.fixture
def tos() -> Any:
    with LocalTos(bucket="test", process=True) as server:
        for key, body in BODIES.items():
            server.put("test", key, body)
        yield server


def child(work: Callable[[], bool]) -> int:
    """Fork; the child runs `work` and leaves. Returns its process id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = 0 if work() else 3
        except BaseException as error:  # noqa: BLE001 - the child must end here
            os.write(2, f"in the child: {error!r}\n".encode())
        finally:
            os._exit(code)
    return pid


def ended_well(pid: int) -> bool:
    return os.waitpid(pid, 0)[1] == 0


def read_all(client: TosClient) -> bool:
    batch = [client.download("test", key) for key in BODIES]
    client.submit(batch)
    return all(download.wait().getvalue() == BODIES[download.key] for download in batch)


def test_forks_with_transfers_in_flight_50_times(client: TosClient) -> None:
    for _ in range(50):
        batch = [client.download("test", key) for key in BODIES]
        client.submit(batch)

        def work(batch: Any = batch) -> bool:
            mine = all(download.wait().getvalue() == BODIES[download.key] for download in batch)
            return mine and client.get("test", "k7").wait().getvalue() == BODIES["k7"]

        pid = child(work)
        assert all(download.wait().getvalue() == BODIES[download.key] for download in batch)
        assert ended_well(pid)


def test_what_was_done_at_the_fork_is_read_in_the_child_without_a_request(client: TosClient, tos: LocalTos) -> None:
    got = client.get("test", "k9").wait()
    tos.clear_requests()
    assert ended_well(child(lambda: got.wait().getvalue() == BODIES["k9"]))
    assert tos.requests == []


def test_no_socket_is_used_by_two_processes(make_client: MakeClient, tos: LocalTos) -> None:
    """Each process asks for keys of its own, so that a connection tells who has used it."""
    client = make_client(hedge_percent=0)
    for number in range(100):
        tos.put("test", f"{number % 5}/{number}", b"x")

    def read(process: int) -> bool:
        batch = [client.download("test", f"{process}/{number}") for number in range(process, 100, 5)]
        client.submit(batch)
        return all(download.wait().getvalue() == b"x" for download in batch)

    assert read(0)
    pids = [child(lambda process=process: read(process)) for process in range(1, 5)]  # type: ignore[misc]
    assert read(0)
    assert all(map(ended_well, pids))
    assert len(tos.requests) == 6 * 20
    assert len({(request.connection, request.key[0]) for request in tos.requests if request.key}) == len(
        {request.connection for request in tos.requests}
    )


def test_the_parent_s_connections_go_on_working(client: TosClient, tos: LocalTos) -> None:
    client.get("test", "k1").wait()
    tos.clear_requests()
    for _ in range(5):
        assert ended_well(child(lambda: client.get("test", "k1").wait().getvalue() == BODIES["k1"]))
        assert client.get("test", "k1").wait().getvalue() == BODIES["k1"]
    mine = {request.connection for request in tos.requests[1::2]}
    assert len(mine) == 1, "the parent used one connection throughout"


def test_nested_forks(client: TosClient) -> None:
    def grandchild() -> bool:
        return read_all(client)

    def work() -> bool:
        pid = child(grandchild)
        return read_all(client) and ended_well(pid)

    pid = child(work)
    assert read_all(client)
    assert ended_well(pid)


def test_a_fork_from_another_thread(client: TosClient) -> None:
    results: list[bool] = []

    def run() -> None:
        batch = [client.download("test", key) for key in BODIES]
        client.submit(batch)
        results.append(ended_well(child(lambda: read_all(client))))
        results.append(all(download.wait().getvalue() == BODIES[download.key] for download in batch))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 8


def test_threads_that_fork_at_the_same_moment(client: TosClient) -> None:
    """What one has stopped for its fork is not started again, nor forgotten, by the other's that ends first."""
    for _ in range(15):
        batch = [client.download("test", key) for key in BODIES]
        client.submit(batch)
        start = threading.Barrier(3)
        results: list[bool] = []

        def run(start: threading.Barrier = start, results: list[bool] = results) -> None:
            start.wait()
            results.append(ended_well(child(lambda: client.get("test", "k5").wait().getvalue() == BODIES["k5"])))

        threads = [threading.Thread(target=run) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert results == [True] * 3
        assert all(download.wait().getvalue() == BODIES[download.key] for download in batch)


def test_forks_while_other_threads_submit_wait_and_cancel(client: TosClient) -> None:
    stop = threading.Event()
    wrong: list[str] = []

    def load(seed: int) -> None:
        number = seed
        while not stop.is_set():
            number = (number + 7) % 40
            got = client.get("test", f"k{number}")
            if number % 3 == 0:
                got.cancel()
            elif got.wait().getvalue() != BODIES[f"k{number}"]:
                wrong.append(got.key)

    threads = [threading.Thread(target=load, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(20):
            assert ended_well(child(lambda: client.get("test", "k5").wait().getvalue() == BODIES["k5"]))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_cancel_of_a_parent_s_transfer_in_a_child_leaves_it_alone(client: TosClient, tos: LocalTos) -> None:
    tos.faults.add(method="GET", delay_s=0.3)
    got = client.get("test", "k3")

    def work() -> bool:
        got.cancel()
        got.abandon()
        return True

    assert ended_well(child(work))
    assert got.wait().getvalue() == BODIES["k3"]


def test_transfers_that_wait_for_credentials_at_a_fork_go_on(make_client: MakeClient, tos: LocalTos) -> None:
    from tosnative.credentials import Credentials, RefreshingCredentials

    gate = threading.Event()

    def fetch() -> Credentials:
        gate.wait(20)
        return Credentials(tos.ak, tos.sk, None)

    client = make_client(cred=RefreshingCredentials(fetch))
    got = client.get("test", "k3")
    while not ENGINE.get()._loop.refresher._waiting:
        time.sleep(0.002)
    assert ended_well(child(lambda: True))
    gate.set()
    assert got.wait().getvalue() == BODIES["k3"]


def test_retries_pending_at_a_fork_go_on(client: TosClient, tos: LocalTos) -> None:
    tos.faults.add(method="GET", times=1, status=503, retry_after_s=1)
    got = client.get("test", "k3")
    while not tos.requests:
        time.sleep(0.002)
    assert ended_well(child(lambda: True))
    assert got.wait().getvalue() == BODIES["k3"]


def test_a_child_killed_in_the_middle(client: TosClient, tos: LocalTos) -> None:
    tos.faults.add(method="GET", bandwidth_bytes_s=200_000)
    batch = [client.download("test", key) for key in ("k1", "k2", "k3", "k4")]
    client.submit(batch)
    pid = child(lambda: read_all(client))
    time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    tos.faults.clear()
    assert all(download.wait().getvalue() == BODIES[download.key] for download in batch)
    assert read_all(client)


def test_nothing_is_left_after_many_forks(make_client: MakeClient) -> None:
    client = make_client(max_connections=8)
    read_all(client)
    before = len(os.listdir("/proc/self/fd")), threading.active_count()
    for _ in range(20):
        assert ended_well(child(lambda: read_all(client)))
        read_all(client)
    after = len(os.listdir("/proc/self/fd")), threading.active_count()
    assert after[0] <= before[0] + 8
    assert after[1] <= before[1] + 8


def test_a_child_holds_no_descriptor_of_the_parent_s_engine(client: TosClient) -> None:
    read_all(client)
    inherited = {str(number) for number in sockets()}

    def work() -> bool:
        return not {str(number) for number in sockets()} & (inherited - kept)

    kept = {str(n) for n in sockets() if not of_the_engine(n)}
    assert ended_well(child(work))


def sockets() -> list[str]:
    found = []
    for number in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{number}")
        except OSError:
            continue
        if target.startswith(("socket:", "anon_inode:[eventpoll]")):
            found.append(target if "socket" in target else f"{target}{number}")
    return found


def of_the_engine(name: str) -> bool:
    loop = ENGINE.get()._loop
    numbers = [channel.sock.fileno() for channel in loop._pool_of]
    numbers += [loop.mail.woken.fileno(), loop.mail._waker.fileno()]
    links = {os.readlink(f"/proc/self/fd/{number}") for number in numbers}
    return name in links


def lengths(client: TosClient) -> list[int]:
    return [client.get("test", key).wait().length for key in ("k1", "k2", "k3")]


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_a_pickled_client_works_elsewhere(client: TosClient, method: str) -> None:
    client.get("test", "k1").wait()
    with multiprocessing.get_context(method).Pool(2) as pool:
        results = pool.map(lengths, [client] * 4)
    assert results == [[len(BODIES[key]) for key in ("k1", "k2", "k3")]] * 4
