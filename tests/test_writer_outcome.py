"""Commits whose answer is lost or whose waiting is interrupted: look at the key, else say that it is not known."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig
from tosnative.errors import (
    TosConnectionError,
    TosOutcomeUnknownError,
    TosTimeoutError,
)
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

PART = 4 << 20
DATA = random.Random(5).randbytes(9 * PART + 77)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as made:
        yield made


@pytest.fixture
def tos(server: LocalTos) -> LocalTos:
    server.faults.clear()
    server.put("demo", "k", b"old")
    server.clear_requests()
    return server


def make(tos: LocalTos, retries: int | None = 1, **options: float) -> TosClient:
    connection = ConnectionOptions(**options)  # type: ignore[arg-type]
    config = TosClientConfig(part_size=PART, max_retry_count=retries, connection=connection)
    return TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config)


@pytest.fixture
def client(tos: LocalTos) -> Iterator[TosClient]:
    with make(tos) as made:
        yield made
        assert made.budget.used == 0
        assert tos.uploads("demo") == []


def write(client: TosClient, data: bytes) -> TosObjectWriter:
    with TosObjectWriter(client, "demo", "k") as writer:
        for at in range(0, len(data), 1 << 20):
            writer.write(data[at : at + (1 << 20)])
    return writer


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread; the test's own timeout is the limit."""
    while not condition():
        time.sleep(0.005)


# -- what a lost answer leaves behind


def test_a_put_whose_answers_are_lost_is_looked_up(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", reset="after")
    writer = write(client, b"new")
    assert tos.get("demo", "k") == b"new"
    assert writer.meta is not None
    assert writer.meta.etag


def test_a_put_whose_outcome_cannot_be_seen(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", reset="after")
    tos.faults.add(method="HEAD", status=403)
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(b"new")
    with pytest.raises(TosOutcomeUnknownError, match="not known") as caught:
        writer.close()
    assert isinstance(caught.value.__cause__, TosConnectionError)
    with pytest.raises(TosOutcomeUnknownError):
        writer.close()


def test_a_put_that_did_not_get_through(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", reset="before")
    with pytest.raises(TosConnectionError):
        write(client, b"new")
    assert tos.get("demo", "k") == b"old"


def test_a_part_times_out_for_ever(tos: LocalTos, client: TosClient) -> None:
    with make(tos, first_byte_timeout_s=0.3) as impatient:
        tos.faults.add(method="PUT", query_has="partNumber", hang="before")
        with pytest.raises(TosTimeoutError, match="part 1 of upload"):
            write(impatient, DATA[: 2 * PART])
    assert tos.get("demo", "k") == b"old"


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
            os.kill(os.getpid(), signal.SIGUSR1)

        threads.append(threading.Thread(target=wait_and_send))
        threads[-1].start()

    before = signal.signal(signal.SIGUSR1, handler)
    yield start
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGUSR1, before)


Interrupt = Callable[[Callable[[], bool]], None]


def test_interrupted_in_a_put_that_was_carried_out(tos: LocalTos, client: TosClient, interrupt: Interrupt) -> None:
    tos.faults.add(method="PUT", hang="after")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(b"new")
    interrupt(lambda: tos.get("demo", "k") == b"new")
    with pytest.raises(Interrupted):
        writer.close()
    assert writer.closed
    assert writer.meta is not None  # committed, and known to be
    assert writer.commit() == writer.meta


def test_interrupted_in_a_put_that_was_not(tos: LocalTos, client: TosClient, interrupt: Interrupt) -> None:
    silence = tos.faults.add(method="PUT", hang="before")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(b"new")
    interrupt(lambda: silence.hits > 0)
    with pytest.raises(TosOutcomeUnknownError, match="not known") as caught:
        writer.close()
    assert isinstance(caught.value.__cause__, Interrupted)
    assert tos.get("demo", "k") == b"old"


@pytest.mark.parametrize("when", ["before", "after"])
def test_interrupted_while_completing(tos: LocalTos, client: TosClient, interrupt: Interrupt, when: str) -> None:
    silence = tos.faults.add(method="POST", query_has="uploadId", hang=when)
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(DATA)
    interrupt(lambda: silence.hits > 0 and (when == "before" or tos.get("demo", "k") == DATA))
    with pytest.raises(Interrupted):
        writer.close()
    assert writer.closed
    assert (writer.meta is not None) == (when == "after")
    assert tos.get("demo", "k") == (DATA if when == "after" else b"old")


def test_interrupted_while_the_last_parts_are_sent(tos: LocalTos, client: TosClient, interrupt: Interrupt) -> None:
    silence = tos.faults.add(method="PUT", query_has="partNumber", skip=3, hang="before")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(DATA)
    closing = threading.Event()
    interrupt(lambda: closing.is_set() and silence.hits > 0)
    with pytest.raises(Interrupted):
        closing.set() or writer.close()
    with pytest.raises(Interrupted):
        writer.close()
    assert tos.get("demo", "k") == b"old"
