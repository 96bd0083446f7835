"""HTTP/1.1 as bytes: heads of requests and answers, and chunked bodies. Pure functions and values, no sockets.

Strict where leniency has let requests be smuggled or lengths be misread: a head that is not plainly HTTP/1.1 (or 1.0) is an
error, never a guess.
"""

from __future__ import annotations

import re

__all__ = ["MAX_HEAD", "Chunked", "Head", "HttpError", "UntilEnd", "check_header_value", "parse_head"]

# What common servers and clients allow for a whole head is 8 to 64 KiB; http.client allows 64 KiB a line.
MAX_HEAD = 64 * 1024
# Metadata of an object is a few dozen; http.client allows 100.
_MOST_HEADERS = 1000
_STATUS_LINE = re.compile(rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: [^\r\n\0]*)?")
_TOKEN = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_CONTROL_BYTES = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
_DIGITS = re.compile(rb"[0-9]{1,19}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class HttpError(ValueError):
    """The peer does not speak HTTP/1.1 as we are willing to understand it."""


class Head:
    """The head of an answer. length: of the body in bytes, None where it is chunked or ends with the connection."""

    __slots__ = ("chunked", "close", "headers", "length", "status")

    def __init__(
        self, status: int, headers: dict[bytes, bytes], length: int | None, chunked: bool, close: bool
    ) -> None:
        self.status = status
        self.headers = headers
        self.length = length
        self.chunked = chunked
        self.close = close

    def get(self, name: bytes) -> str | None:
        """A header's value by its lower-case name."""
        value = self.headers.get(name)
        return None if value is None else value.decode("latin-1")


def check_header_value(name: str, value: str) -> str:
    """Return a value that may stand in a header as it is.

    Raises: ValueError where it holds control characters, white space at its ends (which is lost on the way, and so would not be
    what was signed), or what cannot be written as UTF-8.
    """
    if _CONTROL.search(value):
        raise ValueError(f"{name} holds a control character and cannot be sent: {value!r}")
    if value != value.strip():
        raise ValueError(f"{name} begins or ends with white space and cannot be sent: {value!r}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name} cannot be written as UTF-8: {value!r}") from None
    return value


def parse_head(raw: bytes) -> Head:
    """Parse status line and headers, without the blank line that ends them. Raises: HttpError."""
    lines = raw.split(b"\r\n")
    if len(lines) > _MOST_HEADERS:
        raise HttpError(f"{len(lines)} headers")
    found = _STATUS_LINE.fullmatch(lines[0])
    if found is None:
        raise HttpError(f"not an HTTP/1.1 status line: {lines[0][:80]!r}")
    status = int(found[2])
    headers: dict[bytes, bytes] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(b":")
        name = name.lower()
        value = value.strip(b" \t")
        if not colon or name in headers or not name.isalnum():
            name, value = _unusual(line, name, colon, value, headers)
        headers[name] = value
    if _CONTROL_BYTES.search(raw.replace(b"\r\n", b"")):
        raise HttpError("a control character in a header")
    return _framed(status, headers, http10=found[1] == b"0")


def _unusual(line: bytes, name: bytes, colon: bytes, value: bytes, headers: dict[bytes, bytes]) -> tuple[bytes, bytes]:
    """A header whose name is no plain word, or that came before."""
    if not colon or not _TOKEN.fullmatch(name):
        raise HttpError(f"not a header: {line[:80]!r}")
    if name not in headers:
        return name, value
    if name == b"content-length":
        if headers[name] != value:
            raise HttpError("two Content-Length headers that differ")
        return name, value
    return name, headers[name] + b", " + value


def _framed(status: int, headers: dict[bytes, bytes], http10: bool) -> Head:
    """How long the body is (RFC 9112, section 6.3), and whether the connection can be used again."""
    connection = headers.get(b"connection")
    close = (
        http10
        if connection is None
        else b"close" in connection.lower() or (http10 and b"keep-alive" not in connection.lower())
    )
    coding, text = headers.get(b"transfer-encoding"), headers.get(b"content-length")
    if coding is not None:
        if text is not None or coding.lower() != b"chunked" or http10 or status < 200 or status == 204:
            raise HttpError(f"a Transfer-Encoding that is not plain chunked: {coding[:80]!r}")
        if status != 304:  # there it tells what a whole answer would be
            return Head(status, headers, None, True, close)
    if status < 200 or status in (204, 304):
        return Head(status, headers, 0, False, close)
    if text is None:
        return Head(status, headers, None, False, True)
    if not _DIGITS.fullmatch(text):
        raise HttpError(f"not a Content-Length: {text[:80]!r}")
    return Head(status, headers, int(text), False, close)


class Chunked:
    """Takes the bytes of a chunked body as they come; `data` grows by what they carry, never past `most` bytes."""

    def __init__(self, most: int) -> None:
        self.data = bytearray()
        self.rest = b""  # what came after the end
        self.complete = False
        self._most = most
        self._line = bytearray()
        self._left = 0  # of the current chunk
        self._trailers = 0  # bytes of the lines after the last chunk
        self._state = self._size_line

    def feed(self, piece: bytes) -> None:
        """Raises: HttpError where the bytes are no chunked body, or carry more than `most`."""
        at = 0
        while at < len(piece) and not self.complete:
            at = self._state(piece, at)
        if self.complete:
            self.rest += piece[at:]

    def _take_line(self, piece: bytes, at: int) -> tuple[bytes | None, int]:
        end = piece.find(b"\n", at)
        if end < 0:
            self._line += piece[at:]
            if len(self._line) > 4096:
                raise HttpError("a line of a chunked body is too long")
            return None, len(piece)
        self._line += piece[at : end + 1]
        line = bytes(self._line)
        self._line.clear()
        if not line.endswith(b"\r\n") or len(line) > 4096:
            raise HttpError("a line of a chunked body does not end as it must")
        return line[:-2], end + 1

    def _size_line(self, piece: bytes, at: int) -> int:
        line, at = self._take_line(piece, at)
        if line is not None:
            found = _CHUNK_SIZE.fullmatch(line)
            if found is None:
                raise HttpError(f"not the size of a chunk: {line[:40]!r}")
            self._left = int(found[1], 16)
            if len(self.data) + self._left > self._most:
                raise HttpError(f"a chunked body of more than {self._most} bytes")
            self._state = self._chunk if self._left else self._trailer
        return at

    def _chunk(self, piece: bytes, at: int) -> int:
        taken = piece[at : at + self._left]
        self.data += taken
        self._left -= len(taken)
        if not self._left:
            self._state = self._chunk_end
        return at + len(taken)

    def _chunk_end(self, piece: bytes, at: int) -> int:
        line, at = self._take_line(piece, at)
        if line is not None:
            if line:
                raise HttpError("a chunk is longer than its size says")
            self._state = self._size_line
        return at

    def _trailer(self, piece: bytes, at: int) -> int:
        line, at = self._take_line(piece, at)
        if line is not None:
            self.complete = not line
            self._trailers += len(line)
            if self._trailers > MAX_HEAD:
                raise HttpError(f"more than {MAX_HEAD} bytes after the last chunk")
        return at


class UntilEnd(Chunked):
    """A body that ends with its connection, behind the same face."""

    def feed(self, piece: bytes) -> None:
        self.data += piece
        if len(self.data) > self._most:
            raise HttpError(f"a body of more than {self._most} bytes")
