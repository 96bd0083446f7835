"""One accepted connection: bytes in, requests out to the exchange, answers back in order. Never blocks."""

from __future__ import annotations

import enum
import selectors
import socket
import ssl
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from tosnative.testing import transport
from tosnative.testing.http import CONTINUE, HEAD_END, BadRequest, ChunkedDecoder, Head, parse_head
from tosnative.testing.messages import Buffer
from tosnative.testing.rendering import Answer, Ending

if TYPE_CHECKING:
    from tosnative.testing.exchange import Exchange
    from tosnative.testing.loop import Timer
    from tosnative.testing.server import Server

READ, WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
PACE_BYTES = 16 << 10  # a paced connection moves about this much, or a fiftieth of a second's worth, at a time
IOV_MAX = 64
DRAIN_S = 2.0
RESET_PATIENCE_S = 1.0


class State(enum.IntEnum):
    """What a connection waits for. It reads requests in the first three, and is busy with one in the next two."""

    SNIFF = 0  # the first byte: TLS or not
    HANDSHAKE = 1
    HEAD = 2
    BODY = 3
    BUSY = 4  # the request is complete, its answer has not begun
    SENDING = 5
    DRAIN = 6  # the answer is sent, its last bytes must not be lost to a RST: wait for the peer to close
    CLOSED = 7


