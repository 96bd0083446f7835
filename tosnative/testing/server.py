"""The evented server: a listener, its connections and the one loop they live in."""

from __future__ import annotations

import collections
import errno
import logging
import os
import selectors
import socket
import ssl
import threading
import time
import weakref
from collections.abc import Callable

from tosnative.testing.arrivals import RequestRecord
from tosnative.testing.auth import Verifier
from tosnative.testing.connection import Connection
from tosnative.testing.errors import ServiceError
from tosnative.testing.exchange import Exchange
from tosnative.testing.faults import Faults
from tosnative.testing.http import BadRequest, Head
from tosnative.testing.loop import Loop
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.peers import processes_of
from tosnative.testing.rendering import Answer, Renderer, error_response
from tosnative.testing.routing import Router

Handler = Callable[[Request], Response]

BACKLOG = 1024
REST_S = 0.05
SCRATCH_BYTES = 64 << 10
RECORD_LIMIT = 1_000_000

_log = logging.getLogger("tosnative.testing")


class Server:
    """Serves what `handler` answers on one TCP port, plain and, given an `ssl_context`, TLS on the same port.

    `is_public` says whether a request may come unsigned. `start` serves in a thread of the server's own,
    `serve_forever` in the caller's, until `stop`. After `stop` the port stays reserved until `close`, so that `start`
    comes back on it. `lock` is held while the handler runs: whoever touches what the handler touches, from another
    thread, holds it too. A fork pauses the server; in the child its descriptors are closed and it is `dead`.
    """

    def __init__(
        self,
        handler: Handler,
        options: ServerOptions,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        ssl_context: ssl.SSLContext | None = None,
        seed: int = 0,
        record: bool = True,
        identify: bool = False,
        is_public: Callable[[Request], bool] = lambda request: False,
    ) -> None:
        self._family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._reserved = self._bound(host, port)
        self.address: tuple[str, int] = self._reserved.getsockname()[:2]
        self.handler = handler
        self.options = options
        self.ssl_context = ssl_context
        self.faults = Faults(seed)
        self.records: collections.deque[RequestRecord] = collections.deque(maxlen=RECORD_LIMIT if record else 0)
        self.lock = threading.RLock()
        self.loop = Loop()
        self.renderer = Renderer()
        self.router = Router(options.domains)
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.connections: set[Connection] = set()
        self.dead = False
        self._identify = identify
        self._verifier = Verifier(options, is_public=is_public)
        self._accepted = 0
        self._thread: threading.Thread | None = None
        self._serves_in_caller = False
        self._listener: socket.socket | None = None
        self._listening = False
        _servers.add(self)

    # -- life

    def listen(self) -> None:
        """Open the port."""
        if self._listener is None:
            self._listener = self._bound(*self.address)
            self._listener.listen(BACKLOG)
            self._listener.setblocking(False)
            self._watch_listener(self._listener)

    def start(self) -> None:
        """Serve in a thread of the server's own, or go on in the one that runs `serve_forever`."""
        self.listen()
        if not self._serves_in_caller:
            self._resume()

    def serve_forever(self) -> None:
        """Serve in this thread until `loop.stop` is called."""
        self._serves_in_caller = True
        self.listen()
        self.loop.run()

    def stop(self) -> None:
        """Close the port and all connections, at once. What they were busy with is lost."""
        self._pause()
        if self._listener is not None:
            if self._listening:
                self.loop.selector.unregister(self._listener)
                self._listening = False
            self._listener.close()
            self._listener = None
        for connection in list(self.connections):
            connection.close()

    def close(self) -> None:
        """Stop for good."""
        if self.dead:
            return
        self.stop()
        self.dead = True
        _servers.discard(self)
        self._reserved.close()
        self.loop.close()

    def _bound(self, host: str, port: int) -> socket.socket:
        sock = socket.socket(self._family, socket.SOCK_STREAM)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((host, port))
        except OSError:
            sock.close()
            raise
        return sock

    def _pause(self) -> bool:
        """Have the thread end and everything else stay as it is; whether there was one to end."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return False
        self.loop.stop()
        thread.join()
        self._thread = None
        return True

    def _resume(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self.loop.run, name="tosnative-local-tos", daemon=True)
            self._thread.start()

    def _abandon(self) -> None:
        """In a forked child: let go of the parent's descriptors without a word to the sockets or the selector.

        The selector's kernel object is shared with the parent, so nothing may be unregistered from it.
        """
        self.dead = True
        self.lock = threading.RLock()
        for connection in self.connections:
            connection.sock.close()
        self.connections.clear()
        if self._listener is not None:
            self._listener.close()
        self._reserved.close()
        self.loop.close()

    # -- connections

    def _on_accept(self, _mask: int) -> None:
        if self._listener is None:
            return  # another event of this round has closed the port
        for _ in range(64):
            try:
                sock, peer = self._listener.accept()
                sock.setblocking(False)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in (errno.EMFILE, errno.ENFILE):
                    return self._rest(self._listener)
                continue  # it went away while it waited
            self._accepted += 1
            connection = Connection(self, sock, self._accepted, peer[:2])
            self.connections.add(connection)
            action = self.faults.for_connection() if self.faults.active else None
            if action is not None and action.reset == "accept":
                connection.reset()
            elif action is not None and action.accept_delay_s is not None:
                connection.after(action.accept_delay_s, connection.open)
            else:
                connection.open()

    def _rest(self, listener: socket.socket) -> None:
        """There are no descriptors left: the selector would report the next connection for ever."""
        self.loop.selector.unregister(listener)
        self._listening = False
        self.loop.call_later(REST_S, lambda: self._listen_again(listener))

    def _listen_again(self, listener: socket.socket) -> None:
        if listener is self._listener and not self._listening:
            self._watch_listener(listener)

    def _watch_listener(self, listener: socket.socket) -> None:
        self._listening = True
        self.loop.selector.register(listener, selectors.EVENT_READ, self._on_accept)

    def forget(self, connection: Connection) -> None:
        self.connections.discard(connection)

    # -- requests

    def begin(self, connection: Connection, head: Head) -> Exchange:
        """A request's head is complete: route it, record it, ask the script about it.

        Raises:
            BadRequest: it is for nowhere.
        """
        headers = head.headers
        target = head.target
        route = self.router.route(target, headers.get("host", ""))
        request = Request(
            head.method,
            route.bucket,
            route.key,
            route.query,
            headers,
            b"",
            time.monotonic(),
            connection.number,
            target,
            route.path_style,
        )
        record = self._record(connection, request)
        action = self.faults.for_request(request, connection.requests > 0) if self.faults.active else None
        return Exchange(self, connection, request, record, action, head.keep_alive)

    def _record(self, connection: Connection, request: Request) -> RequestRecord:
        record = RequestRecord(
            request.method,
            request.bucket,
            request.key,
            request.query,
            request.headers,
            request.headers.get("range"),
            connection.number,
            connection.peer,
            request.arrived,
            connection.proxied or not request.target.startswith("/"),
            processes_of(connection.sock) if self._identify else (),
        )
        self.records.append(record)
        return record

    def record_tunnel(self, connection: Connection, head: Head) -> None:
        """A client asked to be connected through: remembered as a CONNECT request with the target as its key."""
        request = Request("CONNECT", None, head.target, {}, head.headers, b"", time.monotonic(), connection.number)
        self._record(connection, request).status = 200

    def respond(self, request: Request, request_id: str) -> Response:
        """What the service says, refusals included."""
        try:
            with self.lock:
                if self.options.check_signatures:
                    self._verifier.verify(request)
                return self.handler(request)
        except ServiceError as error:
            return error_response(error, request, request_id)
        except Exception:  # noqa: BLE001 - a fault of the server itself must reach its log and a 500, not end the loop
            _log.exception("%s %s/%s failed in the local server", request.method, request.bucket, request.key)
            failure = ServiceError(500, "InternalError", "The local server has failed; its log says how.")
            return error_response(failure, request, request_id)

    def refusal(self, error: BadRequest) -> Answer:
        """The answer to bytes that are no request."""
        request = Request("GET", None, None, {}, {})
        request_id = self.renderer.request_id()
        refused = error_response(ServiceError(error.status, "InvalidRequest", str(error)), request, request_id)
        return self.renderer.render(request, refused, request_id, keep_alive=False)


_servers: weakref.WeakSet[Server] = weakref.WeakSet()
_paused: list[Server] = []
_forking = threading.RLock()  # held from before a fork until after it, so that two forks cannot interleave


def _before_fork() -> None:
    _forking.acquire()
    _paused.extend(server for server in list(_servers) if server._pause())


def _after_fork_in_parent() -> None:
    while _paused:
        _paused.pop()._resume()
    _forking.release()


def _after_fork_in_child() -> None:
    global _forking
    _forking = threading.RLock()
    _paused.clear()
    for server in list(_servers):
        server._abandon()
    _servers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
