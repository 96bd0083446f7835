"""The HTTP/1.1 parser: strict, bounded, and never anything but HttpError."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.wire.http1 import Chunked, Head, HttpError, UntilEnd, check_header_value, parse_head


def head(text: str) -> Head:
    return parse_head(text.replace("\n", "\r\n").encode("latin-1"))


@pytest.mark.parametrize(
    ("text", "status", "length", "chunked", "close"),
    [
        ("HTTP/1.1 200 OK\nContent-Length: 5", 200, 5, False, False),
        ("HTTP/1.1 200\nContent-Length: 5", 200, 5, False, False),
        ("HTTP/1.1 200 \nContent-Length:5\t ", 200, 5, False, False),
        ("HTTP/1.1 206 Partial Content\ncontent-length: 5\nConnection: close", 206, 5, False, True),
        ("HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 5", 200, 5, False, False),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", 200, None, True, False),
        ("HTTP/1.1 200 OK\nTransfer-Encoding: Chunked\nConnection: Close", 200, None, True, True),
        ("HTTP/1.1 200 OK", 200, None, False, True),
        ("HTTP/1.1 204 No Content", 204, 0, False, False),
        ("HTTP/1.1 304 Not Modified\nContent-Length: 5", 304, 0, False, False),
        ("HTTP/1.1 304 Not Modified\nTransfer-Encoding: chunked", 304, 0, False, False),
        ("HTTP/1.1 100 Continue", 100, 0, False, False),
        ("HTTP/1.0 200 OK\nContent-Length: 5", 200, 5, False, True),
        ("HTTP/1.0 200 OK\nContent-Length: 5\nConnection: keep-alive", 200, 5, False, False),
        ("HTTP/1.1 200 OK\nContent-Length: 5\nX-Empty:", 200, 5, False, False),
    ],
)
def test_heads(text: str, status: int, length: int | None, chunked: bool, close: bool) -> None:
    found = head(text)
    assert (found.status, found.length, found.chunked, found.close) == (status, length, chunked, close)


def test_headers_by_lower_case_name_joined_where_repeated() -> None:
    found = head('HTTP/1.1 200 OK\nX-Tos-Request-Id:  ab\nVia: a\nVia: b\nETag: "\xe9"\nContent-Length: 0')
    assert found.get(b"x-tos-request-id") == "ab"
    assert found.get(b"via") == "a, b"
    assert found.get(b"etag") == '"\xe9"'
    assert found.get(b"absent") is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "HTTP/1.1 20 OK",
        "HTTP/1.1 2000 OK",
        "HTTP/1.1 099 No",
        "HTTP/2 200 OK",
        "HTTP/1.1  200 OK",
        " HTTP/1.1 200 OK",
        "http/1.1 200 OK",
        "ICY 200 OK",
        "HTTP/1.1 200 OK\nno colon",
        "HTTP/1.1 200 OK\n: no name",
        "HTTP/1.1 200 OK\nContent-Length : 5",
        "HTTP/1.1 200 OK\n Content-Length: 5",
        "HTTP/1.1 200 OK\nA: b\n c",
        "HTTP/1.1 200 OK\nContent-Length: 5\nContent-Length: 6",
        "HTTP/1.1 200 OK\nContent-Length: 5, 5",
        "HTTP/1.1 200 OK\nContent-Length: -5",
        "HTTP/1.1 200 OK\nContent-Length: +5",
        "HTTP/1.1 200 OK\nContent-Length: 0x5",
        "HTTP/1.1 200 OK\nContent-Length:",
        "HTTP/1.1 200 OK\nContent-Length: 99999999999999999999",
        "HTTP/1.1 200 OK\nTransfer-Encoding: gzip",
        "HTTP/1.1 200 OK\nTransfer-Encoding: gzip, chunked",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nTransfer-Encoding: chunked",
        "HTTP/1.1 200 OK\nTransfer-Encoding: chunked\nContent-Length: 5",
        "HTTP/1.0 200 OK\nTransfer-Encoding: chunked",
        "HTTP/1.1 204 No Content\nTransfer-Encoding: chunked",
        "HTTP/1.1 100 Continue\nTransfer-Encoding: chunked",
        "HTTP/1.1 200 OK" + "\nA:" * 2000,
        "HTTP/1.1 200 OK\nA: b\0c",
        "HTTP/1.1 200 OK\nA: b\rc",
        "HTTP/1.1 200 O\x01K\nContent-Length: 5",
    ],
)
def test_heads_that_are_refused(text: str) -> None:
    with pytest.raises(HttpError):
        head(text)


def test_a_bare_line_feed_ends_no_header() -> None:
    with pytest.raises(HttpError):
        parse_head(b"HTTP/1.1 200 OK\r\nA: b\nContent-Length: 5")


PIECE = st.sampled_from(
    [b"HTTP/1.1 200 OK", b"HTTP/1.0 ", b"\r\n", b"\n", b"\r", b":", b" ", b"Content-Length", b"5", b"Transfer-Encoding",
     b"chunked", b"Connection", b"close", b"\0", b"\xff", b"a", b"0", b"-", b";"]
)  # fmt: skip
BYTES = st.binary(max_size=80) | st.lists(PIECE, max_size=14).map(b"".join)


@given(BYTES)
def test_any_bytes_are_a_head_or_an_http_error(raw: bytes) -> None:
    for candidate in (raw, b"HTTP/1.1 200 OK\r\n" + raw):
        try:
            found = parse_head(candidate)
        except HttpError:
            continue
        assert 100 <= found.status <= 999
        assert found.length is None or 0 <= found.length < 10**19


def encode(chunks: list[bytes], extension: bytes = b"", trailer: bytes = b"") -> bytes:
    framed = b"".join(b"%X%s\r\n%s\r\n" % (len(chunk), extension, chunk) for chunk in chunks)
    return framed + b"0\r\n" + trailer + b"\r\n"


def cuts(data: bytes, at: list[int]) -> list[bytes]:
    edges = [0, *sorted(position % (len(data) + 1) for position in at), len(data)]
    return [data[a:b] for a, b in zip(edges, edges[1:], strict=False)]  # noqa: RUF007 - pairs that may be empty


@given(
    st.lists(st.binary(min_size=1, max_size=40), max_size=6),
    st.sampled_from([b"", b";a=b", b" ; x", b'; q="z"']),
    st.sampled_from([b"", b"A: b\r\n", b"A: b\r\nC: d\r\n"]),
    st.binary(max_size=10),
    st.lists(st.integers(0, 10_000), max_size=12),
)
def test_a_chunked_body_is_the_same_however_it_is_cut(
    chunks: list[bytes], extension: bytes, trailer: bytes, after: bytes, at: list[int]
) -> None:
    decoder = Chunked(1000)
    for piece in cuts(encode(chunks, extension, trailer) + after, at):
        decoder.feed(piece)
    assert decoder.complete
    assert bytes(decoder.data) == b"".join(chunks)
    assert decoder.rest == after


@given(st.lists(st.binary(max_size=30) | st.lists(PIECE, max_size=6).map(b"".join), max_size=8))
def test_any_bytes_are_chunks_or_an_http_error(pieces: list[bytes]) -> None:
    decoder = Chunked(50)
    try:
        for piece in pieces:
            decoder.feed(piece)
    except HttpError:
        pass
    assert len(decoder.data) <= 50


@pytest.mark.parametrize(
    "body",
    [
        b"g\r\n",
        b"-1\r\n",
        b"5\n",
        b"\r\n",
        b"5\r\nabcdeX\r\n",
        b"33\r\n",
        b"1" * 16 + b"\r\n",
        b"5;" + b"a" * 5000,
        b"0\r\n" + b"a" * 5000,
        b"0\r\n" + b"A: b\r\n" * 20_000,
    ],
)
def test_chunks_that_are_refused(body: bytes) -> None:
    with pytest.raises(HttpError):
        Chunked(50).feed(body)


def test_a_body_until_the_end_is_bounded() -> None:
    body = UntilEnd(5)
    body.feed(b"abc")
    assert not body.complete
    body.feed(b"de")
    with pytest.raises(HttpError, match="more than 5"):
        body.feed(b"f")


@given(st.text(max_size=30))
def test_header_values_hold_no_line_break(value: str) -> None:
    try:
        assert check_header_value("content_type", value) == value
    except ValueError:
        return
    assert not set(value) & {chr(c) for c in range(32) if c != 9}


@pytest.mark.parametrize("value", ["a\r\nb: c", "a\0", " a", "a\t", "\ud800"])
def test_values_that_are_refused_are_named(value: str) -> None:
    with pytest.raises(ValueError, match="content_type"):
        check_header_value("content_type", value)
