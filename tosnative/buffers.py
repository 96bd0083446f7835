"""Memory: any buffer as plain bytes, and copies that leave the GIL to others."""

from __future__ import annotations

import ctypes
import mmap
from typing import Any

__all__ = ["BIG", "address", "allocate", "as_bytes", "copy", "view_of"]

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


def address(buffer: object) -> int:
    """Where the buffer's bytes are; the caller keeps the buffer alive and its size unchanged."""
    info = _PyBuffer()
    _get_buffer(buffer, ctypes.byref(info), _PyBUF_SIMPLE)  # raises BufferError where the buffer is not contiguous
    found = int(info.buf or 0)
    _release_buffer(ctypes.byref(info))
    return found


def view_of(at: int, size: int, *, writable: bool) -> memoryview:
    """The memory [at, at + size); the caller keeps it alive as long as any view of it is used."""
    made: memoryview = _from_memory(at, size, _PyBUF_WRITE if writable else _PyBUF_READ)
    return made


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
    return view_of(address(view), view.nbytes, writable=not view.readonly)


def copy(into: memoryview, data: memoryview) -> None:
    """Copy all of `data` to the start of `into`, which has room for it. Large copies are done without the GIL."""
    size = data.nbytes
    if size < BIG:
        into[:size] = data
    else:
        _memmove(address(into), address(data), size)


def allocate(size: int) -> memoryview:
    """`size` bytes of memory for data on its way. Not touched before use, unlike a bytearray; freed with its last view."""
    if size < BIG:
        return memoryview(bytearray(size))
    # Private: a shared mapping, which is mmap's default, would let a forked child write into the parent's buffers. No hint for
    # huge pages: where they are at hand first use costs half (0.30 s for 1 GiB, not 0.57), but on a virtual machine that gives
    # free memory back to its host it cost six times as much (3.4 s, not 0.55).
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))
