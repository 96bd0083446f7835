"""CRC-64/XZ, which TOS calls crc64ecma: of bytes, and of a whole from the checksums of its parts.

The fast way is `lzma_crc64` of liblzma, the library that Python's own lzma module is linked with (7-8 GB/s measured;
the crcmod extension that the official SDK uses does 0.4 GB/s). Where it cannot be reached, crcmod does the work, and where
that is missing too, a table in Python does it, slowly.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import logging
from collections.abc import Callable

from tosnative.buffers import address

__all__ = ["combine", "update"]

_POLYNOMIAL = 0xC96C5795D7870F42  # 0x42F0E1EBA9EA3693, bits reversed
_CHECK = 0x995DC9BBDF1939FA  # of b"123456789", from the catalogue of CRC algorithms (CRC-64/XZ)
# Below this many bytes keeping the GIL is cheaper than giving it up and waiting for it.
_KEEP_GIL_BELOW = 256 * 1024

_Update = Callable[["bytes | bytearray | memoryview", int], int]


def _through_liblzma() -> _Update:
    """Raises: OSError, ImportError, AttributeError where no liblzma can be reached."""
    import _lzma  # noqa: PLC0415 - absent from some builds of Python; then the caller looks elsewhere

    name = getattr(_lzma, "__file__", None) or ctypes.util.find_library("lzma")
    if name is None:
        raise OSError("liblzma was not found")
    functions = []
    for library in (ctypes.PyDLL(name), ctypes.CDLL(name)):
        function = library.lzma_crc64
        function.restype, function.argtypes = ctypes.c_uint64, [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint64]
        functions.append(function)
    keeps_gil, frees_gil = functions
    char = ctypes.c_char

    def update(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
        size = len(data) if not isinstance(data, memoryview) else data.nbytes
        function = keeps_gil if size < _KEEP_GIL_BELOW else frees_gil
        if isinstance(data, bytes):
            return int(function(data, size, crc))
        if size == 0:
            return crc
        view = memoryview(data).cast("B")
        at = address(view) if view.readonly else ctypes.addressof(char.from_buffer(view))
        return int(function(at, size, crc))

    return update


def _through_crcmod() -> _Update:
    """Raises: ImportError where crcmod is missing."""
    import crcmod  # noqa: PLC0415 - only where liblzma cannot be reached

    function = crcmod.mkCrcFun(0x142F0E1EBA9EA3693, initCrc=0, xorOut=0xFFFFFFFFFFFFFFFF, rev=True)

    def update(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
        return int(function(bytes(data), crc))

    return update


def _through_table() -> _Update:
    table = []
    for value in range(256):
        for _ in range(8):
            value = value >> 1 ^ (_POLYNOMIAL if value & 1 else 0)
        table.append(value)

    def update(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
        crc ^= 0xFFFFFFFFFFFFFFFF
        for byte in memoryview(data).cast("B"):
            crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
        return crc ^ 0xFFFFFFFFFFFFFFFF

    return update


def _choose() -> _Update:
    for way in (_through_liblzma, _through_crcmod, _through_table):
        try:
            function = way()
            if function(b"123456789", 0) == _CHECK:
                return function
        except (ImportError, OSError, AttributeError):
            pass
        logging.getLogger("tosnative").info("CRC64: %s is not to be had here; trying the next", way.__name__[9:])
    raise AssertionError("the table's CRC64 is wrong")


_update = _choose()


def update(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """The checksum after `data`, given the checksum `crc` of what came before it (0 of nothing).

    `data` is any contiguous buffer. Large ones are done without the GIL.
    """
    return _update(data, crc)


def _multiply(a: int, b: int) -> int:
    """a x b modulo the polynomial, both bit-reversed as CRC-64/XZ has them (x**0 is the highest bit)."""
    product = 0
    while a:
        if a & 1 << 63:
            product ^= b
        a = a << 1 & 0xFFFFFFFFFFFFFFFF
        b = b >> 1 ^ (_POLYNOMIAL if b & 1 else 0)
    return product


@functools.lru_cache(maxsize=1024)
def _shift(size: int) -> int:
    """x**(8 x size) modulo the polynomial: what multiplies a checksum when `size` bytes follow."""
    result, square = 1 << 63, 1 << 55  # x**0 and x**8
    while size:
        if size & 1:
            result = _multiply(square, result)
        square = _multiply(square, square)
        size >>= 1
    return result


def combine(first: int, second: int, second_size: int) -> int:
    """The checksum of A + B from the checksum of A, the checksum of B, and the size of B in bytes."""
    return _multiply(_shift(second_size), first) ^ second
