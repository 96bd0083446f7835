"""The bytes of objects: immutable, shared between objects, and never joined to be stored.

A multipart upload, a copy of a part and an append only make new lists of pieces; bytes are copied when a reader asks
for one buffer that spans pieces.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

_MAP_FROM_BYTES = 256 << 10


class Source(Protocol):
    """Bytes that never change."""

    def view(self, start: int, end: int) -> memoryview:
        """The bytes [start, end); valid for as long as it is held, whatever happens to the object."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class MemorySource:
    """Bytes in memory. The buffer must not be written to by anyone any more."""

    data: memoryview

    def view(self, start: int, end: int) -> memoryview:
        return self.data[start:end]


@dataclass(frozen=True, slots=True, eq=False)
class FileSource:
    """A file that is never written to again, only unlinked when no object needs it."""

    path: Path

    def view(self, start: int, end: int) -> memoryview:
        with self.path.open("rb", buffering=0) as file:
            if end - start < _MAP_FROM_BYTES:
                file.seek(start)
                return memoryview(file.read(end - start))
            # A mapping outlives both the file object and the file's name.
            return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))[start:end]


@dataclass(frozen=True, slots=True)
class Piece:
    """The bytes [start, end) of a source."""

    source: Source
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Content:
    """A byte string made of pieces, one after the other; no piece is empty."""

    pieces: tuple[Piece, ...] = ()

    @property
    def size(self) -> int:
        return sum(piece.end - piece.start for piece in self.pieces)

    def slice(self, start: int, end: int) -> Content:
        """The bytes [start, end), clamped to the content, as content that shares them."""
        return Content(tuple(self._cut(start, end)))

    def _cut(self, start: int, end: int) -> Iterator[Piece]:
        offset = 0
        for piece in self.pieces:
            size = piece.end - piece.start
            first, last = max(start - offset, 0), min(end - offset, size)
            if first < last:
                yield Piece(piece.source, piece.start + first, piece.start + last)
            offset += size

    def views(self) -> list[memoryview]:
        """Read-only buffers that together are the bytes, without a copy."""
        return [piece.source.view(piece.start, piece.end) for piece in self.pieces]

    def tobytes(self) -> bytes:
        """The bytes in one piece, copied."""
        return b"".join(self.views())

    def __add__(self, other: Content) -> Content:
        return Content(self.pieces + other.pieces)
