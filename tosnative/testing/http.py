"""HTTP/1.1 as the local server needs it: bytes to request heads, response heads to bytes. No sockets."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus

from tosnative.testing.messages import Buffer

HEAD_END = b"\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
SINGLE_HEADERS = frozenset({"content-length", "host", "authorization", "transfer-encoding", "range"})

_token = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_reasons = {status.value: status.phrase for status in HTTPStatus}


class BadRequest(Exception):
    """The bytes are not a request that can be answered otherwise than with `status`; the connection is done for."""

    def __init__(self, reason: str, status: int = 400) -> None:
        super().__init__(reason)
        self.status = status


@dataclass(slots=True)
class Head:
    """A request head. `length` is the body's size, or None where the body comes in chunks."""

    method: str
    target: str
    headers: dict[str, str]
    length: int | None
    keep_alive: bool
    expect_continue: bool


def parse_head(data: bytes) -> Head:
    """Parse a request head without its final empty line.

    Raises:
        BadRequest: it is not strictly HTTP/1.x, or says in two ways where its body ends.
    """
    lines = data.decode("latin-1").split("\r\n")
    if data.count(b"\n") != len(lines) - 1 or b"\0" in data:
        raise BadRequest("bare line feed or NUL in the request head")
    start = lines[0].split(" ")
    if len(start) != 3 or not start[1] or _token.fullmatch(start[0]) is None:
        raise BadRequest("malformed request line")
    method, target, version = start
    if version not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequest("only HTTP/1.0 and HTTP/1.1 are spoken here", 505)
    headers: dict[str, str] = {}
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or " " in name or "\t" in name or "\r" in line:
            raise BadRequest("malformed header line")
        name, value = name.lower(), value.strip(" \t")
        if name in headers:
            if name in SINGLE_HEADERS:
                raise BadRequest(f"more than one {name} header")
            value = f"{headers[name]},{value}"
        headers[name] = value
    if "host" not in headers and version == "HTTP/1.1":
        raise BadRequest("no Host header")
    connection = headers.get("connection", "").lower()
    keep_alive = "close" not in connection and (version == "HTTP/1.1" or "keep-alive" in connection)
    expect = headers.get("expect", "").lower() == "100-continue"
    return Head(method, target, headers, body_length(headers), keep_alive, expect)


def body_length(headers: Mapping[str, str]) -> int | None:
    """The size that the headers announce, 0 if none, None for a chunked body."""
    coding, length = headers.get("transfer-encoding"), headers.get("content-length")
    if coding is not None:
        if length is not None:
            raise BadRequest("both Transfer-Encoding and Content-Length")
        if coding.lower() != "chunked":
            raise BadRequest("unknown transfer coding", 501)
        return None
    if length is None:
        return 0
    if not (length.isascii() and length.isdigit() and len(length) < 20):
        raise BadRequest("malformed Content-Length")
    return int(length)


class HttpDate:
    """The Date header's value, formatted once a second."""

    def __init__(self) -> None:
        self._second, self._text = 0, ""

    def now(self) -> str:
        second = int(time.time())
        if second != self._second:
            self._second, self._text = second, formatdate(second, usegmt=True)
        return self._text


def response_head(status: int, fixed: str, headers: Mapping[str, str]) -> bytes:
    """A response head with its final empty line. `fixed` holds ready header lines, each with its line end.

    Raises:
        ValueError: a header has a line break in it.
    """
    parts = [f"HTTP/1.1 {status} {_reasons.get(status, 'Status')}\r\n{fixed}"]
    parts += [f"{name}: {value}\r\n" for name, value in headers.items()]
    parts.append("\r\n")
    text = "".join(parts)
    if text.count("\n") != len(parts) + fixed.count("\n"):
        raise ValueError("line break in a response header")
    try:
        return text.encode("latin-1")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogateescape")


def chunked(pieces: list[Buffer], chunk_bytes: int) -> list[Buffer]:
    """The same body in chunked transfer coding."""
    coded: list[Buffer] = []
    for piece in pieces:
        view = memoryview(piece)
        for at in range(0, len(view), chunk_bytes):
            chunk = view[at : at + chunk_bytes]
            coded += [b"%x\r\n" % len(chunk), chunk, b"\r\n"]
    return [*coded, b"0\r\n\r\n"]
