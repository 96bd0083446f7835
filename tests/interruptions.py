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


class Strikes:
    """Signals to the main thread after these pauses in seconds, at moments that nobody chose; each raises `kind` there.

    Not by a timer of the process: the tests' own timeout has that one. To be ended before what it raises may not come any more.
    """

    def __init__(self, kind: type[BaseException], *pauses: float) -> None:
        self.kind = kind
        self._ended = threading.Event()
        self._before = signal.signal(signal.SIGUSR1, self._handle)
        self._thread = threading.Thread(target=self._strike, args=(pauses,))
        self._thread.start()

    def _strike(self, pauses: tuple[float, ...]) -> None:
        for pause in pauses:
            if self._ended.wait(pause):
                return
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def _handle(self, number: int, frame: object) -> None:
        raise self.kind

    def end(self) -> None:
        """Return when no more will come."""
        while True:
            try:
                self._ended.set()
                self._thread.join()
                signal.signal(signal.SIGUSR1, self._before)
                return
            except self.kind:
                continue


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
