"""One accepted connection: bytes in, requests out to the exchange, answers back in order. Never blocks."""

from __future__ import annotations

import enum
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Protocol

from tosnative.testing import transport
from tosnative.testing.exchange import Exchange
from tosnative.testing.http import CONTINUE, BadRequest, Head
from tosnative.testing.incoming import ChunkedBody, IncomingBody, SizedBody, Unread
from tosnative.testing.loop import Loop
from tosnative.testing.messages import ServerOptions
from tosnative.testing.outgoing import Outgoing, Pace
from tosnative.testing.rendering import Answer, Ending
from tosnative.testing.watch import NOTHING, READ, WRITE, Watch

AHEAD_BYTES = 64 << 10  # of later requests that are taken in while one is being answered
DRAIN_S = 2.0
RESET_PATIENCE_S = 1.0

_log = logging.getLogger("tosnative.testing")


class Host(Protocol):
    """What a connection needs of its server. `scratch` is where all connections receive, one at a time."""

    loop: Loop
    options: ServerOptions
    ssl_context: ssl.SSLContext | None
    scratch: memoryview

    def begin(self, connection: Connection, head: Head) -> Exchange: ...

    def record_tunnel(self, connection: Connection, head: Head) -> None: ...

    def refusal(self, error: BadRequest) -> Answer: ...

    def forget(self, connection: Connection) -> None: ...


class State(enum.IntEnum):
    """What a connection waits for."""

    NEGOTIATION = 0  # the first byte, TLS or not, and then its handshake
    HEAD = 1
    BODY = 2
    BUSY = 3  # the request is complete, its answer has not begun
    SENDING = 4
    DRAIN = 5  # the answer is sent, its last bytes must not be lost to a RST: wait for the peer to close
    CLOSED = 6


