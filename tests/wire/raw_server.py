"""A server that answers each connection with given bytes, whatever is asked, for answers that no decent server sends."""

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import TypeAlias

# What to do with one accepted connection.
Script: TypeAlias = Callable[[socket.socket], None]


def read_request(connection: socket.socket) -> bytes:
    """The head of a request, as far as it came."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = connection.recv(65536)
        if not piece:
            break
        data += piece
    return data


def answer(*pieces: bytes) -> Script:
    """Read one request, send these bytes, close."""

    def script(connection: socket.socket) -> None:
        if read_request(connection):
            for piece in pieces:
                connection.sendall(piece)

    return script


def whole(body: bytes, headers: bytes = b"") -> bytes:
    return b'HTTP/1.1 200 OK\r\nContent-Length: %d\r\nETag: "e"\r\n%s\r\n%s' % (len(body), headers, body)


class RawServer:
    """`scripts` are used in turn, the last one for every further connection."""

    def __init__(self, scripts: list[Script]) -> None:
        self._scripts = scripts
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.accepted = 0
        self._open: list[socket.socket] = []
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            script = self._scripts[min(self.accepted, len(self._scripts) - 1)]
            self.accepted += 1
            self._open.append(connection)
            threading.Thread(target=self._serve, args=(script, connection), daemon=True).start()

    def _serve(self, script: Script, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            script(connection)

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()
        for connection in self._open:
            connection.close()


@contextlib.contextmanager
def serving(*scripts: Script) -> Iterator[RawServer]:
    server = RawServer(list(scripts))
    try:
        yield server
    finally:
        server.close()
