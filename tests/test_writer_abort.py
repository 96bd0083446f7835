"""What is left when a writer does not come to a good end: nothing, and what was under the key before."""

import contextlib
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from tosnative.client import TosClient
from tosnative.config import TosClientConfig
from tosnative.errors import TosAbortedError
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

PART = 4 << 20
DATA = random.Random(5).randbytes(5 * PART + 77)
# Bytes written before the end: none, a little, several parts.
SIZES = [0, 100, len(DATA)]


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        yield server


@pytest.fixture
def client(tos: LocalTos) -> Iterator[TosClient]:
    tos.faults.clear()
    tos.put("demo", "k", b"old")
    tos.clear_requests()
    config = TosClientConfig(part_size=PART)
    with TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config) as made:
        yield made
        untouched(tos)
        assert made.budget.used == 0


def untouched(tos: LocalTos) -> None:
    assert tos.get("demo", "k") == b"old"
    assert tos.uploads("demo") == []
    assert not [request for request in tos.requests if request.method == "POST" and "uploadId" in request.query]


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread or process; the test's own timeout is the limit."""
    while not condition():
        time.sleep(0.005)


class Unpicklable:
    def __reduce__(self) -> str:
        raise ZeroDivisionError("not this one")


def broken_model() -> dict[str, object]:
    return {"weights": [torch.zeros(3_000_000) for _ in range(3)], "bad": Unpicklable()}


def big_model() -> dict[str, object]:
    return {"weights": [torch.zeros(3_000_000) for _ in range(5)]}


# -- exceptions


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_an_exception_in_the_block(client: TosClient, size: int, error: BaseException) -> None:
    writer = TosObjectWriter(client, "demo", "k")

    def block() -> None:
        with writer:
            writer.write(DATA[:size])
            raise error

    with pytest.raises(type(error)) as caught:
        block()
    assert caught.value is error
    assert writer.closed
    writer.close()
    with pytest.raises(TosAbortedError):
        writer.commit()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"more")


@pytest.mark.parametrize("size", SIZES)
def test_abort(client: TosClient, size: int) -> None:
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(DATA[:size])
    writer.abort()
    writer.abort()
    writer.close()
    assert writer.closed
    with TosObjectWriter(client, "demo", "k") as writer:
        writer.write(DATA[:size])
        writer.abort()


@pytest.mark.parametrize("size", SIZES)
def test_close_while_an_exception_is_in_flight(client: TosClient, size: int) -> None:
    def careless() -> None:
        writer = TosObjectWriter(client, "demo", "k")
        try:
            writer.write(DATA[:size])
            raise LookupError("the first error")
        finally:
            writer.close()

    def closing() -> None:
        with contextlib.closing(TosObjectWriter(client, "demo", "k")) as writer:
            writer.write(DATA[:size])
            raise LookupError("the first error")

    def stacked() -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(TosObjectWriter(client, "demo", "k").close)
            raise LookupError("the first error")

    for save in (careless, closing, stacked):
        with pytest.raises(LookupError, match="the first error"):
            save()


def test_close_in_a_handler_aborts_and_commit_does_not(tos: LocalTos, client: TosClient) -> None:
    first, second = TosObjectWriter(client, "demo", "k"), TosObjectWriter(client, "demo", "other")
    try:
        raise LookupError
    except LookupError:
        with pytest.raises(LookupError) as caught:
            first.close()
        second.write(b"deliberately")
        second.commit()
    if sys.version_info >= (3, 11):
        assert "commit()" in caught.value.__notes__[0]
    assert tos.get("demo", "other") == b"deliberately"
    try:
        raise LookupError
    except LookupError:
        with TosObjectWriter(client, "demo", "other") as writer:
            writer.write(b"with")
        third = TosObjectWriter(client, "demo", "third")
        third.close()  # the exception was there when it was made
        fourth = TosObjectWriter(client, "demo", "fourth")
    fourth.close()
    assert tos.get("demo", "other") == b"with"
    assert tos.keys("demo") == ["fourth", "k", "other", "third"]
    for key in ("fourth", "other", "third"):
        tos.delete("demo", key)


def test_torch_save_of_what_cannot_be_pickled(client: TosClient) -> None:
    def plain() -> None:
        with TosObjectWriter(client, "demo", "k") as writer:
            torch.save(broken_model(), writer)

    def closing() -> None:
        with contextlib.closing(TosObjectWriter(client, "demo", "k")) as writer:
            torch.save(broken_model(), writer)

    def finally_close() -> None:
        writer = TosObjectWriter(client, "demo", "k")
        try:
            torch.save(broken_model(), writer)
        finally:
            writer.close()

    for save in (plain, closing, finally_close):
        with pytest.raises(ZeroDivisionError, match="not this one"):
            save()


class Interrupted(BaseException):
    """Raised by a signal handler, as Ctrl-C raises KeyboardInterrupt."""


@pytest.fixture
def interrupt() -> Iterator[Callable[[Callable[[], bool]], None]]:
    """interrupt(condition): as soon as that holds, the main thread is interrupted once."""

    def handler(number: int, frame: object) -> None:
        raise Interrupted

    threads: list[threading.Thread] = []

    def start(condition: Callable[[], bool]) -> None:
        def wait_and_send() -> None:
            until(condition)
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

        threads.append(threading.Thread(target=wait_and_send))
        threads[-1].start()

    before = signal.signal(signal.SIGUSR1, handler)
    yield start
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGUSR1, before)


@pytest.mark.parametrize("style", ["with", "closing"])
def test_interrupted_while_torch_save_writes(
    tos: LocalTos, client: TosClient, interrupt: Callable[[Callable[[], bool]], None], style: str
) -> None:
    config = TosClientConfig(part_size=PART, shared_upload_part_tasks=1)
    silence = tos.faults.add(method="PUT", query_has="partNumber", hang="before")
    with TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config) as narrow:
        writer = TosObjectWriter(narrow, "demo", "k")
        interrupt(lambda: silence.hits > 0)
        with pytest.raises(Interrupted), writer if style == "with" else contextlib.closing(writer):
            torch.save(big_model(), writer)


def test_interrupted_while_the_upload_is_created(
    tos: LocalTos, client: TosClient, interrupt: Callable[[Callable[[], bool]], None]
) -> None:
    slow = tos.faults.add(method="POST", query_has="uploads", delay_s=0.5)
    interrupt(lambda: slow.hits > 0)
    with pytest.raises(Interrupted), TosObjectWriter(client, "demo", "k") as writer:
        writer.write(DATA)
    until(lambda: any(request.method == "DELETE" for request in tos.requests))
    until(lambda: tos.uploads("demo") == [])
