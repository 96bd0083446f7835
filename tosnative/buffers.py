"""Memory: any buffer as plain bytes, and copies that leave the GIL to others."""

from __future__ import annotations

import ctypes
import errno
import mmap
import sys
from typing import Any

__all__ = ["BIG", "address", "allocate", "as_bytes", "copy", "provide", "view_of"]

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


# madvise(2), since Linux 5.14; elsewhere the number may mean something else.
_MADV_POPULATE_WRITE = 23
_PAGE = mmap.PAGESIZE


def _of_linux(name: str, *arguments: Any) -> Any:
    if sys.platform != "linux":
        return None
    function = getattr(ctypes.CDLL(None, use_errno=True), name)
    function.restype, function.argtypes = ctypes.c_int, arguments
    return function


_madvise = _of_linux("madvise", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_mincore = _of_linux("mincore", ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p)


def provide(into: memoryview) -> None:
    """Have the system provide all of this memory, which is about to be written, in one go and without the GIL.

    Measured, 1 GiB: 0.25 s, where the first use of page after page takes 0.36 s. What is in the memory stays. Small buffers
    are left alone, such as seem to be there already, and all where the system has no such call.
    """
    global _madvise
    if _madvise is None or len(into) < BIG:
        return
    start = address(into)
    first, last = -(-start // _PAGE) * _PAGE, (start + len(into)) // _PAGE * _PAGE
    if all(_is_there(page) for page in (last - _PAGE, first, (first + last) // 2 // _PAGE * _PAGE)):
        return
    # Other failures are of this memory (special mappings), and writing it will show them.
    if _madvise(first, last - first, _MADV_POPULATE_WRITE) and ctypes.get_errno() == errno.EINVAL:
        _madvise = None


def _is_there(page: int) -> bool:
    found = ctypes.create_string_buffer(1)
    return bool(_mincore(page, _PAGE, found) or found.raw[0] & 1)
