"""The buffer that heads, and small objects whole, are received into."""

from __future__ import annotations

import ctypes

__all__ = ["SCRATCH_SIZE", "Scratch", "settle_allocator"]

SCRATCH_SIZE = 256 * 1024


def settle_allocator() -> None:
    """Free one large block, so that glibc adapts its thresholds and keeps a few MiB of freed memory for the next objects.

    Its default gives the memory of each object back to the system and faults it in again for the next: measured, 18 page
    faults and 40 of 105 us for each object of 100 KiB. Any program that frees a block of this size has the same effect.
    """
    bytes(16 << 20)  # not a bytearray, which would be written to: 10 ms


class Scratch:
    """The engine's receive buffer, with its address."""

    def __init__(self) -> None:
        self.data = bytearray(SCRATCH_SIZE)
        self.view = memoryview(self.data)
        self.address = ctypes.addressof((ctypes.c_char * SCRATCH_SIZE).from_buffer(self.data))
