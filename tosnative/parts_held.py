"""What a sequential reader holds and what a read of it is made of: two records."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from tosnative.client import Download

__all__ = ["Part", "Piece"]


class Part:
    """One cell of the grid of part_size bytes that the object is cut into, in flight or held.

    read_to: where the reading that began at its start has come to. counted: its bytes are in the budget.
    wanted: a read under way will still copy from it, so it may not be dropped.
    """

    __slots__ = ("buffer", "counted", "download", "read_to", "ready", "start", "stop", "used", "view", "wanted")

    def __init__(self, start: int, stop: int, download: Download, buffer: memoryview | None, counted: bool) -> None:
        self.start = start
        self.stop = stop
        self.download: Download | None = download
        self.buffer = buffer
        self.counted = counted
        self.ready = False
        self.read_to = start
        self.used = 0
        self.wanted = False
        self.view = memoryview(b"")


class Piece(NamedTuple):
    """[start, stop) of one read: from a part, or received straight into the caller's memory."""

    start: int
    stop: int
    part: Part | None
    straight: Download | None
