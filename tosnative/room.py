"""bytes objects that are received into, and those of large reads, which are filled again once nobody else has them."""

from __future__ import annotations

import ctypes
import io
import sys
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from tosnative.buffers import view_of

__all__ = ["Room", "Rooms"]

# A bytes object in CPython: its head, the last field of which is its cached hash, its bytes, one zero.
_HEAD = bytes.__basicsize__ - 1
_HASH_AT = _HEAD - ctypes.sizeof(ctypes.c_ssize_t)
# Smaller ones come from memory that malloc keeps anyhow.
_KEEP_FROM = 4 << 20
_MOST, _SHARE = 256 << 20, 4


class Room(NamedTuple):
    """A bytes object to be: `view` is filled, then `seal()` returns the bytes, without a copy.

    After seal() nobody may write through `view` or a slice of it.
    """

    view: memoryview
    seal: Callable[[], bytes]

    @classmethod
    def of(cls, size: int) -> Room:
        """Room for `size` bytes. Its memory is not touched before it is filled."""
        # Below two bytes CPython hands out shared objects.
        return _room_in(bytes(size)) if _FRESH and size > 1 else _portable_room(size)


def _room_in(data: bytes) -> Room:
    # Nobody else has this object, so filling it now is what PyBytes_FromStringAndSize(NULL, size) is for.
    return Room(view_of(id(data) + _HEAD, len(data), writable=True), lambda: data)


def _portable_room(size: int) -> Room:
    holder = io.BytesIO()
    if size:
        holder.seek(size - 1)
        holder.write(b"\0")
    view = holder.getbuffer()

    def seal() -> bytes:
        view.release()
        return holder.getvalue()

    return Room(view, seal)


class Rooms:
    """Keeps what large reads returned, up to a share of the memory budget, and fills it again once its user has dropped it.

    The first use of fresh memory takes as long as receiving into it: measured, objects of 140 MiB one after the other came
    1.7 times as fast. What a user still holds costs nothing to keep, and is never touched. Any thread may ask for room.
    """

    def __init__(self, budget_bytes: int) -> None:
        self._limit = min(_MOST, budget_bytes // _SHARE)
        # In cells, so that the only other reference to one is the user's. A cell is taken out before it is looked at.
        self._cells: deque[list[bytes]] = deque()

    def of(self, size: int) -> Room:
        """As Room.of; where the memory was used before, it holds what it held."""
        if not (_KEEPS and _KEEP_FROM <= size <= self._limit):
            return Room.of(size)
        data = self._dropped(size) or bytes(size)
        self._keep([data])
        return _room_in(data)

    def _dropped(self, size: int) -> bytes | None:
        for _ in range(len(self._cells)):
            try:
                cell = self._cells.popleft()
            except IndexError:  # another thread has them
                return None
            if sys.getrefcount(cell[0]) == _ALONE:
                return _resized(cell, size)
            self._cells.append(cell)
        return None

    def _keep(self, cell: list[bytes]) -> None:
        self._cells.append(cell)
        while sum(len(one[0]) for one in tuple(self._cells)) > self._limit:
            try:
                self._cells.popleft()
            except IndexError:
                return

    def clear(self) -> None:
        """Keep nothing of what there is."""
        self._cells.clear()


def _resized(cell: list[bytes], size: int) -> bytes:
    """The object of this cell, to which nobody else has a reference, with another size; most of its memory stays."""
    where = ctypes.c_void_p(id(cell[0]))
    _hold(where.value)
    cell.clear()
    _resize(ctypes.byref(where), size)  # raises MemoryError
    data: bytes = _reference(where.value)
    _let_go(where.value)
    ctypes.c_ssize_t.from_address(id(data) + _HASH_AT).value = -1  # not computed
    return data


def _reference(address: int | None) -> bytes:
    found: bytes = ctypes.cast(ctypes.c_void_p(address), ctypes.py_object).value
    return found


def _is_laid_out() -> bool:
    """Whether a bytes object is as we know it, tried on one of our own."""
    if sys.implementation.name != "cpython":
        return False
    data = bytes(bytearray(b"tosnative"))
    hashed = hash(data)
    return (
        ctypes.string_at(id(data) + _HEAD, 10) == b"tosnative\0"
        and ctypes.c_ssize_t.from_address(id(data) + _HASH_AT).value == hashed
    )


_FRESH = _is_laid_out()
# Counting references says who has an object only while the GIL is there to count them.
_KEEPS = _FRESH and getattr(sys, "_is_gil_enabled", lambda: True)() and hasattr(ctypes.pythonapi, "_PyBytes_Resize")
_ALONE = 0
if _KEEPS:
    _api = ctypes.pythonapi
    _hold = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_IncRef", _api))
    _let_go = ctypes.PYFUNCTYPE(None, ctypes.c_void_p)(("Py_DecRef", _api))
    _resize = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_void_p), ctypes.c_ssize_t)(
        ("_PyBytes_Resize", _api)
    )
    _probe = [bytes(1000)]
    _ALONE = sys.getrefcount(_probe[0])  # one is the list's, the others are this call's
