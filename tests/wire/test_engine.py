"""The engine itself: limits, mistakes of one transfer, the end of its loop, and endpoints that are not there."""

import os
import socket
import threading
import time
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import read_request, serving, whole

from tosnative.client import TosClient
from tosnative.errors import TosConnectionError, TosException
from tosnative.testing import LocalTos
from tosnative.wire.download import Download
from tosnative.wire.engine import ENGINE

BODY = os.urandom(3_000_000)
SMALL = BODY[:1000]


@pytest.fixture(autouse=True)
def objects(tos: LocalTos) -> None:
    tos.put("test", "big", BODY)
    tos.put("test", "small", SMALL)


def until(condition: Any) -> None:
    """Wait for another thread or process to come so far; the test's timeout bounds it."""
    while not condition():
        time.sleep(0.002)


def open_fds() -> int:
    return len(os.listdir("/proc/self/fd"))


# -- limits


def test_connections_are_kept_and_never_more_than_allowed(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_connections=3)
    tos.faults.add(method="GET", delay_s=0.01)
    batch = [client.download("test", "small") for _ in range(60)]
    client.submit(batch)
    for download in batch:
        download.wait()
    assert len({request.connection for request in tos.requests}) <= 3
    assert tos.connections <= 3


def test_shared_prefetch_tasks_is_what_is_in_flight(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(shared_prefetch_tasks=2)
    most = 0

    def count(request: Any) -> None:
        nonlocal most
        most = max(most, tos_in_flight())

    def tos_in_flight() -> int:
        pool = ENGINE.get()._loop.pools[client._target("test").origin]
        return len(pool.active)

    tos.faults.set_hook(count)
    batch = [client.download("test", "small") for _ in range(40)]
    client.submit(batch)
    for download in batch:
        download.wait()
    assert 1 <= most <= 2


def test_a_throttling_service_is_asked_less_and_then_more_again(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(shared_prefetch_tasks=8)

    def run(count: int) -> None:
        batch = [client.download("test", "small") for _ in range(count)]
        client.submit(batch)
        for download in batch:
            assert download.wait().getvalue() == SMALL

    run(10)
    limit = ENGINE.get()._loop.pools[client._target("test").origin].limit
    assert limit.value == 8
    tos.faults.add(method="GET", times=8, status=503, retry_after_s=0)
    run(10)
    assert limit.value == 4
    assert client.advised_depth("test") == 12
    run(32 * 5)
    assert limit.value == 8


# -- programming errors, and the end of the loop


class BrokenRequest(Download):
    def request(self, credentials: Any, now: float) -> bytes:
        raise LookupError("SECRETTAIL")


class BrokenAccept(Download):
    def accept(self, head: Any) -> memoryview:
        raise LookupError("no place")


class KillsTheLoop(Download):
    """The loop looks at `path` nowhere, but reads `settled` when a transfer is enqueued."""

    @property
    def settled(self) -> bool:  # type: ignore[override]
        if threading.current_thread().name == "tosnative-engine":
            raise LookupError("the loop has a fault")
        return False

    @settled.setter
    def settled(self, value: bool) -> None:
        pass


@pytest.mark.parametrize("kind", [BrokenRequest, BrokenAccept])
def test_a_transfer_s_own_error_is_its_own(client: TosClient, kind: type[Download]) -> None:
    engine = ENGINE.get()
    other = client.get("test", "big")
    bad = kind(client._target("test"), "test", "small")
    client.submit([bad])
    with pytest.raises(TosException, match="LookupError") as caught:
        bad.wait()
    check_error(caught.value.with_context())
    assert other.wait().getvalue() == BODY
    assert client.get("test", "small").wait().getvalue() == SMALL
    assert ENGINE.get() is engine


def test_a_dying_loop_reaches_every_waiter_and_the_next_use_starts_another(
    tos: LocalTos, client: TosClient, caplog: pytest.LogCaptureFixture
) -> None:
    engine = ENGINE.get()
    tos.faults.add(method="GET", key="big", hang="before")
    tos.faults.add(method="GET", key="small", status=503, retry_after_s=60)
    hanging, retrying = client.get("test", "big"), client.get("test", "small")
    errors: list[BaseException] = []

    def wait(transfer: Download) -> None:
        try:
            transfer.wait()
        except TosException as error:
            errors.append(error)

    until(lambda: len(tos.requests) >= 2)
    bad = KillsTheLoop(client._target("test"), "test", "small")
    threads = [threading.Thread(target=wait, args=(transfer,)) for transfer in (hanging, retrying, bad)]
    for thread in threads[:2]:
        thread.start()
    client.submit([bad])
    threads[2].start()
    for thread in threads:
        thread.join()
    assert len(errors) == 3
    assert all("the transfer loop died" in str(error) for error in errors)
    assert "the transfer loop died" in caplog.text
    tos.faults.clear()
    assert client.get("test", "small").wait().getvalue() == SMALL
    assert ENGINE.get() is not engine
    hanging.cancel()


def test_waiters_on_credentials_hear_of_a_dying_loop_too(tos: LocalTos, make_client: MakeClient) -> None:
    from tosnative.credentials import Credentials, RefreshingCredentials

    gate = threading.Event()

    def fetch() -> Credentials:
        gate.wait(20)
        return Credentials(tos.ak, tos.sk, tos.token)

    slow = make_client(cred=RefreshingCredentials(fetch))
    waiting = slow.get("test", "small")
    client = make_client()
    client.get("test", "small").wait()
    client.submit([KillsTheLoop(client._target("test"), "test", "small")])
    with pytest.raises(TosException, match="loop died"):
        waiting.wait()
    gate.set()


def test_nothing_is_left_behind_by_a_loop_that_died(client: TosClient) -> None:
    client.get("test", "small").wait()
    for _ in range(3):
        bad = KillsTheLoop(client._target("test"), "test", "small")
        client.submit([bad])
        with pytest.raises(TosException):
            bad.wait()
        client.get("test", "small").wait()
    until(lambda: sum(t.name == "tosnative-engine" for t in threading.enumerate()) == 1)


# -- endpoints that are not there


def test_a_refused_connection_is_given_up_in_seconds_for_all(make_client: MakeClient) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    client = make_client(endpoint=f"http://127.0.0.1:{port}", max_retry_count=2)
    batch = [client.download("test", f"k{n}") for n in range(30)]
    client.submit(batch)
    for download in batch:
        with pytest.raises(TosConnectionError, match="Connection refused") as caught:
            download.wait()
        assert f"127.0.0.1:{port}" in str(caught.value)
        assert "check the endpoint" in str(caught.value)
    check_error(caught.value)


def test_an_unknown_host_is_named(make_client: MakeClient) -> None:
    client = make_client(endpoint="http://no-such-host.invalid", max_retry_count=0)
    with pytest.raises(TosConnectionError, match=r"test\.no-such-host\.invalid") as caught:
        client.get("test", "k").wait()
    check_error(caught.value)


def test_a_service_that_restarts_loses_nothing(tos: LocalTos, client: TosClient) -> None:
    batch = [client.download("test", "big") for _ in range(20)]
    tos.faults.add(method="GET", bandwidth_bytes_s=20_000_000)
    client.submit(batch)
    until(lambda: len(tos.requests) >= 5)
    tos.restart()
    tos.faults.clear()
    for download in batch:
        assert download.wait().getvalue() == BODY


def test_idle_connections_are_dropped_after_a_while(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(idle_timeout_s=0.2)
    client.get("test", "small").wait()
    until(lambda: tos.connections == 0)
    assert client.get("test", "small").wait().getvalue() == SMALL


def test_descriptors_and_threads_stay_flat(tos: LocalTos, client: TosClient) -> None:
    def run() -> tuple[int, int]:
        tos.faults.add(method="GET", reset="before", times=20)
        batch = [client.download("test", "small") for _ in range(100)]
        client.submit(batch)
        for download in batch:
            download.wait()
        tos.restart()
        client.get("test", "small").wait()
        until(lambda: tos.connections <= 16)
        return open_fds(), threading.active_count()

    run()
    first = run()
    for _ in range(3):
        last = run()
    assert last[0] <= first[0] + 34  # at most 16 connections more, of both sides
    assert last[1] <= first[1] + 8  # connecting threads end by themselves


def test_a_raw_server_that_never_accepts(make_client: MakeClient) -> None:
    with serving(lambda connection: None) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=1)
        with pytest.raises(TosConnectionError, match="attempts"):
            client.get("test", "k").wait()


def test_what_waits_for_a_connection_does_not_wait_past_its_deadline(make_client: MakeClient) -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as listener:
        client = make_client(
            endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", deadline_s=1.5, connect_timeout_s=0.5
        )
        first = client.get("test", "k")
        connection, _ = listener.accept()
        with connection:
            read_request(connection)
            connection.sendall(whole(b"body"))
            first.wait()
        fillers = [socket.socket() for _ in range(3)]  # the queue of connections that nobody accepts is full
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(listener.getsockname())
        batch = [client.download("test", "k") for _ in range(400)]
        client.submit(batch)
        for download in batch:
            with pytest.raises(TosConnectionError) as caught:
                download.wait()
            assert caught.value.error.elapsed_s is not None
            assert caught.value.error.elapsed_s < 12.0, "8 at a time, half a second each, would be 25 s"
        for filler in fillers:
            filler.close()
