"""Memory: any buffer as plain bytes, copies that leave the GIL to others, and bytes objects that are received into."""

from __future__ import annotations

import ctypes
import io
import mmap
import sys
from collections.abc import Callable
from typing import Any, NamedTuple

__all__ = ["BIG", "Room", "allocate", "as_bytes", "copy"]

# From this many bytes on, a copy is worth giving up the GIL for (about 25 us of copying).
BIG = 256 * 1024

_PyBUF_SIMPLE, _PyBUF_READ, _PyBUF_WRITE = 0, 0x100, 0x200
_memmove = ctypes.CDLL(None).memmove
_memmove.restype, _memmove.argtypes = ctypes.c_void_p, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
# Prototypes of our own: argtypes set on ctypes.pythonapi's functions would bind every other user of them.
_from_memory = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)(
    ("PyMemoryView_FromMemory", ctypes.pythonapi)
)


_CASTABLE = frozenset("bBcdefhHiIlLnNPqQ?")


class _PyBuffer(ctypes.Structure):
    """CPython's Py_buffer (part of the stable ABI since 3.11, unchanged for longer)."""

    _fields_ = (
        ("buf", ctypes.c_void_p),
        ("obj", ctypes.c_void_p),
        ("len", ctypes.c_ssize_t),
        ("itemsize", ctypes.c_ssize_t),
        ("readonly", ctypes.c_int),
        ("ndim", ctypes.c_int),
        ("format", ctypes.c_char_p),
        ("shape", ctypes.c_void_p),
        ("strides", ctypes.c_void_p),
        ("suboffsets", ctypes.c_void_p),
        ("internal", ctypes.c_void_p),
    )


_get_buffer = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(_PyBuffer), ctypes.c_int)(
    ("PyObject_GetBuffer", ctypes.pythonapi)
)
_release_buffer = ctypes.PYFUNCTYPE(None, ctypes.POINTER(_PyBuffer))(("PyBuffer_Release", ctypes.pythonapi))


def _address(buffer: object) -> int:
    """Where the buffer's bytes are; the caller keeps the buffer alive and its size unchanged."""
    info = _PyBuffer()
    _get_buffer(buffer, ctypes.byref(info), _PyBUF_SIMPLE)  # raises BufferError where the buffer is not contiguous
    address = int(info.buf or 0)
    _release_buffer(ctypes.byref(info))
    return address


def as_bytes(buffer: Any, *, writable: bool = False) -> memoryview:
    """The buffer's memory as a one-dimensional view of bytes, whatever its item type.

    The caller keeps `buffer` itself referenced while it uses the view.
    Raises: TypeError where it is no buffer, or read-only and `writable` was asked; BufferError where it is not contiguous.
    """
    view = memoryview(buffer)
    if writable and view.readonly:
        raise TypeError(f"a writable buffer is needed, not a read-only {type(buffer).__name__}")
    if not view.c_contiguous:
        raise BufferError("a contiguous buffer is needed, in C order")
    if view.format == "B" and view.ndim == 1:
        return view
    if not view.nbytes:
        return memoryview(bytearray() if writable else b"")
    if view.format in _CASTABLE:
        return view.cast("B")
    # Half floats in a foreign byte order, records: memoryview cannot cast these, but their bytes are plain.
    made: memoryview = _from_memory(_address(view), view.nbytes, _PyBUF_READ if view.readonly else _PyBUF_WRITE)
    return made


def copy(into: memoryview, data: memoryview) -> None:
    """Copy all of `data` to the start of `into`, which has room for it. Large copies are done without the GIL."""
    size = data.nbytes
    if size < BIG:
        into[:size] = data
    else:
        _memmove(_address(into), _address(data), size)


def allocate(size: int) -> memoryview:
    """`size` bytes of memory for data on its way. Not touched before use, unlike a bytearray; freed with its last view."""
    if size < BIG:
        return memoryview(bytearray(size))
    # Private: a shared mapping, which is mmap's default, would let a forked child write into the parent's buffers. No hint for
    # huge pages: where they are at hand first use costs half (0.30 s for 1 GiB, not 0.57), but on a virtual machine that gives
    # free memory back to its host it cost six times as much (3.4 s, not 0.55).
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


class Room(NamedTuple):
    """A bytes object to be: `view` is filled, then `seal()` returns the bytes, without a copy.

    After seal() nobody may write through `view` or a slice of it.
    """

    view: memoryview
    seal: Callable[[], bytes]

    @classmethod
    def of(cls, size: int) -> Room:
        """Room for `size` bytes. Its memory is not touched before it is filled."""
        return _room(size)


_BYTES_HEAD = bytes.__basicsize__ - 1  # a bytes object: its head, its bytes, one zero


def _fresh_room(size: int) -> Room:
    # Nobody else has seen this object yet, so filling it now is what PyBytes_FromStringAndSize(NULL, size) is for.
    data = bytes(size)
    return Room(_from_memory(id(data) + _BYTES_HEAD, size, _PyBUF_WRITE), lambda: data)


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


def _room(size: int) -> Room:
    # Below two bytes CPython hands out shared objects.
    return _fresh_room(size) if _FRESH and size > 1 else _portable_room(size)


_FRESH = sys.implementation.name == "cpython" and ctypes.string_at(id(b"tosnative") + _BYTES_HEAD, 10) == b"tosnative\0"
