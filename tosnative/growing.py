"""Memory that grows at its end without being copied, and takes no more than what was written to it."""

from __future__ import annotations

import mmap
from array import array

__all__ = ["GrowingBytes"]

_FIRST_BYTES = 1 << 16


class GrowingBytes:
    """Bytes that are appended to. Pages of memory that nothing was written to yet are not there.

    A large array that grows piece by piece among others leaves holes in the heap, as large as itself in the end; this is a
    mapping of its own, which the system moves instead of copying it, and which is gone when it is closed.
    """

    def __init__(self) -> None:
        self._map = _mapping(_FIRST_BYTES)
        self.size = 0

    def append(self, data: bytes | bytearray | memoryview | array[int] | array[float]) -> None:
        """Append the bytes of a buffer. Raises: BufferError once there is a view."""
        with memoryview(data) as view:
            stop = self.size + view.nbytes
            if stop > len(self._map):
                self._grow(max(2 * len(self._map), stop))
            if view.nbytes:
                self._map[self.size : stop] = view.cast("B")
        self.size = stop

    def take(self, other: GrowingBytes) -> None:
        """Append all of another one, which is closed."""
        with memoryview(other._map) as whole:
            self.append(whole[: other.size])
        other.close()

    def view(self, kind: str) -> memoryview:
        """What was appended, as items of this format, of which it is a whole number."""
        return memoryview(self._map)[: self.size].cast(kind)  # type: ignore[call-overload,no-any-return]  # a literal

    def close(self) -> None:
        """Give the memory back. Raises: BufferError where a view is left."""
        self._map.close()

    def _grow(self, size: int) -> None:
        try:
            self._map.resize(size)
        except (AttributeError, SystemError, OSError, ValueError):  # not every system can
            larger = _mapping(size)
            larger[: self.size] = self._map[: self.size]
            self._map.close()
            self._map = larger


def _mapping(size: int) -> mmap.mmap:
    return mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
