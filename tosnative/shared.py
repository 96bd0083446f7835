"""Memory that all processes of a tree see: inherited when they fork, handed over when they are started."""

from __future__ import annotations

import mmap
import os
import tempfile
import weakref
from multiprocessing.context import get_spawning_popen
from multiprocessing.reduction import DupFd
from typing import Any, Protocol, cast

__all__ = ["Duplicate", "SharedNumbers", "duplicate", "is_spawning", "unnamed_file"]


class Duplicate(Protocol):
    """A descriptor on its way to a process that is being started."""

    def detach(self) -> int:
        """In that process: the descriptor, which is now the caller's to close."""


def is_spawning() -> bool:
    """Whether this thread is pickling for a process that it is starting (spawn, forkserver)."""
    return get_spawning_popen() is not None


def duplicate(fd: int) -> Duplicate:
    """What to pickle in place of a descriptor while `is_spawning()`."""
    return cast(Duplicate, DupFd(fd))


def unnamed_file() -> int:
    """A descriptor of a new file that has no name: memory where the system has such files, else a deleted one.

    It is inherited by forked processes, and nothing of it is left once the last of them has gone, however it went.
    """
    if hasattr(os, "memfd_create"):
        return os.memfd_create("tosnative")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def close_with(owner: object, fd: int) -> None:
    """Close a descriptor when its owner is collected."""
    weakref.finalize(owner, os.close, fd).atexit = False


class SharedNumbers:
    """A few 64-bit numbers that a process and its descendants read and write in the same memory, without a lock.

    A write is seen by all; who adds to a number must be its only writer. Pickled for another purpose than starting a
    process, it becomes a copy.
    """

    def __init__(self, count: int) -> None:
        fd = unnamed_file()
        os.ftruncate(fd, 8 * count)
        self._open(fd)

    def _open(self, fd: int) -> None:
        self._fd = fd
        self._numbers = memoryview(mmap.mmap(fd, 0)).cast("q")
        close_with(self, fd)

    def __len__(self) -> int:
        return len(self._numbers)

    def __getitem__(self, at: int) -> int:
        return self._numbers[at]

    def __setitem__(self, at: int, value: int) -> None:
        self._numbers[at] = value

    def total(self, start: int) -> int:
        """The sum of the numbers from `start` on."""
        return sum(self._numbers[start:])

    def __getstate__(self) -> Any:
        return duplicate(self._fd) if is_spawning() else self._numbers.tolist()

    def __setstate__(self, state: Any) -> None:
        if not isinstance(state, list):
            self._open(state.detach())
            return
        SharedNumbers.__init__(self, len(state))
        for at, value in enumerate(state):
            self._numbers[at] = value
