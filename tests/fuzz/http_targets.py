"""What a service may send, and what goes into a request: never a wrong length, another header, or an error of another kind."""

from __future__ import annotations

import email.parser
import http.client
import io
import pickle
import re
import socket
import urllib.parse

from tests.fuzz.target import Target, cut, take_text
from tosnative.client import TosClient
from tosnative.credentials import CredentialProvider, Credentials
from tosnative.ranges import parse_content_range, parse_unsatisfied, range_header
from tosnative.wire.answers import describe, refusal
from tosnative.wire.download import Download
from tosnative.wire.fast_channel import SocketChannel
from tosnative.wire.http1 import Chunked, HttpError, check_header_value, parse_head
from tosnative.wire.retry import Attempts, Failure
from tosnative.wire.scratch import Scratch
from tosnative.wire.transfer import MAX_ERROR_BODY
from tosnative.wire.upload import Upload

__all__ = ["TARGETS"]

_CLIENT = TosClient(endpoint="http://127.0.0.1:1", region="r", cred=CredentialProvider("ak", "sk"))
_SCRATCH = Scratch()
_HEADS = (
    b'HTTP/1.1 200 OK\r\nContent-Length: 5\r\nETag: "e"\r\nx-tos-hash-crc64ecma: 7',
    b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-4/9\r\nContent-Length: 5",
    b"HTTP/1.1 503 Slow Down\r\nRetry-After: Wed, 21 Oct 2026 07:28:00 GMT\r\nDate: Wed, 21 Oct 2026 07:27:00 GMT",
    b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: keep-alive",
)
_WORDS = (
    b"HTTP/1.1 ", b"\r\n", b"\r\n\r\n", b"Content-Length: ", b"Transfer-Encoding: chunked\r\n", b"Connection: close\r\n",
    b"Content-Range: bytes ", b"Retry-After: ", b"x-tos-request-id: ", b"0\r\n\r\n", b"5\r\nhello\r\n",
    b"HTTP/1.1 103 H\r\n\r\n",
)  # fmt: skip
_MOST = 200  # bytes of a chunked body


class _File(io.BytesIO):
    """The bytes as the socket that http.client asks for."""

    def makefile(self, *args: object, **kwargs: object) -> io.BytesIO:
        return self


def _as_http_client_reads(raw: bytes) -> http.client.HTTPResponse:
    answer = http.client.HTTPResponse(_File(raw))  # type: ignore[arg-type]  # as much of a socket as it uses
    answer.begin()
    return answer


def head(data: bytes) -> None:
    """A head or an HttpError; what is taken has one length, no line break in a value, and is what http.client reads."""
    try:
        found = parse_head(data)
    except HttpError:
        return
    assert 100 <= found.status <= 999
    assert found.length is None or 0 <= found.length < 10**19
    assert not (found.chunked and found.length is not None)
    assert found.close or found.chunked or found.length is not None, "it ends with the connection, which then goes on"
    for name, value in found.headers.items():
        assert re.fullmatch(rb"[!#-'*+.^_`|~0-9a-z-]+", name), name
        assert not re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", value), value
    if found.status < 200 or len(found.headers) > 90:
        return  # interim answers are passed over by http.client, and more than 100 headers refused
    model = _as_http_client_reads(data + b"\r\n\r\n")
    assert model.status == found.status
    assert {name.lower().encode() for name in model.headers} == found.headers.keys()
    assert bool(model.chunked) == found.chunked
    if not found.chunked:
        assert model.length == found.length
    assert found.close or not model.will_close


def _chunks(pieces: list[bytes]) -> Chunked | None:
    """The body as it is decoded from these pieces; None where they are refused."""
    decoder = Chunked(_MOST)
    try:
        for piece in pieces:
            decoder.feed(piece)
    except HttpError:
        return None
    finally:
        assert len(decoder.data) <= _MOST
        assert len(decoder._line) <= 4096 + max(map(len, pieces), default=0)
    return decoder


