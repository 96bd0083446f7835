"""Processes forked while writers are at work: each process has its own connections of both planes, and what it began it ends."""

import multiprocessing
import os
import threading
from collections import defaultdict

import object_writing
import pytest
from interruptions import until
from object_writing import DATA, PART

from tosnative.client import TosClient
from tosnative.errors import TosException
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

server, tos, client = object_writing.server, object_writing.tos, object_writing.client
fork = multiprocessing.get_context("fork")


def use_everything(client: TosClient, name: str, rounds: int = 1) -> None:
    """Both planes: a small object, one of several parts, one that is given up, and reading what was written."""
    for number in range(rounds):
        for size in (100, 2 * PART + 1):
            with TosObjectWriter(client, "demo", f"{name}/{size}") as writer:
                writer.write(DATA[:size])
            meta = client.head("demo", f"{name}/{size}")
            assert meta.size == size
            assert client.get("demo", meta.key).wait().getvalue() == DATA[:size]
        given_up = TosObjectWriter(client, "demo", f"{name}/{number}")
        given_up.write(DATA[: 2 * PART + 1])
        given_up.abort()
        client.delete("demo", f"{name}/100")
        client.delete("demo", f"{name}/{2 * PART + 1}")


def in_child(client: TosClient, name: str) -> None:
    use_everything(client, name)
    os._exit(0)


def test_no_connection_is_used_by_two_processes(tos: LocalTos, client: TosClient) -> None:
    use_everything(client, "parent")
    children = [fork.Process(target=in_child, args=(client, f"child-{number}")) for number in range(4)]
    for child in children:
        child.start()
    use_everything(client, "parent")
    for child in children:
        child.join()
        assert child.exitcode == 0
    users: dict[int, set[str]] = defaultdict(set)
    for request in tos.requests:
        if request.key:
            users[request.connection].add(request.key.partition("/")[0])
    assert len(users) >= 2 * 5, "of both planes, in five processes"
    assert all(len(names) == 1 for names in users.values()), users


@pytest.mark.parametrize("thread_forks", [False, True])
def test_forks_while_other_threads_save(tos: LocalTos, client: TosClient, thread_forks: bool) -> None:
    failures: list[BaseException] = []
    stop = threading.Event()

    def save(name: str) -> None:
        try:
            while not stop.is_set():
                use_everything(client, name)
        except BaseException as error:  # noqa: BLE001 - shown by the assertion below
            failures.append(error)

    def fork_often() -> None:
        for number in range(10):
            child = fork.Process(target=in_child, args=(client, f"child-{number}"))
            child.start()
            child.join()
            if child.exitcode != 0:
                failures.append(RuntimeError(f"child {number} ended with {child.exitcode}"))

    savers = [threading.Thread(target=save, args=(f"thread-{number}",)) for number in range(2)]
    for saver in savers:
        saver.start()
    if thread_forks:
        forker = threading.Thread(target=fork_often)
        forker.start()
        forker.join()
    else:
        fork_often()
    stop.set()
    for saver in savers:
        saver.join()
    assert failures == []
    assert tos.uploads("demo") == []
    assert tos.keys("demo") == ["k"]


@pytest.mark.parametrize("step", ["create", "part", "complete", "abort"])
def test_a_fork_in_the_middle_of_each_request(tos: LocalTos, client: TosClient, step: str) -> None:
    """The child ends as multiprocessing's do, with the writer inherited; the parent's save goes on."""
    fault = {
        "create": {"method": "POST", "query_has": "uploads"},
        "part": {"method": "PUT", "query_has": "partNumber"},
        "complete": {"method": "POST", "query_has": "uploadId"},
        "abort": {"method": "DELETE"},
    }[step]
    slow = tos.faults.add(delay_s=0.5, times=1, **fault)  # type: ignore[arg-type]
    writer = TosObjectWriter(client, "demo", "k")

    def save() -> None:
        writer.write(DATA)
        if step == "abort":
            writer.abort()
        else:
            writer.close()

    saving = threading.Thread(target=save)
    saving.start()
    until(lambda: slow.hits > 0)
    child = fork.Process(target=use_everything, args=(client, "child"))
    child.start()
    child.join()
    saving.join()
    assert child.exitcode == 0
    assert tos.get("demo", "k") == (b"old" if step == "abort" else DATA)


def test_a_child_that_is_given_the_writers_error(tos: LocalTos, client: TosClient) -> None:
    """A failed writer stays failed in a child as well, and nothing is sent from there."""
    tos.faults.add(method="PUT", status=403, code="AccessDenied")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(b"new")
    with pytest.raises(TosException, match="AccessDenied"):
        writer.close()
    tos.clear_requests()

    def work() -> None:
        with pytest.raises(TosException):
            writer.close()
        os._exit(7)

    child = fork.Process(target=work)
    child.start()
    child.join()
    assert child.exitcode == 7
    assert tos.requests == []
