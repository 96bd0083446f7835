"""Requests as they arrive: the bytes up to a whole head, and then a body of known size or in chunks."""

from __future__ import annotations

import mmap
import re
from typing import Protocol

from tosnative.testing.http import HEAD_END, BadRequest, Head, parse_head

MAX_CHUNK_LINE_BYTES = 4096
_MAP_FROM_BYTES = 4 << 20

_chunk_size = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;.*)?")


class Unread:
    """Bytes that came and are not yet part of a request."""

    __slots__ = ("_max_head_bytes", "data")

    def __init__(self, max_head_bytes: int) -> None:
        self.data = b""
        self._max_head_bytes = max_head_bytes

    def add(self, data: bytes) -> None:
        self.data = self.data + data if self.data else data

    def take_all(self) -> bytes:
        data, self.data = self.data, b""
        return data

    def take_head(self) -> Head | None:
        """The next request's head, None while it is not complete.

        Raises:
            BadRequest: it never will be.
        """
        while self.data.startswith(b"\r\n"):
            self.data = self.data[2:]
        if not self.data:
            return None
        if not self.data[:1].isalpha():  # not even a method: TLS, for one, where there is no certificate
            raise BadRequest("this is not HTTP")
        end = self.data.find(HEAD_END)
        if (end if end >= 0 else len(self.data)) > self._max_head_bytes:
            raise BadRequest("request head too large", 431)
        if end < 0:
            return None
        head = parse_head(self.data[:end])
        self.data = self.data[end + len(HEAD_END) :]
        return head


class IncomingBody(Protocol):
    """What a connection needs of a body. `body` is complete once `done`; `received` counts its bytes so far."""

    @property
    def body(self) -> bytearray | memoryview: ...

    @property
    def done(self) -> bool: ...

    @property
    def received(self) -> int: ...

    def wants(self, most: int) -> memoryview | None:
        """Room of at most `most` bytes to receive straight into, None where bytes have to go through `feed`."""
        ...

    def filled(self, n: int) -> None:
        """So many bytes of that room were filled."""
        ...

    def feed(self, data: bytes) -> int:
        """Take bytes in; return how many belonged to this body (all of them unless it is done).

        Raises:
            BadRequest: the coding is broken, or the body is larger than allowed.
        """
        ...


_spare: dict[int, list[memoryview]] = {}


def _room(size: int) -> bytearray | memoryview:
    """Memory to receive into. That of large parts is not written to before: its first use was most of what a PUT cost."""
    if size < _MAP_FROM_BYTES:
        return bytearray(size)
    if _spare.get(size):
        return _spare[size].pop()
    return memoryview(mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))


def recycle(body: object, most: int = 32) -> None:
    """Give back a body that nobody will look at again: another one of its size is received into it. At most `most` are kept."""
    if isinstance(body, memoryview):
        kept = _spare.setdefault(body.nbytes, [])
        if len(kept) < most:
            kept.append(body)


class SizedBody:
    """A body of `size` bytes, received into one buffer of that size."""

    def __init__(self, size: int) -> None:
        self.body = _room(size)
        self.received = 0
        self._size = size
        self._view = memoryview(self.body)

    @property
    def done(self) -> bool:
        return self.received == self._size

    def wants(self, most: int) -> memoryview | None:
        return self._view[self.received : self.received + most]

    def filled(self, n: int) -> None:
        self.received += n

    def feed(self, data: bytes) -> int:
        used = min(len(data), self._size - self.received)
        self._view[self.received : self.received + used] = data[:used]
        self.received += used
        return used


class ChunkedBody:
    """A body in chunked transfer coding, however its bytes are cut up on arrival."""

    def __init__(self, max_bytes: int) -> None:
        self.body: bytearray = bytearray()
        self.done: bool = False
        self._max_bytes = max_bytes
        self._missing = 0  # of the current chunk's data
        self._line = b""  # what came of an unfinished line
        self._expects = "size"  # or "data", "gap" (the line end after data), "trailer"

    @property
    def received(self) -> int:
        return len(self.body)

    def wants(self, most: int) -> memoryview | None:
        return None

    def filled(self, n: int) -> None:
        raise AssertionError("a chunked body offers no room of its own")

    def feed(self, data: bytes) -> int:
        at = 0
        while at < len(data) and not self.done:
            if self._expects == "data":
                piece = data[at : at + self._missing]
                self.body += piece
                at += len(piece)
                self._missing -= len(piece)
                if not self._missing:
                    self._expects = "gap"
                continue
            end = data.find(b"\n", at)
            stop = len(data) if end < 0 else end + 1
            self._line += data[at:stop]
            at = stop
            if len(self._line) > MAX_CHUNK_LINE_BYTES:
                raise BadRequest("chunk line too long")
            if end >= 0:
                line, self._line = self._line, b""
                self._take_line(line)
        return at

    def _take_line(self, line: bytes) -> None:
        if not line.endswith(b"\r\n"):
            raise BadRequest("malformed chunk")
        text = line[:-2]
        if self._expects == "size":
            match = _chunk_size.fullmatch(text)
            if match is None:
                raise BadRequest("malformed chunk size")
            self._missing = int(match[1], 16)
            if len(self.body) + self._missing > self._max_bytes:
                raise BadRequest("request body too large", 413)
            self._expects = "data" if self._missing else "trailer"
        elif self._expects == "gap":
            if text:
                raise BadRequest("chunk longer than announced")
            self._expects = "size"
        else:
            self.done = not text
