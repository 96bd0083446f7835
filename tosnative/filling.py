"""The part that a writer fills: bytes are taken over or copied in, and summed up while the processor has them at hand."""

from __future__ import annotations

import tosnative.crc64 as crc64_
from tosnative.buffers import BIG, copy

__all__ = ["Filling"]

# Copied and summed at once: what is read and what is written fit together into a core's cache. Measured, 1 GiB: the checksum
# of whole parts of 8 MiB cost 0.26 s, in steps of this size 0.16.
_STEP = 512 * 1024


class Filling:
    """A part of `used` bytes so far, and the buffer that holds what had to be copied, each byte at its place in the part.

    A large `bytes` object, which cannot change, is not copied: the part keeps it, and that stretch of the buffer stays unused.
    With `check` the CRC64 is kept.
    """

    __slots__ = ("_check", "_crc", "_kept", "_summed", "buffer", "used")

    def __init__(self, buffer: memoryview, check: bool) -> None:
        self.buffer = buffer
        self.used = 0
        self._check = check
        self._crc = 0
        self._summed = 0  # how many bytes _crc is of
        self._kept: list[tuple[int, memoryview]] = []  # where in the part each begins

    @property
    def room(self) -> int:
        return len(self.buffer) - self.used

    @property
    def pieces(self) -> list[memoryview]:
        """The part's bytes, in order; valid as long as nothing is added."""
        found, at = [], 0
        for start, view in (*self._kept, (self.used, memoryview(b""))):
            found += [self.buffer[at:start], view]
            at = start + len(view)
        return [piece for piece in found if len(piece)]

    def add(self, view: memoryview) -> None:
        """Append all of `view`, for which there is room; it may change afterwards unless it is of a `bytes` object."""
        size = len(view)
        if size >= BIG and type(view.obj) is bytes:
            self._keep(view)
        elif size > _STEP and self._check:
            for at in range(0, size, _STEP):
                self._copy(view[at : at + _STEP])
        else:
            self._copy(view)

    def _copy(self, view: memoryview) -> None:
        copy(self.buffer[self.used :], view)
        self.used += len(view)
        if self.used - self._summed >= _STEP:
            self.crc64()

    def _keep(self, view: memoryview) -> None:
        self.crc64()
        self._kept.append((self.used, view))
        self.used += len(view)
        if self._check:
            self._crc, self._summed = crc64_.update(view, self._crc), self.used

    def crc64(self) -> int | None:
        """The CRC64 of the part so far, None where it is not wanted."""
        if not self._check:
            return None
        if self._summed < self.used:  # these are in the buffer: what is kept is summed up at once
            crc = crc64_.update(self.buffer[self._summed : self.used], self._crc)
            self._crc, self._summed = crc, self.used
        return self._crc
