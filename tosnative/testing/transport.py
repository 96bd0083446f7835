"""A non-blocking socket, plain or TLS: every call moves what it can and returns None where it would have to wait."""

from __future__ import annotations

import fcntl
import socket
import ssl
import struct
import sys
import termios
from collections.abc import Sequence
from typing import Protocol

from tosnative.testing.messages import Buffer

_LINGER_ZERO = struct.pack("ii", 1, 0)


class Transport(Protocol):
    """`recv_into` returns 0 at the end of the stream. OSError means that the connection is lost."""

    sock: socket.socket
    takes_all: bool
    """Whether a send that takes less than it was given has found the socket full."""

    def recv_into(self, buffer: bytearray | memoryview) -> int | None: ...

    def send(self, buffers: Sequence[Buffer]) -> int | None: ...

    def pending(self) -> bool:
        """Whether bytes wait that no selector reports."""
        ...


class PlainTransport:
    """TCP."""

    __slots__ = ("sock", "takes_all")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.takes_all = True

    def recv_into(self, buffer: bytearray | memoryview) -> int | None:
        try:
            return self.sock.recv_into(buffer)
        except BlockingIOError:
            return None

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        try:
            return self.sock.sendmsg(buffers)
        except BlockingIOError:
            return None

    def pending(self) -> bool:
        return False


class TlsTransport:
    """TLS. A renegotiation never happens here (TLS 1.2 clients may ask for one and are cut off)."""

    __slots__ = ("_tls", "sock", "takes_all")

    def __init__(self, sock: ssl.SSLSocket) -> None:
        self.sock: socket.socket = sock
        self._tls = sock
        self.takes_all = False

    def recv_into(self, buffer: bytearray | memoryview) -> int | None:
        try:
            return self._tls.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None
        except (ssl.SSLEOFError, ssl.SSLZeroReturnError):
            return 0

    def send(self, buffers: Sequence[Buffer]) -> int | None:
        try:
            return self._tls.send(buffers[0])
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return None

    def pending(self) -> bool:
        return self._tls.pending() > 0

    def say_goodbye(self) -> None:
        """Tell the peer that nothing more comes, without waiting for its own goodbye."""
        try:
            self._tls.unwrap()
        except (OSError, ValueError):
            pass  # it wants to wait, or there is no one to tell any more


def reset_on_close(sock: socket.socket) -> None:
    """Make the coming close() send a RST and drop what was not sent."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _LINGER_ZERO)


def undelivered_bytes(sock: socket.socket) -> int:
    """How much of what was sent the peer has not acknowledged; 0 where the system does not say."""
    if sys.platform != "linux":
        return 0
    answer = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(answer, sys.byteorder)


class Negotiation:
    """Finds out whether the peer wants TLS, and shakes hands if so. `wants_write`: it waits to be able to send."""

    def __init__(self, sock: socket.socket, context: ssl.SSLContext) -> None:
        self.wants_write = False
        self._context = context
        self._plain = sock
        self._tls: ssl.SSLSocket | None = None

    def step(self) -> Transport | None:
        """Go as far as it goes without waiting; the transport once it is known.

        Raises:
            OSError: the handshake failed.
        """
        if self._tls is None:
            try:
                first = self._plain.recv(1, socket.MSG_PEEK)
            except BlockingIOError:
                return None
            if first != b"\x16":
                return PlainTransport(self._plain)
            self._tls = self._context.wrap_socket(self._plain, server_side=True, do_handshake_on_connect=False)
        try:
            self._tls.do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as want:
            self.wants_write = isinstance(want, ssl.SSLWantWriteError)
            return None
        return TlsTransport(self._tls)

    @property
    def sock(self) -> socket.socket:
        """The socket as it is now; wrapping takes the descriptor away from the one before."""
        return self._tls or self._plain
