"""The buffer that heads, and small objects whole, are received into."""

from __future__ import annotations

import ctypes

__all__ = ["SCRATCH_SIZE", "Scratch"]

SCRATCH_SIZE = 256 * 1024


class Scratch:
    """The engine's receive buffer, with its address."""

    def __init__(self) -> None:
        self.data = bytearray(SCRATCH_SIZE)
        self.view = memoryview(self.data)
        self.address = ctypes.addressof((ctypes.c_char * SCRATCH_SIZE).from_buffer(self.data))
