"""Racing late answers, and letting go: of the loser, of the caller's buffer, and when interrupted."""

import os
import signal
import threading
import time
from typing import Any

import pytest
from conftest import MakeClient, check_error

from tosnative.client import TosClient
from tosnative.errors import TosAbortedError
from tosnative.metrics import METRICS
from tosnative.testing import LocalTos

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


# -- hedging


def test_a_late_answer_is_raced_and_the_loser_cancelled(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(hedge_percent=100)
    for _ in range(64):
        client.get("test", "small").wait()
    before = METRICS.hedges_won
    tos.faults.add(method="GET", times=1, delay_s=5.0)
    buffer = bytearray(1000)
    began = time.monotonic()
    got = client.get("test", "small", into=memoryview(buffer)).wait()
    assert time.monotonic() - began < 5.0
    assert buffer == SMALL
    assert got.verified
    assert METRICS.hedges_won == before + 1
    until(lambda: tos.connections <= 1 + 16)
    tos.faults.clear()
    for _ in range(10):
        assert client.get("test", "small").wait().getvalue() == SMALL


def test_the_first_answer_wins_though_a_second_was_asked(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(hedge_percent=100)
    for _ in range(64):
        client.get("test", "small").wait()
    tos.faults.add(method="GET", times=2, delay_s=0.3)
    assert client.get("test", "small").wait().getvalue() == SMALL
    assert client.get("test", "small").wait().getvalue() == SMALL


def test_a_second_that_is_late_too_is_raced_by_a_third(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(hedge_percent=100)
    for _ in range(64):
        client.get("test", "small").wait()
    tos.clear_requests()
    late = tos.faults.add(method="GET", times=2, hang="before")
    got = client.get("test", "small").wait()
    assert got.getvalue() == SMALL
    assert late.hits == 2
    assert len(tos.requests) == 3


def test_there_are_three_at_most(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(hedge_percent=100)
    for _ in range(64):
        client.get("test", "small").wait()
    tos.clear_requests()
    tos.faults.add(method="GET", times=3, delay_s=0.5)
    assert client.get("test", "small").wait().getvalue() == SMALL
    assert len(tos.requests) == 3


def test_hedges_are_few(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(hedge_percent=5)
    tos.clear_requests()
    tos.faults.add(method="GET", delay_s=0.03, probability=0.2)
    for _ in range(4):
        batch = [client.download("test", "small") for _ in range(100)]
        client.submit(batch)
        for download in batch:
            assert download.wait().getvalue() == SMALL
    assert len(tos.requests) <= 400 * 1.05 + 1


def test_uploads_are_never_raced(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(hedge_percent=100)
    for _ in range(64):
        client.get("test", "small").wait()
    tos.clear_requests()
    tos.faults.add(method="PUT", times=1, delay_s=0.4)
    client.put("test", "k", SMALL).wait()
    assert len(tos.requests) == 1


# -- letting go


def test_after_cancel_the_buffer_is_not_written(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", bandwidth_bytes_s=3_000_000)
    for _ in range(10):
        buffer = bytearray(3_000_000)
        got = client.get("test", "big", into=memoryview(buffer))
        until(lambda b=buffer: any(b[:100]))
        got.cancel()
        seen = bytes(buffer)
        assert got.done
        buffer.append(0)  # nobody holds the buffer: it can be resized
        assert bytes(buffer[:-1]) == seen
        with pytest.raises(TosAbortedError, match="cancelled") as caught:
            got.wait()
        got.cancel()
    check_error(caught.value)
    tos.faults.clear()
    assert client.get("test", "big").wait().getvalue() == BODY


@pytest.mark.parametrize("state", ["queued", "connecting", "waiting", "retrying", "done"])
def test_cancel_in_every_state(tos: LocalTos, make_client: MakeClient, state: str) -> None:
    client = make_client(shared_prefetch_tasks=1)
    if state == "queued":
        tos.faults.add(method="GET", times=1, hang="before")
        client.get("test", "big")
    elif state == "waiting":
        tos.faults.add(method="GET", times=1, hang="before")
    elif state == "retrying":
        tos.faults.add(method="GET", times=1, status=503, retry_after_s=30)
    elif state == "connecting":
        tos.faults.add(accept_delay_s=1.0, times=1)
    got = client.get("test", "small")
    if state in ("waiting", "retrying"):
        until(lambda: tos.requests)
    if state == "retrying":
        until(lambda: tos.requests[-1].status == 503)
    if state == "done":
        got.wait()
    got.cancel()
    assert got.done
    assert (got.error is None) is (state == "done")


def test_abandoned_transfers_end_by_themselves(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", times=1, hang="before")
    got = client.get("test", "small")
    got.abandon()
    until(lambda: got.done)
    assert isinstance(got.error, TosAbortedError)


def test_ctrl_c_while_waiting_cancels_and_lets_go(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", bandwidth_bytes_s=1_000_000)
    buffer = bytearray(3_000_000)
    got = client.get("test", "big", into=memoryview(buffer))
    main = threading.main_thread().ident
    assert main is not None
    threading.Timer(0.2, signal.pthread_kill, (main, signal.SIGINT)).start()
    with pytest.raises(KeyboardInterrupt):
        got.wait()
    assert got.done
    buffer.append(0)


def test_ctrl_c_again_while_letting_go(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", bandwidth_bytes_s=1_000_000)

    class Interruption(BaseException):
        pass

    def interrupt(number: int, frame: Any) -> None:
        raise Interruption

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for step in range(30):
            buffer = bytearray(3_000_000)
            got = client.get("test", "big", into=memoryview(buffer))
            signal.setitimer(signal.ITIMER_REAL, 0.02, 0.0002 + step * 0.00005)
            try:
                got.wait()
            except Interruption:
                while True:
                    try:
                        signal.setitimer(signal.ITIMER_REAL, 0)
                        break
                    except Interruption:
                        continue
            else:
                pytest.fail("the wait was not interrupted")
            assert got.done
            buffer.append(0)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_signal_that_another_thread_receives_ends_the_wait(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(first_byte_timeout_s=20.0, hedge_percent=0)
    struck = tos.faults.add(method="GET", hang="before")
    get = client.get("test", "small")

    def strike() -> None:
        until(lambda: struck.hits)
        (engine,) = (thread for thread in threading.enumerate() if thread.name == "tosnative-engine")
        assert engine.ident is not None
        signal.pthread_kill(engine.ident, signal.SIGINT)

    striking = threading.Thread(target=strike)
    striking.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            get.wait()
    finally:
        striking.join()
    assert struck.hits == 1, "the wait went on until the answer was given up"
