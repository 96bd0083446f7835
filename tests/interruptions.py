"""What tests of interrupted calls share: a signal that strikes the main thread as soon as a condition holds."""

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

Interrupt = Callable[[Callable[[], bool]], None]


class Interrupted(BaseException):
    """Raised by a signal handler, as Ctrl-C raises KeyboardInterrupt."""


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread or process; the test's own timeout is the limit."""
    while not condition():
        time.sleep(0.005)


def striking(raised: BaseException) -> Iterator[Interrupt]:
    """Yields strike(condition): as soon as that holds, the main thread is interrupted once, and `raised` raised in it."""

    def handler(number: int, frame: object) -> None:
        raise raised

    threads: list[threading.Thread] = []

    def strike(condition: Callable[[], bool]) -> None:
        def wait_and_send() -> None:
            until(condition)
            os.kill(os.getpid(), signal.SIGUSR1)

        threads.append(threading.Thread(target=wait_and_send))
        threads[-1].start()

    before = signal.signal(signal.SIGUSR1, handler)
    yield strike
    for thread in threads:
        thread.join()
    signal.signal(signal.SIGUSR1, before)


@pytest.fixture
def interrupt() -> Iterator[Interrupt]:
    """interrupt(condition): as soon as that holds, Interrupted is raised in the main thread, once."""
    yield from striking(Interrupted())