def chunked(data: bytes) -> None:
    """However it is cut it is the same body, never longer than allowed, and the one that http.client reads."""
    pieces = cut(data)
    whole = b"".join(pieces)
    one, several = _chunks([whole]), _chunks(pieces)
    assert (one is None) == (several is None)
    if one is None or several is None:
        return
    assert (one.data, one.rest, one.complete) == (several.data, several.rest, several.complete)
    if one.complete:
        model = _as_http_client_reads(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + whole)
        assert model.read() == one.data


def _exchange(pieces: list[bytes], download: Download) -> bool:
    """Answer a download with these pieces, then the end of the connection; whether it is complete. Raises: Failure."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        channel = SocketChannel(ours)
        channel.start(download, b"GET", 0.0)
        for piece in pieces:
            if piece:
                theirs.sendall(piece)
                if channel.read(_SCRATCH):
                    return True
        theirs.shutdown(socket.SHUT_WR)
        return channel.read(_SCRATCH)


def answer(data: bytes) -> None:
    """A whole answer, or a Failure; never more bytes than came, and however it is cut the same."""
    if re.search(rb"\d{7}", data):
        return  # a length for which memory is taken at once
    pieces = cut(data[1:])
    stop = data[0] % 16 or None if data else None
    outcomes = []
    for sent in ([b"".join(pieces)], pieces):
        download = _CLIENT.download("test", "k", 0, stop, check_crc=False)
        try:
            if not _exchange(sent, download):
                outcomes.append(b"more")
                continue
            download.finish()
        except Failure:
            outcomes.append(b"failed")
            continue
        body = download.getvalue()
        assert download.length == len(body) <= len(data)
        assert stop is None or len(body) <= stop
        assert 0 <= len(body) <= (download.meta.size or 0)
        outcomes.append(b"=" + body)
    # What follows the answer is seen or not by how it is cut; the answer itself is the same.
    assert outcomes[0] == outcomes[1], outcomes


def _one_line(text: str | None, most: int) -> None:
    assert text is None or (text.isprintable() and len(text) <= most), text
    if text is not None:
        text.encode()


def refused(data: bytes) -> None:
    """Any answer is a Failure whose texts are one line each, bounded, and which asks for a wait that ends."""
    raw, _, body = data.partition(b"\r\n\r\n")
    try:
        found = parse_head(raw)
    except HttpError:
        return
    failure = refusal(found, body[:MAX_ERROR_BODY])
    for text in (failure.text, failure.code, failure.ec, failure.request_id, str(failure)):
        _one_line(text, 2500)
    assert failure.retry_after_s is None or 0 <= failure.retry_after_s <= 86400
    error = Attempts(0.0).exception(failure, 1.0, "GET", "test", "key")
    _one_line(str(error), 6000)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
    try:
        meta = describe("test", "key", found, None)
    except Failure:
        return
    assert meta.crc64 is None or 0 <= meta.crc64 < 1 << 64


def content_range(data: bytes) -> None:
    """A range that comes back as it was, or a ValueError."""
    value = data.decode("latin-1")
    size = parse_unsatisfied(value)
    assert size is None or value.replace("0", "") == f"bytes */{size}".replace("0", "")
    try:
        start, stop, size = parse_content_range(value)
    except ValueError:
        return
    assert 0 <= start < stop <= size
    span, _, told = value.removeprefix("bytes ").partition("/")
    first, _, last = span.partition("-")
    assert range_header(start, stop) == f"bytes={int(first)}-{int(last)}"
    assert int(told) == size
    assert value.isascii()


def _head_of(request: bytes) -> tuple[bytes, dict[str, str]]:
    """Request line and headers of one request that has no body yet."""
    assert request.endswith(b"\r\n\r\n")
    assert request.count(b"\r\n\r\n") == 1
    lines = request[:-4].split(b"\r\n")
    assert not any(re.search(rb"[\x00-\x08\x0a-\x1f\x7f]", line) for line in lines), request
    headers = email.parser.BytesHeaderParser().parsebytes(b"\n".join(lines[1:]))
    assert len(headers) == len(lines) - 1
    return lines[0], {name.lower(): value for name, value in headers.items()}


def request(data: bytes) -> None:
    """Whatever the key, the token and the content type are: one request, the headers that were meant, and that very key."""
    key, token, content_type, upload_id = (*take_text(data), "", "", "", "")[:4]
    try:
        credentials = Credentials("ak", "sk", token or None)
        signed = {"content-type": check_header_value("content_type", content_type)} if content_type else {}
        download = _CLIENT.download("test", key, 3, 9)
        upload = Upload(_CLIENT._target("test"), "test", key, memoryview(b"body"), None, "", signed)
        part = urllib.parse.urlencode({"uploadId": upload_id}, errors="surrogateescape")
    except ValueError:
        return
    line, headers = _head_of(download.request(credentials, 0.0))
    expected = {"host", "x-tos-content-sha256", "x-tos-date", "authorization", "range", "user-agent"}
    assert headers.keys() == expected | ({"x-tos-security-token"} if credentials.token else set())
    method, path, version = line.split(b" ")
    assert (method, version) == (b"GET", b"HTTP/1.1")
    assert urllib.parse.unquote_to_bytes(path) == b"/" + key.encode()
    assert headers["host"] == "test.127.0.0.1:1"
    line, headers = _head_of(upload.request(credentials, 0.0))
    assert headers["content-length"] == "4"
    assert ("content-type" in headers) == bool(content_type)
    assert part.isascii()


def header_value(data: bytes) -> None:
    """What may stand in a header comes back as it was, can be sent, and begins no other header."""
    for value in take_text(data):
        try:
            assert check_header_value("x", value) == value
        except ValueError:
            continue
        assert not set(value) & set("\r\n\0")
        assert value == value.strip()
        value.encode()


_ERROR = b'{"Code": "SlowDown", "Message": "later", "RequestId": "r", "EC": "0005-00000044"}'
TARGETS = {
    "head": Target(head, _HEADS, _WORDS),
    "chunked": Target(
        chunked,
        (b"\x035Zz5\r\nhello\r\n0\r\n\r\nrest", b"\0A;x=y\r\n0123456789\r\n0\r\nA: b\r\n\r\n", b"\x02\x01\x805\nhello\n0\n\n"),
        (b"5\r\nhello\r\n", b"0\r\n\r\n", b"\r\n", b";a=b", b"FFFFFFFF", b"0" * 15),
    ),
    "answer": Target(
        answer,
        tuple(
            b"%c%c%s" % (stop, 3, b"\x20\x60\xa0" + text + tail)
            for text in _HEADS
            for stop, tail in ((0, b"\r\n\r\nhello"), (5, b"\r\n\r\n5\r\nhello\r\n0\r\n\r\n"))
        ),
        _WORDS,
    ),
    "refused": Target(
        refused,
        tuple(text + b"\r\n\r\n" + body for text in _HEADS for body in (_ERROR, b"<html>\nno", b"[" * 5000)),
        (*_WORDS, b'"Code": ', b'"\\ud800"', b'"\\n"', b"Jan", b"GMT"),
    ),
    "content_range": Target(
        content_range, (b"bytes 0-4/9", b"bytes */9", b"bytes 0-9999999999999999999/1"), (b"bytes ", b"*", b"-", b"/")
    ),
    "request": Target(
        request,
        (b"a/b c%\0token\0text/plain\0id", b"\r\nx: y\0t\r\nx: y\0a\r\nx: y", "k\u00e9/\u4e2d\0\0".encode(), b"a\0\0\x85"),
        (b"\r\n", b"\0", b"%0d%0a", b"..", b"//", b"?", b"#", b"\xe2\x80\xa8"),
    ),
    "header_value": Target(header_value, (b"text/plain", b"a\r\nb: c", b" a", b"\xc2\x85"), (b"\r", b"\n", b"\0", b"\x7f")),
}  # fmt: skip
