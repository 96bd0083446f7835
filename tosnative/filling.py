"""The part that a writer fills: bytes are copied in, and summed up while the processor still has them at hand."""

from __future__ import annotations

import tosnative.crc64 as crc64_
from tosnative.buffers import copy

__all__ = ["Filling"]

# Copied and summed at once: what is read and what is written fit together into a core's cache. Measured, 1 GiB: the checksum
# of whole parts of 8 MiB cost 0.26 s, in steps of this size 0.16.
_STEP = 512 * 1024


class Filling:
    """A part buffer; its first `used` bytes are the part so far. With `check` their CRC64 is kept."""

    __slots__ = ("_check", "_crc", "_summed", "buffer", "used")

    def __init__(self, buffer: memoryview, check: bool) -> None:
        self.buffer = buffer
        self.used = 0
        self._check = check
        self._crc = 0
        self._summed = 0  # how many bytes _crc is of

    @property
    def room(self) -> int:
        return len(self.buffer) - self.used

    @property
    def data(self) -> memoryview:
        return self.buffer[: self.used]

    def add(self, view: memoryview) -> None:
        """Append a copy of all of `view`, for which there is room."""
        size = len(view)
        if size > _STEP:
            for at in range(0, size, _STEP):
                self.add(view[at : at + _STEP])
            return
        copy(self.buffer[self.used :], view)
        self.used += size
        if self.used - self._summed >= _STEP:
            self.crc64()

    def crc64(self) -> int | None:
        """The CRC64 of `data`, None where it is not wanted."""
        if not self._check:
            return None
        if self._summed < self.used:
            crc = crc64_.update(self.buffer[self._summed : self.used], self._crc)
            self._crc, self._summed = crc, self.used
        return self._crc
