"""Reading ahead in parallel ranges: the strategy behind the sequential reader, and behind torch.load."""

from __future__ import annotations

import time
from collections import deque
from typing import TYPE_CHECKING

from tosnative.buffers import BIG, allocate, copy, provide
from tosnative.fills import STRAIGHT_IN_FLIGHT, cancel_all, piece_size
from tosnative.pace import LARGE, Pace
from tosnative.parts_held import Part, Piece
from tosnative.version import ObjectVersion

if TYPE_CHECKING:
    from tosnative.client import Download

__all__ = ["SequentialFill"]

# Parts in flight or held ahead where the configuration leaves it open: at 20 ms to the first byte and 100 MB/s for each
# connection this is 1.6 GB/s, with parts of 8 MiB.
_WINDOW = 16
# A step forward by up to this much still counts as reading on: torch.load and zipfile skip headers and padding.
_GAP = 64 * 1024
# Free part buffers that are kept for the next part; memory that was touched before costs no page faults.
_SPARE = 4


class SequentialFill:
    """Holds parts of a fixed grid and asks for the next ones before they are read, the more the longer reading goes on.

    - Ahead are at most `window` parts, fewer where the service is near (see `Pace`), and at most four times the bytes that were
      read without a jump: a look at the head of a large object fetches one part, a read from front to back soon keeps the
      whole window in flight.
    - A part that was read to its end is dropped when the next one was; parts that were not (the end of a zip file, which
      torch.load reads first) stay until room is needed. Held or in flight are at most window + 3 parts.
    - Whole cells that a read asks for and nobody has asked for yet are received into the caller's memory.
    - Large reads go straight into the caller's memory, and nothing is asked for ahead, while that is faster; see `Pace`.
    """

    def __init__(self, version: ObjectVersion) -> None:
        config = version.client.config
        self._version = version
        self._size = config.part_size
        most = max(1, config.memory_budget_bytes // (2 * self._size))
        self._window = min(config.shared_prefetch_tasks or _WINDOW, most)
        self._pieces = config.shared_prefetch_tasks or STRAIGHT_IN_FLIGHT  # of one read in flight together
        self._parts: dict[int, Part] = {}  # by cell
        self._spent: int | None = None  # the cell that was read to its end last
        self._spare: list[memoryview] = []
        self._last = 0  # where the last read ended
        self._run = 0  # bytes read without a jump
        self._look_at = 0  # the position from which on another look at what is ahead is due
        self._clock = 0
        self._pace = Pace()
        self._left_at: float | None = None  # when the last large read returned

    # -- the interface

    def adopt(self, download: Download, seconds: float | None) -> None:
        if seconds is not None:
            self._pace.answered(download.length, seconds)
        cell, off = divmod(download.start, self._size)
        stop = download.start + download.length
        if off or not download.length or stop != self._end_of(cell):
            return
        part = Part(download.start, stop, download, None, counted=False)
        part.ready, part.view, part.download = True, download.view, None
        self._parts[cell] = part

    def view(self, at: int, size: int) -> memoryview | None:
        part = self._parts.get(at // self._size)
        if part is None or not part.ready or at + size > part.stop:
            return None
        found = part.view[at - part.start : at - part.start + size]
        self._passed(part, at, at + size)
        return found

    def readinto(self, at: int, into: memoryview) -> int:
        stop = min(at + len(into), self._version.size or 0)
        if at >= stop:
            return 0
        if stop - at >= LARGE:
            self._read_large(at, stop, into)
            return stop - at
        part = self._parts.get(at // self._size)
        if part is not None and part.ready and stop <= part.stop:
            copy(into, part.view[at - part.start : stop - part.start])
            self._passed(part, at, stop)
        else:
            self._moved(at, stop)
            self._gather(at, stop, into, None)
        return stop - at

    def _read_large(self, at: int, stop: int, into: memoryview) -> None:
        pace = self._pace
        began = time.perf_counter() if self._left_at is None else self._left_at
        ahead = any(cell in self._parts for cell in range(at // self._size, -(-stop // self._size)))
        if ahead and not pace.settled and pace.straight:
            pace.read_ahead()  # small reads in between have begun it
        straight = pace.straight
        self._moved(at, stop)
        self._gather(at, stop, into, piece_size(self._version, stop - at) if straight else None)
        self._left_at = time.perf_counter()
        if not straight:
            pace.went_ahead(stop - at, self._left_at - began)
        elif not ahead:
            pace.went_straight(stop - at, self._left_at - began)

    def release(self) -> None:
        parts, self._parts = list(self._parts.values()), {}
        self._spare.clear()
        try:
            cancel_all(part.download for part in parts if part.download is not None)
        finally:
            for part in parts:
                self._uncount(part)

    # -- where the reader is

    def _end_of(self, cell: int) -> int:
        return min((cell + 1) * self._size, self._version.size or 0)

    def _moved(self, at: int, stop: int) -> None:
        """Note a read of [at, stop)."""
        if 0 <= at - self._last <= _GAP:
            self._run += stop - self._last
        else:
            self._run = stop - at
            self._look_at = 0
        self._last = stop

    def _passed(self, part: Part, at: int, stop: int) -> None:
        """Note a read of [at, stop) that a part served; both the hot path and what keeps memory bounded."""
        self._moved(at, stop)
        self._consumed(part, at, stop)
        if stop >= self._look_at:
            self._read_ahead(stop)

    def _consumed(self, part: Part, at: int, stop: int) -> None:
        self._clock += 1
        part.used = self._clock
        if at <= part.read_to + _GAP and stop > part.read_to:
            part.read_to = stop
            if stop == part.stop:
                cell = part.start // self._size
                spent, self._spent = self._spent, cell
                if spent is not None and spent != cell and spent in self._parts and not self._parts[spent].wanted:
                    self._drop(spent)

    def _read_ahead(self, stop: int) -> None:
        """Ask for the parts that will be read after `stop`, as far as the budget goes."""
        ahead = min(self._pace.window(self._window), 4 * self._run // self._size)
        first = stop // self._size  # the cell that is being read, unless a new one begins here
        last = min(first + ahead + (ahead > 0 and stop % self._size > 0), -(-(self._version.size or 0) // self._size))
        self._ask_for(first, last)
        self._look_at = stop + self._size // 4

    def ahead(self, most: int) -> int:
        """Before anything is read: ask for the first `most` parts, and return how many there are or will be."""
        self._ask_for(0, min(most, self._window, -(-(self._version.size or 0) // self._size)))
        return len(self._parts)

    def _ask_for(self, first: int, last: int) -> None:
        """Ask for what there is not yet of the cells [first, last), as far as the budget goes."""
        batch: list[Download] = []
        for cell in range(first, last):
            if cell not in self._parts:
                part = self._ask(cell, first, last, force=False)
                if part is None:
                    break
                assert part.download is not None
                batch.append(part.download)
        if batch:
            self._version.client.submit(batch)

    # -- parts

    def _ask(self, cell: int, first: int, last: int, force: bool) -> Part | None:
        """Make a part (its download is not submitted yet); cells [first, last) are not dropped for it."""
        start, stop = cell * self._size, self._end_of(cell)
        budget = self._version.client.budget
        try:
            if not budget.take(stop - start, force=force):
                return None
            self._make_room(first, last)
            buffer = self._spare.pop() if self._spare else allocate(min(self._size, self._version.size or 0))
            download = self._version.range(start, stop, buffer[: stop - start])
            part = self._parts[cell] = Part(start, stop, download, buffer, counted=True)
        except BaseException:  # the object was found damaged, or an interruption
            budget.give(stop - start)  # too much, where take() was interrupted: that makes up for itself
            raise
        self._clock += 1
        part.used = self._clock
        return part

    def _make_room(self, first: int, last: int) -> None:
        if len(self._parts) < self._window + 3:
            return
        candidates = [cell for cell, part in self._parts.items() if not (first <= cell < last or part.wanted)]
        if candidates:
            self._drop(min(candidates, key=lambda cell: self._parts[cell].used))

    def _drop(self, cell: int) -> None:
        part = self._parts.get(cell)
        if cell == self._spent:
            self._spent = None
        if part is None:
            return
        try:
            if part.download is not None:
                cancel_all([part.download])
        finally:
            self._uncount(part)
            self._parts.pop(cell, None)
        if part.buffer is not None and len(self._spare) < _SPARE:
            self._spare.append(part.buffer)

    def _uncount(self, part: Part) -> None:
        if part.counted:
            self._version.client.budget.give(part.stop - part.start)
            part.counted = False

    def _finish(self, part: Part) -> None:
        """Wait until the part is held. After a failure it is dropped, so that another read asks anew."""
        if part.ready:
            return
        assert part.download is not None
        try:
            if part.download.engine is None:  # the read that made it was interrupted before it could submit it
                self._version.client.submit([part.download])
            began = time.perf_counter()
            self._version.learn(part.download.wait())
            flying = sum(other.download is not None for other in self._parts.values())
            self._pace.waited(flying * self._size, time.perf_counter() - began)
        except BaseException:
            self._drop(part.start // self._size)
            raise
        part.view, part.download, part.ready = part.download.view, None, True

    # -- reads that need more than what is held

    def _gather(self, at: int, stop: int, into: memoryview, straight: int | None) -> None:
        """Fill `into` with [at, stop): what nobody asked for yet in parallel, what is ahead when it has come.

        straight: in ranges of so many bytes, and ask for nothing ahead.
        """
        pieces: deque[Piece] = deque()
        pos = at
        try:
            while pos < stop or pieces:
                batch: list[Download] = []
                begun = pos
                while pos < stop and len(pieces) < self._pieces:
                    pieces.append(self._plan(pos, stop, into[pos - at :], batch, straight))
                    pos = pieces[-1].stop
                if batch:
                    self._version.client.submit(batch)
                if pos >= stop and straight is None:
                    self._read_ahead(stop)
                provide(into[begun - at : pos - at])  # while the answers are under way
                self._take(pieces[0], into[pieces[0].start - at :])
                pieces.popleft()
        except BaseException:
            for piece in pieces:
                if piece.part is not None:
                    piece.part.wanted = False
            cancel_all([piece.straight for piece in pieces if piece.straight is not None])
            raise

    def _plan(self, pos: int, stop: int, into: memoryview, batch: list[Download], most: int | None) -> Piece:
        cell = pos // self._size
        end = self._end_of(cell)
        part = self._parts.get(cell)
        if part is not None and part.download is not None and part.download.error is not None:
            self._drop(cell)  # failed before anybody wanted it: this read has a deadline of its own
            part = None
        if part is None:
            if most is not None:
                end = min(end, stop, pos + most)
            if most is not None or (stop >= end and (end - pos >= BIG or end - pos >= self._size)):
                straight = self._version.range(pos, end, into[: end - pos])
                batch.append(straight)
                return Piece(pos, end, None, straight)
            part = self._ask(cell, cell, -(-stop // self._size), force=True)
            assert part is not None
            assert part.download is not None
            batch.append(part.download)
        part.wanted = True
        return Piece(pos, min(end, stop), part, None)

    def _take(self, piece: Piece, into: memoryview) -> None:
        if piece.straight is not None:
            self._version.learn(piece.straight.wait())
        elif piece.part is not None:
            self._finish(piece.part)
            copy(into, piece.part.view[piece.start - piece.part.start : piece.stop - piece.part.start])
            piece.part.wanted = False
            self._consumed(piece.part, piece.start, piece.stop)
