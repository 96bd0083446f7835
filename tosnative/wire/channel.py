"""One connection that the engine drives: sends a request, receives its answer, tells what went wrong. Never blocks."""

from __future__ import annotations

import os
import socket
import ssl
from typing import Any

from tosnative.metrics import METRICS
from tosnative.wire.http1 import MAX_HEAD, Chunked, Head, HttpError, UntilEnd, parse_head
from tosnative.wire.retry import Failure, Kind
from tosnative.wire.scratch import Scratch
from tosnative.wire.transfer import Transfer

__all__ = ["SEND_PIECE", "Channel"]

# The most bytes handed to one send, so that a large part does not keep the GIL, or the loop, for long.
SEND_PIECE = 512 * 1024


class Channel:
    """A connected non-blocking socket. One transfer at a time; all methods belong to the engine's thread."""

    __slots__ = (
        "_address",
        "_chunked",
        "_lost",
        "_out",
        "_out_at",
        "_partial",
        "_piece_at",
        "_pieces",
        "_pin",
        "_view",
        "body_at",
        "deadline",
        "got",
        "head",
        "mark",
        "reusable",
        "sent_at",
        "since",
        "size",
        "sock",
        "transfer",
        "used",
        "warned",
        "writing",
    )

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.transfer: Transfer | None = None
        self.used = 0  # answers received
        self.since = 0.0  # idle since
        self.writing = False  # the selector also watches for writability
        self.reusable = True
        self._pin: Any = None
        self._clear()

    def _clear(self) -> None:
        self._out = b""
        self._out_at = self._piece_at = self.body_at = 0
        self._pieces: list[memoryview] = []  # of the body, what is still to be sent; the next one last
        self.head: Head | None = None
        self._partial = b""
        self._chunked: Chunked | None = None
        self._lost: Failure | None = None  # sending failed; an answer may have come before
        self._view: memoryview | None = None
        self._address = 0
        self._pin = None
        self.size = self.got = 0
        self.mark = -1  # these three are `upkeep`'s: what it saw, until when, and whether it spoke
        self.warned = False
        self.sent_at = 0.0
        self.deadline = 0.0

    # -- raw input and output, the part that the kinds of channel do differently

    def _recv_scratch(self, scratch: Scratch) -> int:
        """Bytes received, 0 at the end, -1 for nothing yet. Raises: OSError."""
        raise NotImplementedError

    def _recv_body(self) -> int:
        """The same, into the body's place."""
        raise NotImplementedError

    def _send(self, data: bytes | memoryview, at: int, more: bool) -> int:
        """Bytes sent, 0 for none now. more: the body follows at once. Raises: OSError."""
        raise NotImplementedError

    def pending(self) -> bool:
        """Whether bytes are decrypted already, which no selector reports."""
        return False

    def _pin_view(self, view: memoryview) -> None:
        """The body goes here."""

    # -- one exchange

    def start(self, transfer: Transfer, head: bytes, now: float) -> None:
        """Begin to send."""
        self.transfer = transfer
        self._clear()
        self._out = head
        self._pieces = list(reversed(transfer.body))
        self.sent_at = now
        METRICS.requests += 1
        self.write()

    def write(self) -> None:
        """Send what can be sent now; `sending` tells whether there is more."""
        try:
            self._write()
        except OSError as error:
            # The service may have refused early and hung up: then its answer, which `read` finds, says why.
            self._lost = self._broken(error)
            self._stop_sending()

    def _write(self) -> None:
        out, pieces = self._out, self._pieces
        if out:
            self._out_at += self._send(out, self._out_at, bool(pieces))
            if self._out_at < len(out):
                return
            self._out = b""
        while pieces:
            piece = pieces[-1]
            n = self._send(piece, self._piece_at, False)
            self.body_at += n
            self._piece_at += n
            if self._piece_at == len(piece):
                pieces.pop()
                self._piece_at = self._address = 0
            elif n < SEND_PIECE:
                return

    def _stop_sending(self) -> None:
        self.reusable = False
        self._out, self._pieces = b"", []
        self._address = 0

    @property
    def sending(self) -> bool:
        return bool(self._out or self._pieces)

    @property
    def awaiting_head(self) -> bool:
        """Whether nothing of the answer has come."""
        return self.head is None and not self._partial

    def read(self, scratch: Scratch) -> bool:
        """Receive what is there. True: the answer is complete and `transfer.finish` may be called. Raises: Failure."""
        try:
            if self._view is None:
                n = self._recv_scratch(scratch)
                return n >= 0 and self._take(scratch, n)
            n = self._recv_body()
        except OSError as error:
            raise self._lost or self._broken(error) from error
        if n < 0:
            return False
        if n == 0:
            raise self._cut()
        self.got += n
        return self.got >= self.size and self._complete()

    def _take(self, scratch: Scratch, n: int) -> bool:
        """`n` bytes arrived in the scratch buffer: of a head, of a chunked body, or the end of the connection."""
        if self.transfer is None:
            raise Failure(Kind.STALE, "bytes came that nobody asked for" if n else "closed while idle")
        if self._chunked is not None:
            return self._take_chunked(bytes(scratch.view[:n]))
        if n == 0:
            raise self._cut()
        if not self._partial:
            end = scratch.data.find(b"\r\n\r\n", 0, n)
            if 0 <= end <= MAX_HEAD:
                return self._take_head(bytes(scratch.view[:end]), scratch.view[end + 4 : n])
        self._partial += bytes(scratch.view[:n])
        return self._take_partial()

    def _take_partial(self) -> bool:
        """Of a head that came in pieces, or of the one after an interim answer."""
        end = self._partial.find(b"\r\n\r\n")
        if end > MAX_HEAD or (end < 0 and len(self._partial) > MAX_HEAD):
            raise Failure(Kind.PROTOCOL, f"an answer's head of more than {MAX_HEAD} bytes")
        if end < 0:
            return False
        raw, self._partial = self._partial, b""
        return self._take_head(raw[:end], memoryview(raw)[end + 4 :])

    def _take_head(self, raw: bytes, rest: memoryview) -> bool:
        head = self._parse(raw)
        while head.status < 200:  # 100 Continue and the like: the real head follows
            if head.status == 101:
                raise Failure(Kind.PROTOCOL, "the service switched protocols unasked")
            after = bytes(rest)
            end = after.find(b"\r\n\r\n")
            if not 0 <= end <= MAX_HEAD:
                self._partial = after
                return bool(after) and self._take_partial()
            head, rest = self._parse(after[:end]), memoryview(after)[end + 4 :]
        transfer = self.transfer
        assert transfer is not None
        self.head = head
        if head.close:
            self.reusable = False
        if self.sending:
            self._stop_sending()  # an answer before the whole request was sent is an early refusal
        if head.length is None:
            most = transfer.most_unsized(head)
            self._chunked = Chunked(most) if head.chunked else UntilEnd(most)
            return bool(rest) and self._take_chunked(bytes(rest))
        view = transfer.accept(head)
        return self._begin_body(view, rest, head.length)

    def _parse(self, raw: bytes) -> Head:
        try:
            return parse_head(raw)
        except HttpError as error:
            raise Failure(Kind.PROTOCOL, str(error)) from None

    def _begin_body(self, view: memoryview, rest: memoryview, length: int) -> bool:
        size, n = view.nbytes, len(rest)
        if size < length:
            self.reusable = False  # an error's body longer than is worth reading
        if n > size:
            self.reusable = False  # more than was announced
            n = size
        view[:n] = rest[:n]
        if n == size:
            self.got = self.size = size
            return self._complete()
        self._view, self.size, self.got = view, size, n
        self._pin_view(view)
        return False

    def _take_chunked(self, piece: bytes) -> bool:
        chunked = self._chunked
        assert chunked is not None
        try:
            if piece:
                chunked.feed(piece)
            elif not isinstance(chunked, UntilEnd):
                raise self._cut()
            else:
                chunked.complete = True
        except HttpError as error:
            assert self.head is not None
            if self.head.status < 300:
                raise Failure(Kind.PROTOCOL, str(error)) from None
            chunked.complete, self.reusable = True, False  # what there is of an error's body will do
        self.got = len(chunked.data)  # progress, though nothing stands in the transfer's buffer yet
        if not chunked.complete:
            return False
        head, transfer = self.head, self.transfer
        assert head is not None
        assert transfer is not None
        self.reusable = self.reusable and not chunked.rest
        head.length = len(chunked.data)
        view = transfer.accept(head)
        view[:] = memoryview(chunked.data)[: view.nbytes]
        self.got = view.nbytes
        return self._complete()

    def _complete(self) -> bool:
        self._view = None
        self._pin = None
        self.used += 1
        return True

    # -- what went wrong

    @property
    def stream_bytes(self) -> int:
        """Body bytes that stand in the transfer's buffer, from where this exchange began."""
        return self.got if self.head is not None and self.head.status in (200, 206) and self._chunked is None else 0

    def _broken(self, error: OSError) -> Failure:
        text = os.strerror(error.errno) if error.errno and not isinstance(error, ssl.SSLError) else str(error)
        if self.used and self.awaiting_head and not self.got:
            return Failure(Kind.STALE, f"the idle connection had been closed ({text})", cause=error)
        return Failure(Kind.BROKEN, f"the connection broke{self.where()}: {text}", cause=error)

    def _cut(self) -> Failure:
        if self._lost is not None and self.head is None:
            return self._lost
        if self.used and self.awaiting_head:
            return Failure(Kind.STALE, "the idle connection had been closed")
        return Failure(Kind.BROKEN, f"the service closed the connection{self.where()}")

    def where(self) -> str:
        """How far this exchange has come, for a message."""
        if self.head is not None:
            return f" after {self.got} of {self.size} bytes"
        return " while sending" if self.sending else " before an answer"

    def peer(self) -> str:
        """The address of the other side, for a log line."""
        try:
            return str(self.sock.getpeername())
        except OSError:
            return "a closed connection"

    def close(self, inherited: bool = False) -> None:
        """Close the socket. inherited: in a forked child, where the parent goes on using the connection."""
        self._view = None
        self._pin = None
        self._pieces = []
        self.transfer = None
        try:
            if not inherited:
                # A child may still hold the descriptor; only this tells the other side.
                self.sock.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.sock.close()