class Connection:
    """A state machine over one socket. All entry points are called in the loop's thread and end in `_settle`."""

    def __init__(self, server: Server, sock: socket.socket, number: int, peer: tuple[str, int]) -> None:
        self.server = server
        self.number = number
        self.peer = peer
        self.proxied = False
        self.requests = 0  # heads that were complete
        self.transport: transport.Transport = transport.PlainTransport(sock)
        self.state = State.SNIFF if server.ssl_context is not None else State.HEAD
        self.exchange: Exchange | None = None
        self._mask = 0
        self._timer: Timer | None = None
        self._input = b""  # bytes that came and were not consumed
        self._eof = False
        self._body: bytearray | None = None
        self._view: memoryview | None = None
        self._chunks: ChunkedDecoder | None = None
        self._got = 0
        self._out: list[Buffer] = []
        self._sent = 0
        self._ending = Ending.KEEP
        self._keep_alive = True
        self._rate: float | None = None
        self._paced_since = 0.0
        self._handshake_mask = READ

    # -- entry points

    def open(self) -> None:
        """Start to listen to the peer."""
        self._timer = None
        self._settle()

    def on_event(self, mask: int) -> None:
        if self.state is State.CLOSED:
            return
        try:
            if self.state is State.SENDING:
                self._flush()
            elif self.state <= State.HANDSHAKE:
                self._shake_hands()
            else:
                self._read()
                while self.state is not State.CLOSED and self.transport.pending():
                    self._read()
        except OSError:
            self.close()
        self._settle()

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call later unless the connection is closed by then. A connection waits for one thing at a time."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.server.loop.call_later(delay_s, lambda: self._on_timer(call))

    def _on_timer(self, call: Callable[[], None]) -> None:
        self._timer = None
        if self.state is State.CLOSED:
            return
        try:
            call()
        except OSError:
            self.close()
        self._settle()

    def close(self) -> None:
        if self.state is State.CLOSED:
            return
        self.state = State.CLOSED
        if self._timer is not None:
            self._timer.cancel()
        if self._mask:
            self.server.loop.selector.unregister(self.transport.sock)
            self._mask = 0
        self._out = []
        self._view = self._body = None
        self.exchange = None
        self.transport.sock.close()
        self.server.forget(self)

    def reset(self) -> None:
        """Close with a RST, as a crash or a firewall would."""
        if self.state is not State.CLOSED:
            transport.reset_on_close(self.transport.sock)
            self.close()

    def hang(self) -> None:
        """Never answer: keep the connection until the peer gives up."""
        if self._eof or self.exchange is None:
            return self.close()
        self.exchange.hanging = True
        return None

    def _settle(self) -> None:
        """Serve what is already here, then wait for the right thing."""
        if self.state is State.HEAD and self._input:
            self._advance()
        state = self.state
        if state is State.HEAD or state is State.DRAIN:
            wanted = READ
        elif state is State.BODY or (state is State.BUSY and not self._eof and len(self._input) < PACE_BYTES):
            wanted = 0 if state is State.BODY and self._timer is not None else READ
        elif state is State.SENDING:
            wanted = 0 if self._timer is not None else WRITE
        elif state is State.HANDSHAKE or state is State.SNIFF:
            wanted = self._handshake_mask
        else:
            wanted = 0
        if wanted != self._mask:
            self._listen(wanted)

    def _listen(self, wanted: int) -> None:
        selector, sock = self.server.loop.selector, self.transport.sock
        if self.state is not State.CLOSED:
            if not self._mask:
                selector.register(sock, wanted, self.on_event)
            elif not wanted:
                selector.unregister(sock)
            else:
                selector.modify(sock, wanted, self.on_event)
            self._mask = wanted

    # -- TLS

    def _shake_hands(self) -> None:
        if self.state is State.SNIFF:
            tls = transport.speaks_tls(self.transport.sock)
            if tls is None:
                return
            if not tls:
                self.state = State.HEAD
                return self._read()
            self._start_tls()
        assert isinstance(self.transport, transport.TlsTransport)
        waits_for = self.transport.handshake()
        self._handshake_mask = WRITE if waits_for == "write" else READ
        if waits_for == "done":
            self.state = State.HEAD
        return None

    def _start_tls(self) -> None:
        context = self.server.ssl_context
        assert context is not None
        plain = self.transport.sock
        if self._mask:
            self.server.loop.selector.unregister(plain)
            self._mask = 0
        wrapped: ssl.SSLSocket = context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)
        self.transport = transport.TlsTransport(wrapped)
        self.state = State.HANDSHAKE

    # -- reading

    def _read(self) -> None:
        if self._view is not None:
            return self._read_body()
        scratch = self.server.scratch
        n = self.transport.recv_into(scratch)
        if n is None:
            return None
        if n == 0:
            return self._on_eof()
        if self.state is State.DRAIN:
            return None
        data = bytes(scratch[:n])
        if self._chunks is not None:
            return self._decode(data)
        self._input = self._input + data if self._input else data
        return None

    def _on_eof(self) -> None:
        # A client may close its sending side and still want its answer; one that never comes is not waited for.
        self._eof = True
        if self.state is not State.BUSY or self.exchange is None or self.exchange.hanging:
            self.close()

    def _advance(self) -> None:
        while self.state is State.HEAD and self._input:
            if self._input.startswith(b"\r\n"):
                self._input = self._input[2:]
                continue
            end = self._input.find(HEAD_END)
            try:
                if max(end, len(self._input) if end < 0 else 0) > self.server.options.max_head_bytes:
                    raise BadRequest("request head too large", 431)
                if end < 0:
                    return
                head = parse_head(self._input[:end])
                self._input = self._input[end + 4 :]
                self._begin(head)
            except BadRequest as error:
                self._refuse(error)
            except OSError:
                self.close()

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
        self._rate, self._paced_since, self._got = exchange.rate, time.monotonic(), 0
        if head.expect_continue and not self._input:
            self.transport.send([CONTINUE])
        if head.length is None:
            self._chunks = ChunkedDecoder(self.server.options.max_body_bytes)
            waiting, self._input = self._input, b""
            return self._decode(waiting)
        first, self._input = self._input[: head.length], self._input[head.length :]
        self._body = bytearray(head.length)
        self._body[: len(first)] = first
        self._view = memoryview(self._body)
        return self._count_body(len(first))

    def _read_body(self) -> None:
        assert self._view is not None
        stop = len(self._view)
        if self._rate is not None:
            allowed = self._allowance(self._got)
            if allowed <= 0:
                return self._pace()
            stop = min(stop, self._got + allowed)
        n = self.transport.recv_into(self._view[self._got : stop])
        if n == 0:
            return self.close()
        return self._count_body(n or 0)

    def _count_body(self, n: int) -> None:
        assert self._view is not None
        assert self._body is not None
        assert self.exchange is not None
        self._got += n
        if self.exchange.breaks_after(self._got):
            return self.reset()
        if self._got == len(self._view):
            body, self._body, self._view = self._body, None, None
            self.state = State.BUSY
            self.exchange.run(body)
        return None

    def _decode(self, data: bytes) -> None:
        assert self._chunks is not None
        assert self.exchange is not None
        try:
            used = self._chunks.feed(data)
        except BadRequest as error:
            self._chunks = None
            return self._refuse(error)
        if self.exchange.breaks_after(len(self._chunks.body)):
            return self.reset()
        if self._chunks.done:
            body, self._chunks = self._chunks.body, None
            self._input = data[used:]
            self.state = State.BUSY
            self.exchange.run(body)
        return None

    def _tunnel(self, head: Head) -> None:
        """Be the proxy, and be whatever host the client wants to reach through it."""
        self.server.record_tunnel(self, head)
        if self._input:
            raise BadRequest("bytes before the tunnel was open")
        self.proxied = True
        self.transport.send([b"HTTP/1.1 200 Connection established\r\n\r\n"])
        if self.server.ssl_context is not None and isinstance(self.transport, transport.PlainTransport):
            self.state, self._handshake_mask = State.SNIFF, READ

    def _refuse(self, error: BadRequest) -> None:
        self.state = State.BUSY
        self._input = b""
        self.send(self.server.refusal(error), None, keep_alive=False)

    # -- sending

    def send(self, answer: Answer, rate: float | None, keep_alive: bool | None = None) -> None:
        """Send an answer to the request that the connection is busy with."""
        if keep_alive is not None:
            self._keep_alive = keep_alive
        self.state = State.SENDING
        self._out, self._ending, self._rate = answer.buffers, answer.ending, rate
        self._sent, self._paced_since = 0, time.monotonic()
        self._flush()

    def _flush(self) -> None:
        out = self._out
        while out:
            batch = out[:IOV_MAX] if len(out) > IOV_MAX else out
            if self._rate is not None:
                allowed = self._allowance(self._sent)
                if allowed <= 0:
                    return self._pace()
                batch = [memoryview(out[0])[:allowed]]
            n = self.transport.send(batch)
            if n is None:
                return None
            self._sent += n
            if not self._drop(n) and self._rate is None:
                return None  # the kernel took a part: it is full
        return self._finish()

    def _drop(self, n: int) -> bool:
        """Forget n sent bytes; whether they ended with a buffer's end."""
        out, done = self._out, 0
        while done < len(out) and n >= len(out[done]):
            n -= len(out[done])
            done += 1
        del out[:done]
        if n:
            out[0] = memoryview(out[0])[n:]
        return not n

    def _finish(self) -> None:
        if self._ending is Ending.RESET:
            self.state = State.BUSY
            return self._reset_when_delivered(time.monotonic() + RESET_PATIENCE_S)
        if self._ending is Ending.STALL:
            self.state = State.BUSY
            return self.hang()
        self.exchange = None
        if self._ending is Ending.KEEP and self._keep_alive:
            self.state = State.HEAD
            if self._eof:
                self.close()
            return None
        return self._close_gently()

    def _reset_when_delivered(self, deadline: float) -> None:
        """A RST drops what the peer has not acknowledged: wait until it has."""
        if transport.undelivered_bytes(self.transport.sock) and time.monotonic() < deadline:
            return self.after(0.001, lambda: self._reset_when_delivered(deadline))
        return self.reset()

    def _close_gently(self) -> None:
        try:
            if isinstance(self.transport, transport.TlsTransport):
                self.transport.say_goodbye()
            self.transport.sock.shutdown(socket.SHUT_WR)
        except OSError:
            return self.close()
        if self._eof:
            return self.close()
        self.state, self._input = State.DRAIN, b""
        return self.after(DRAIN_S, self.close)

    # -- pacing

    def _allowance(self, done: int) -> int:
        assert self._rate is not None
        earned = int((time.monotonic() - self._paced_since) * self._rate)
        return earned - done

    def _pace(self) -> None:
        assert self._rate is not None
        self.after(max(0.001, min(PACE_BYTES / self._rate, 0.02)), self._resume)

    def _resume(self) -> None:
        if self.state is State.SENDING:
            self._flush()
        elif self._view is not None:
            self._read_body()
