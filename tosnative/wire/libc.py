"""recv and send of the C library, called with the GIL kept: for sockets that never wait.

Python's own calls give the GIL up, and getting it back from a busy thread costs up to a whole switch interval.
"""

from __future__ import annotations

import ctypes
import socket
import sys
from collections.abc import Callable
from typing import Any

__all__ = ["AVAILABLE", "MORE", "QUIET", "recv", "send"]

AVAILABLE = sys.platform != "win32" and sys.implementation.name == "cpython"
# A connection that is gone is an error, not a signal; MORE: the body follows at once, do not send the head alone.
QUIET: int = getattr(socket, "MSG_NOSIGNAL", 0)
MORE: int = QUIET | getattr(socket, "MSG_MORE", 0)


def _prototype(name: str) -> Callable[[int, Any, int, int], int]:
    function = getattr(ctypes.PyDLL(None, use_errno=True), name)
    function.restype = ctypes.c_ssize_t
    function.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    found: Callable[[int, Any, int, int], int] = function
    return found


def _missing(*_: object) -> int:
    raise NotImplementedError("no C library to call on this platform")


# (descriptor, address or bytes, size, flags) -> bytes moved, or -1 with ctypes.get_errno()
recv = _prototype("recv") if AVAILABLE else _missing
send = _prototype("send") if AVAILABLE else _missing
