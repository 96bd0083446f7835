"""HTTP/1.1 as bytes: heads of requests and answers, and chunked bodies. Pure functions and values, no sockets.

Strict where leniency has let requests be smuggled or lengths be misread: a head that is not plainly HTTP/1.1 (or 1.0) is an
error, never a guess.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["MAX_HEAD", "Chunked", "Head", "HttpError", "UntilEnd", "check_header_value", "parse_head"]

# What common servers and clients allow for a whole head is 8 to 64 KiB; http.client allows 64 KiB a line.
MAX_HEAD = 64 * 1024
# Metadata of an object is a few dozen; http.client allows 100.
_MOST_HEADERS = 1000
_CONTROL = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")
_TEXT = rb"[^\x00-\x08\x0a-\x1f\x7f]*"
_STATUS_LINE = rb"HTTP/1\.([01]) ([1-9][0-9][0-9])(?: " + _TEXT + rb")?"
_HEADER = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:" + _TEXT
# Status line and headers, each checked; a class never holds what may follow it, so it is read once.
_HEAD = re.compile(_STATUS_LINE + rb"(?:\r\n" + _HEADER + rb")*")
_DIGITS = re.compile(rb"[0-9]{1,19}")
_CHUNK_SIZE = re.compile(rb"([0-9A-Fa-f]{1,15})[ \t]*(?:;[^\r\n]*)?")


class HttpError(ValueError):
    """The peer does not speak HTTP/1.1 as we are willing to understand it."""


class Head:
    """The head of an answer. length: of the body in bytes, None where it is chunked or ends with the connection.

    Values are looked up when they are asked for: of a dozen headers a reader needs six.
    """

    __slots__ = ("_lower", "_raw", "chunked", "close", "length", "status")

    def __init__(self, raw: bytes, status: int) -> None:
        """raw: all of it, with the line end of its last line, checked."""
        self._raw = raw
        self._lower = raw.lower()
        self.status = status
        self.length: int | None = None
        self.chunked = self.close = False

    def value(self, name: bytes) -> bytes | None:
        """A header's value by its lower-case name; those of one that was sent several times are joined by commas."""
        lower, sought = self._lower, b"\r\n%b:" % name
        at = lower.find(sought)
        if at < 0:
            return None
        start = at + len(sought)
        end = lower.find(b"\r\n", start)
        if lower.find(sought, end) >= 0:
            return b", ".join(self.values(name))
        return self._raw[start:end].strip(b" \t")

    def get(self, name: bytes) -> str | None:
        """`value`, as text."""
        value = self.value(name)
        return None if value is None else value.decode("latin-1")

    def values(self, name: bytes) -> list[bytes]:
        """One for each time that the header was sent."""
        return [value for sent, value in self._fields() if sent == name]

    @property
    def headers(self) -> dict[bytes, bytes]:
        """All of them, by lower-case name."""
        return {name: self.value(name) or b"" for name, _ in self._fields()}

    def _fields(self) -> Iterator[tuple[bytes, bytes]]:
        for line in self._raw.split(b"\r\n")[1:-1]:
            name, _, value = line.partition(b":")
            yield name.lower(), value.strip(b" \t")


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
    found = _HEAD.fullmatch(raw)
    if found is None:
        raise HttpError(_what_is_wrong(raw))
    if raw.count(b"\r\n") > _MOST_HEADERS:
        raise HttpError(f"more than {_MOST_HEADERS} headers")
    head = Head(raw + b"\r\n", int(found[2]))
    _frame(head, http10=found[1] == b"0")
    return head


def _what_is_wrong(raw: bytes) -> str:
    first, *lines = raw.split(b"\r\n")
    if not re.fullmatch(_STATUS_LINE, first):
        return f"not an HTTP/1.1 status line: {first[:80]!r}"
    return next(f"not a header: {line[:80]!r}" for line in lines if not re.fullmatch(_HEADER, line))


def _frame(head: Head, http10: bool) -> None:
    """How long the body is (RFC 9112, section 6.3), and whether the connection can be used again."""
    status, connection = head.status, head.value(b"connection")
    if connection is None:
        head.close = http10
    else:
        options = connection.lower()
        head.close = b"close" in options or (http10 and b"keep-alive" not in options)
    coding, text = head.value(b"transfer-encoding"), head.value(b"content-length")
    if coding is not None:
        if text is not None or coding.lower() != b"chunked" or http10 or status < 200 or status == 204:
            raise HttpError(f"a Transfer-Encoding that is not plain chunked: {coding[:80]!r}")
        if status != 304:  # there it tells what a whole answer would be
            head.chunked = True
            return
    if status < 200 or status in (204, 304):
        head.length = 0
    elif text is None:
        head.close = True
    else:
        head.length = _content_length(head, text)


def _content_length(head: Head, text: bytes) -> int:
    if not _DIGITS.fullmatch(text):
        sent = set(head.values(b"content-length"))  # several times the same is one
        if len(sent) != 1 or not _DIGITS.fullmatch(text := sent.pop()):
            raise HttpError(f"not a Content-Length: {text[:80]!r}")
    return int(text)


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
