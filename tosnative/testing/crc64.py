"""CRC-64/XZ for the local server, on its own way: liblzma's, else a table in Python.

Polynomial 0x42F0E1EBA9EA3693 reflected, initial value and final XOR all ones; the checksum of nothing is 0. Shares no
code with the client's checksum, so that a mistake in one cannot hide behind the same mistake in the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable

_REFLECTED = 0xC96C5795D7870F42
_ONES = 0xFFFFFFFFFFFFFFFF
_CHECK = 11051210869376104954  # of b"123456789", from the algorithm's definition


def crc64(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """The checksum of what `seed` is the checksum of, followed by `data`."""
    return _update(data, seed)


def combine(first: int, second: int, second_size: int) -> int:
    """The checksum of two byte strings one after the other, from their checksums and the size of the second in bytes.

    Appending 2**k zero bytes is a linear map over GF(2) on the register; the maps are kept once they were computed, so
    the cost is one matrix-vector product for each bit that is set in the size.
    """
    power = 0
    while second_size >> power:
        if second_size >> power & 1:
            first = _apply(_zero_bytes(power), first)
        power += 1
    return first ^ second


def _zero_bytes(power: int) -> list[int]:
    """The map that appends 2**power zero bytes, as the images of the 64 unit vectors."""
    while len(_ZERO_BYTES) <= power:
        last = _ZERO_BYTES[-1]
        _ZERO_BYTES.append([_apply(last, column) for column in last])
    return _ZERO_BYTES[power]


def _apply(matrix: list[int], vector: int) -> int:
    total = 0
    column = 0
    while vector:
        if vector & 1:
            total ^= matrix[column]
        vector >>= 1
        column += 1
    return total


def _make_table() -> list[int]:
    table = []
    for byte in range(256):
        value = byte
        for _ in range(8):
            value = (value >> 1) ^ (_REFLECTED if value & 1 else 0)
        table.append(value)
    return table


_TABLE = _make_table()
_ZERO_BYTES = [[(vector >> 8) ^ _TABLE[vector & 0xFF] for vector in (1 << bit for bit in range(64))]]


def table_update(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
    """The same checksum byte by byte, for a Python built without liblzma; about 10 MB/s."""
    table = _TABLE
    value = seed ^ _ONES
    for byte in memoryview(data).cast("B"):
        value = table[(value ^ byte) & 0xFF] ^ (value >> 8)
    return value ^ _ONES


def _lzma_update() -> Callable[[bytes | bytearray | memoryview, int], int] | None:
    """The checksum out of the liblzma that Python's own lzma module is linked with, or None where there is none."""
    try:
        import _lzma  # noqa: PLC0415 - a Python without lzma is a supported case

        function = ctypes.CDLL(_lzma.__file__).lzma_crc64
    except (ImportError, AttributeError, OSError, TypeError):
        return None
    function.restype = ctypes.c_uint64
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]

    def update(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
        size = memoryview(data).nbytes
        if size == 0:
            return seed
        address, keep = _address_of(data)
        value = int(function(address, size, seed))
        del keep
        return value

    return update if update(b"123456789", 0) == _CHECK else None


def _address_of(data: bytes | bytearray | memoryview) -> tuple[object, object]:
    """Something ctypes passes as a pointer to the first byte, and what must stay alive meanwhile; copies nothing.

    ctypes takes writable buffers only, and bytes as such; the address of any other read-only buffer comes from the C
    API's own buffer structure.
    """
    if isinstance(data, bytes):
        return data, data
    view = memoryview(data)
    if not view.readonly:
        array = (ctypes.c_char * view.nbytes).from_buffer(view)
        return array, array
    buffer = _PyBuffer()
    ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(view), ctypes.byref(buffer), 0)
    return buffer.buf, _Release(buffer)


class _PyBuffer(ctypes.Structure):
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


class _Release:
    """Gives a buffer back when it is no longer referenced."""

    def __init__(self, buffer: _PyBuffer) -> None:
        self._buffer = buffer

    def __del__(self) -> None:
        ctypes.pythonapi.PyBuffer_Release(ctypes.byref(self._buffer))


_update = _lzma_update() or table_update