class Connection:
    """A state machine over one socket. All entry points are called in the loop's thread and end in `_settle`."""

    def __init__(self, server: Host, sock: socket.socket, number: int, peer: tuple[str, int]) -> None:
        self.server = server
        self.number = number
        self.peer = peer
        self.proxied = False
        self.requests = 0  # heads that were complete
        self.sock = sock
        self.transport: transport.Transport = transport.PlainTransport(sock)
        self.state = State.HEAD
        self._negotiation: transport.Negotiation | None = None
        self._expect_tls()
        self.exchange: Exchange | None = None
        self._watch = Watch(server.loop, sock, self._on_ready)
        self._unread = Unread(server.options.max_head_bytes)
        self._eof = False
        self._incoming: IncomingBody | None = None
        self._incoming_pace: Pace | None = None
        self._outgoing: Outgoing | None = None
        self._ending = Ending.KEEP
        self._keep_alive = True

    def open(self) -> None:
        """Start to listen to the peer."""
        self._settle()

    def _on_ready(self, mask: int) -> None:
        if self.state is State.SENDING:
            self._guarded(self._push)
        elif self.state is State.NEGOTIATION:
            self._guarded(self._negotiate)
        elif self.state is not State.CLOSED:
            self._guarded(self._read_all)

    def _guarded(self, call: Callable[[], None]) -> None:
        """Do something; whatever goes wrong ends this connection and no other."""
        try:
            call()
            self._settle()
        except OSError:
            self.close()
        except Exception:  # noqa: BLE001 - a fault of the server itself is logged and costs one connection
            _log.exception("connection %d of the local server failed", self.number)
            self.close()

    def _read_all(self) -> None:
        self._read()
        # What TLS has decrypted already is not reported by any selector.
        while self.state is State.BODY and not self._watch.sleeping and self.transport.pending():
            self._read()

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call later unless the connection is closed by then. A connection waits for one thing at a time."""
        self._watch.after(delay_s, lambda: self._guarded(call))

    def close(self) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        self._watch.close()
        self._outgoing = self._incoming = self.exchange = None
        self.sock.close()
        self.server.forget(self)

    def reset(self) -> None:
        """Close with a RST, as a crash or a firewall would."""
        if self.state is not State.CLOSED:
            transport.reset_on_close(self.sock)
            self.close()

    def hang(self) -> None:
        """Never answer: keep the connection until the peer gives up."""
        if self.exchange is not None:
            self.exchange.hanging = True
        if self._eof:
            self.close()

    def _settle(self) -> None:
        """Serve what is already here, then wait for the right thing."""
        if self._unread.data:
            self._advance()
        while self.state is State.HEAD and self.transport.pending():
            self._read()
            self._advance()
        state, sleeping = self.state, self._watch.sleeping
        if state is State.HEAD or state is State.DRAIN or (state is State.BODY and not sleeping):
            self._watch.wait_for(READ)
        elif state is State.SENDING and not sleeping:
            self._watch.wait_for(WRITE)
        elif state is State.BUSY and not self._eof and len(self._unread.data) < AHEAD_BYTES:
            self._watch.wait_for(READ)  # to notice when the peer goes away
        elif state is State.NEGOTIATION and self._negotiation is not None:
            self._watch.wait_for(WRITE if self._negotiation.wants_write else READ)
        elif state is not State.CLOSED:
            self._watch.wait_for(NOTHING)

    def _negotiate(self) -> None:
        assert self._negotiation is not None
        try:
            found = self._negotiation.step()
        finally:
            self.sock = self._negotiation.sock
            self._watch.moved_to(self.sock)
        if found is not None:
            self.transport, self._negotiation = found, None
            self.state = State.HEAD
            self._read_all()

    def _read(self) -> None:
        if self._incoming is not None:
            return self._read_body(self._incoming)
        n, data = self._receive()
        if n == 0:
            return self._on_eof()
        if n is not None and self.state is not State.DRAIN:
            self._unread.add(data)
        return None

    def _receive(self) -> tuple[int | None, bytes]:
        n = self.transport.recv_into(self.server.scratch)
        return n, bytes(self.server.scratch[:n]) if n else b""

    def _on_eof(self) -> None:
        # A client may close its sending side and still want its answer; one that never comes is not waited for.
        self._eof = True
        if self.state is not State.BUSY or self.exchange is None or self.exchange.hanging:
            self.close()

    def _advance(self) -> None:
        """Take up the requests that are here, until one keeps the connection busy."""
        try:
            while self.state is State.HEAD and (head := self._unread.take_head()) is not None:
                self._begin(head)
        except BadRequest as error:
            self._refuse(error)

    def _begin(self, head: Head) -> None:
        if head.length is not None and head.length > self.server.options.max_body_bytes:
            raise BadRequest("request body too large", 413)
        if head.method == "CONNECT":
            return self._tunnel(head)
        self._keep_alive = head.keep_alive
        exchange = self.exchange = self.server.begin(self, head)
        self.requests += 1
        if head.length == 0:
            self.state = State.BUSY
            return exchange.run(b"")
        self.state = State.BODY
        self._incoming_pace = Pace(exchange.rate) if exchange.rate is not None else None
        if head.expect_continue and not self._unread.data:
            self.transport.send([CONTINUE])
        limit = self.server.options.max_body_bytes
        incoming: IncomingBody = ChunkedBody(limit) if head.length is None else SizedBody(head.length)
        self._incoming = incoming
        return self._take(incoming, self._unread.take_all())

    def _read_body(self, incoming: IncomingBody) -> None:
        pace = self._incoming_pace
        allowed = pace.allowance() if pace is not None else 1 << 62
        if pace is not None and allowed <= 0:
            return self.after(pace.pause_s, self._read_all)
        room = incoming.wants(allowed)
        n, data = self._receive() if room is None else (self.transport.recv_into(room), b"")
        if n == 0:
            return self.close()
        if room is None:
            return self._take(incoming, data)
        incoming.filled(n or 0)
        return self._count(incoming, n or 0)

    def _take(self, incoming: IncomingBody, data: bytes) -> None:
        try:
            used = incoming.feed(data)
        except BadRequest as error:
            return self._refuse(error)
        self._unread.add(data[used:])
        return self._count(incoming, used)

    def _count(self, incoming: IncomingBody, n: int) -> None:
        """So many more bytes of the body have come: it may be complete now."""
        assert self.exchange is not None
        if self._incoming_pace is not None:
            self._incoming_pace.count(n)
        if self.exchange.breaks_after(incoming.received):
            return self.reset()
        return self._complete(incoming) if incoming.done else None

    def _complete(self, incoming: IncomingBody) -> None:
        assert self.exchange is not None
        debt_s = self._incoming_pace.debt_s if self._incoming_pace is not None else 0.0
        if debt_s > 0:  # what came together with the head was not slowed down
            return self.after(debt_s, lambda: self._complete(incoming))
        self._incoming = None
        self.state = State.BUSY
        return self.exchange.run(incoming.body)

    def _tunnel(self, head: Head) -> None:
        """Be the proxy, and be whatever host the client wants to reach through it."""
        self.server.record_tunnel(self, head)
        if self._unread.data:
            raise BadRequest("bytes before the tunnel was open")
        self.proxied = True
        self.transport.send([b"HTTP/1.1 200 Connection established\r\n\r\n"])
        if isinstance(self.transport, transport.PlainTransport):
            self._expect_tls()

    def _expect_tls(self) -> None:
        """Let the peer choose between TLS and plain, where there is a certificate."""
        if self.server.ssl_context is not None:
            self.state = State.NEGOTIATION
            self._negotiation = transport.Negotiation(self.sock, self.server.ssl_context)

    def _refuse(self, error: BadRequest) -> None:
        self._unread.take_all()
        self._incoming = None
        self.send(self.server.refusal(error), None, keep_alive=False)

    def send(self, answer: Answer, rate: float | None, keep_alive: bool) -> None:
        """Send the answer to the request that the connection is busy with."""
        self._keep_alive = keep_alive
        self._ending = answer.ending
        self._outgoing = Outgoing(answer.buffers, rate)
        self.state = State.SENDING
        self._push()

    def _push(self) -> None:
        outgoing = self._outgoing
        assert outgoing is not None
        progress = outgoing.push(self.transport)
        if progress == "done":
            self._finish()
        elif progress == "paced":
            self.after(outgoing.pause_s, self._push)

    def _finish(self) -> None:
        self._outgoing = None
        self.state = State.BUSY
        if self._ending is Ending.RESET:
            return self._reset_when_delivered(self.server.loop.now() + RESET_PATIENCE_S)
        if self._ending is Ending.STALL:
            return self.hang()
        self.exchange = None
        if self._ending is not Ending.KEEP or not self._keep_alive:
            return self._close_gently()
        self.state = State.HEAD
        return self._on_eof() if self._eof else None

    def _reset_when_delivered(self, deadline: float) -> None:
        """A RST drops what the peer has not acknowledged: wait until it has."""
        if transport.undelivered_bytes(self.sock) and self.server.loop.now() < deadline:
            return self.after(0.001, lambda: self._reset_when_delivered(deadline))
        return self.reset()

    def _close_gently(self) -> None:
        if self._eof:
            return self.close()
        if isinstance(self.transport, transport.TlsTransport):
            self.transport.say_goodbye()
        self.sock.shutdown(socket.SHUT_WR)
        self.state = State.DRAIN
        return self.after(DRAIN_S, self.close)
