"""The three ways to get an object's bytes: fill this memory from this offset. The object's version is pinned already.

Invariants of all of them: no request is in flight into the caller's memory when `readinto` returns or raises; what is
held or in flight of their own is bounded, counted in the client's budget, and given back by `release`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Protocol

from tosnative.buffers import allocate, copy, provide
from tosnative.ranges import split
from tosnative.version import ObjectVersion

if TYPE_CHECKING:
    from tosnative.client import Download

__all__ = ["STRAIGHT_IN_FLIGHT", "DirectFill", "Fill", "RangedFill", "cancel_all", "fetch", "piece_size"]

_MIB = 1 << 20
# A read that goes straight into the caller's memory is split into this many ranges, if they are of at least 1 MiB.
_SPLIT = 4
# Ranges of one read that are in flight together. They go into the caller's memory, so they cost none.
STRAIGHT_IN_FLIGHT = 32


class Fill(Protocol):
    """Where a reader's bytes come from. `at + size` may not pass the object's end where a size is asked for."""

    def adopt(self, download: Download, seconds: float | None) -> None:
        """Make use of the reader's first request, which is done and learned. seconds: how long it took, where that is known."""

    def view(self, at: int, size: int) -> memoryview | None:
        """[at, at + size) if it is held, valid until the next call of any method; None where a request would be needed."""

    def readinto(self, at: int, into: memoryview) -> int:
        """Fill `into` with the object's bytes from `at`; fewer only where the object ends. Returns how many."""

    def release(self) -> None:
        """Cancel what is in flight, drop what is held, give the budget back. Idempotent."""


def cancel_all(downloads: Iterable[Download]) -> None:
    """Return when the engine has let go of all their buffers, even if the waiting for that is interrupted."""
    interrupted: BaseException | None = None
    for download in downloads:
        while True:
            try:
                download.cancel()
                break
            except BaseException as again:  # noqa: BLE001 - raised below: the engine must not go on writing into freed memory
                interrupted = again
    if interrupted is not None:
        raise interrupted


def fetch(version: ObjectVersion, start: int, stop: int, into: memoryview, piece: int) -> None:
    """Receive [start, stop) into `into`, in ranges of `piece` bytes, several at a time, without a copy."""
    todo = split(start, stop, piece)
    flying: deque[Download] = deque()
    submit = version.client.submit
    try:
        while True:
            if len(flying) <= STRAIGHT_IN_FLIGHT // 2:
                batch = []
                for begin, end in todo:
                    batch.append(version.range(begin, end, into[begin - start : end - start]))
                    if len(flying) + len(batch) >= STRAIGHT_IN_FLIGHT:
                        break
                flying.extend(batch)
                submit(batch)
                if batch:
                    provide(into[batch[0].start - start : end - start])  # while the answers are under way
            if not flying:
                return
            download = flying[0]
            version.learn(download.wait())
            flying.popleft()
    except BaseException:
        cancel_all(flying)
        raise


def piece_size(version: ObjectVersion, size: int) -> int:
    """The size of the ranges that a read of `size` bytes is split into."""
    return min(version.client.config.part_size, max(_MIB, -(-size // _SPLIT)))


class DirectFill:
    """Keeps nothing: each read is one request, or several in parallel where it is large, into the caller's memory."""

    def __init__(self, version: ObjectVersion) -> None:
        self._version = version
        self._spare: Download | None = None

    def adopt(self, download: Download, seconds: float | None) -> None:
        self._spare = download

    def view(self, at: int, size: int) -> memoryview | None:
        spare = self._spare
        if spare is None or not (spare.start <= at and at + size <= spare.start + spare.length):
            return None
        self._spare = None
        return spare.view[at - spare.start : at - spare.start + size]

    def readinto(self, at: int, into: memoryview) -> int:
        stop = min(at + len(into), self._version.size or 0)
        if at >= stop:
            return 0
        spare, self._spare = self._spare, None
        done = 0
        if spare is not None and spare.start <= at < spare.start + spare.length:
            piece = spare.view[at - spare.start :][: stop - at]
            copy(into, piece)
            done = len(piece)
        if at + done < stop:
            fetch(self._version, at + done, stop, into[done : stop - at], piece_size(self._version, stop - at - done))
        return stop - at

    def release(self) -> None:
        self._spare = None


class RangedFill:
    """Keeps one window of `size` bytes around the position; reads of at least that many go past it, straight to the caller."""

    def __init__(self, version: ObjectVersion, size: int) -> None:
        self._version = version
        self._size = size
        self._start = self._stop = 0  # what the window holds
        self._held: memoryview = memoryview(b"")
        self._buffer: memoryview | None = None
        self._taken = 0

    def adopt(self, download: Download, seconds: float | None) -> None:
        self._start, self._stop = download.start, download.start + download.length
        self._held = download.view

    def view(self, at: int, size: int) -> memoryview | None:
        if size >= self._size or self._start <= at < self._stop < at + size:
            return None
        if not self._start <= at < self._stop:
            self._load(at, size)
        return self._held[at - self._start : at - self._start + size]

    def readinto(self, at: int, into: memoryview) -> int:
        stop = min(at + len(into), self._version.size or 0)
        if at >= stop:
            return 0
        done = 0
        if self._start <= at < self._stop:
            held = self._held[at - self._start : min(stop, self._stop) - self._start]
            copy(into, held)
            done = len(held)
        rest = stop - at - done
        if rest >= self._size:
            fetch(self._version, at + done, stop, into[done : stop - at], piece_size(self._version, rest))
        elif rest:
            self._load(at + done, rest)
            begin = at + done - self._start
            copy(into[done:], self._held[begin : begin + rest])
        return stop - at

    def _load(self, at: int, size: int) -> None:
        """Move the window so that it holds [at, at + size)."""
        total = self._version.size or 0
        start = at
        if self._start - self._size <= at < self._start and at + size <= self._start:
            start = at + size - self._size  # going backwards: what will be wanted next lies before
        if at != self._stop:  # reading on asks for nothing twice
            start = min(start, total - self._size)
        start = max(0, start)
        stop = min(start + self._size, total)
        if self._buffer is None:
            budget = self._version.client.budget
            budget.give(self._taken)  # of a call that was interrupted here
            self._taken = self._size  # noted first: what an interruption leaves noted and not taken makes up for itself
            budget.take(self._size, force=True)  # a reader's one window is the head of its line
            self._buffer = allocate(self._size)
        self._start = self._stop = 0
        self._held = self._buffer
        fetch(self._version, start, stop, self._held[: stop - start], piece_size(self._version, stop - start))
        self._start, self._stop = start, stop

    def release(self) -> None:
        self._start = self._stop = 0
        self._held, self._buffer = memoryview(b""), None
        if self._taken:
            self._version.client.budget.give(self._taken)
            self._taken = 0
