"""CRC-64/XZ for the local server, on its own way: liblzma's, else a table in Python.

Polynomial 0x42F0E1EBA9EA3693 reflected, initial value and final XOR all ones; the checksum of nothing is 0. Shares no
code with the client's checksum, so that a mistake in one cannot hide behind the same mistake in the other.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any, TypeAlias

_REFLECTED = 0xC96C5795D7870F42
_ONES = 0xFFFFFFFFFFFFFFFF
_CHECK = 11051210869376104954  # of b"123456789", from the algorithm's definition
_RELEASE_FROM_BYTES = 1 << 20

_Function: TypeAlias = Callable[[Any, int, int], int]


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
    """The checksum out of a liblzma that is at hand, or None where there is none."""
    found = _lzma_functions()
    if found is None:
        return None
    holding, releasing = found

    def update(data: bytes | bytearray | memoryview, seed: int = 0) -> int:
        size = memoryview(data).nbytes
        if size == 0:
            return seed
        function = holding if size < _RELEASE_FROM_BYTES else releasing
        if isinstance(data, bytes):
            return int(function(data, size, seed))
        # ctypes makes no pointer from a read-only view; the C API's own structure has the address.
        buffer = _PyBuffer()
        ctypes.pythonapi.PyObject_GetBuffer(ctypes.py_object(data), ctypes.byref(buffer), 0)
        try:
            return int(function(buffer.buf, size, seed))
        finally:
            ctypes.pythonapi.PyBuffer_Release(ctypes.byref(buffer))

    return update if update(b"123456789", 0) == _CHECK else None


def _lzma_functions() -> tuple[_Function, _Function] | None:
    """lzma_crc64 twice: holding the interpreter lock, and releasing it.

    Getting the lock back beside a busy thread costs a whole switch interval, so short calls hold it. Looks into the
    library that Python's lzma module is linked with, into the process, and at the library's usual names.
    """
    for name in (_lzma_path(), None, "liblzma.so.5", "liblzma.5.dylib"):
        try:
            pair = ctypes.PyDLL(name).lzma_crc64, ctypes.CDLL(name).lzma_crc64
        except (AttributeError, OSError, TypeError):
            continue
        for function in pair:
            function.restype = ctypes.c_uint64
            function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
        return pair
    return None


def _lzma_path() -> str | None:
    """The file of Python's lzma module, where it has one; some builds have it inside or not at all."""
    spec = find_spec("_lzma")
    return spec.origin if spec is not None and spec.has_location else None


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


_update = _lzma_update() or table_update
