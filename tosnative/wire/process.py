"""One lazily made resource per process: a forked child gets its own, and what the parent made stays the parent's.

And one fork at a time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["ForkTurn", "PerProcess"]

T = TypeVar("T")
# Past this a fork does not wait for another thread's; each takes a few seconds at most.
_TURN_WAIT_S = 30.0
_lock = threading.RLock()  # guards every PerProcess of this process; making one may make another


def _fresh_lock() -> None:
    global _lock
    _lock = threading.RLock()  # in a forked child the old one may be held by a thread that is not there


os.register_at_fork(after_in_child=_fresh_lock)


class PerProcess(Generic[T]):
    """`get()` returns this process's value, made by `make` at the first call in it."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._pid = 0
        self._value: T | None = None

    def get(self) -> T:
        value = self._value
        if value is not None and self._pid == os.getpid():
            return value
        with _lock:
            if self._value is None or self._pid != os.getpid():
                self._value = self._make()
                self._pid = os.getpid()
            return self._value

    def peek(self) -> T | None:
        """This process's value if it was made, else None."""
        return self._value if self._pid == os.getpid() else None

    def inherited(self) -> T | None:
        """In a forked child: the value that the parent made, else None."""
        return None if self._pid == os.getpid() else self._value

    def drop(self) -> None:
        """Forget the value, so that the next `get` makes another."""
        self._value = None


class ForkTurn:
    """Lets one thread fork at a time: what one has stopped for its fork must not be started by another whose fork ends first.

    take() before a fork, give() after it in the parent, renew() in the child. A signal's handler may fork in between.
    """

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        self._lock = threading.RLock()
        self._of_thread = threading.local()

    def take(self) -> None:
        got = self._lock.acquire(timeout=_TURN_WAIT_S)
        self._of_thread.got = [*getattr(self._of_thread, "got", ()), got]

    def give(self) -> None:
        got: list[bool] = getattr(self._of_thread, "got", [])
        if got and got.pop():
            self._lock.release()
