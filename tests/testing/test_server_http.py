"""The local server's HTTP at the socket: framing, limits, proxying and rudeness."""

import http.client
import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_wire import Wire

from tosnative.testing import LocalTos
from tosnative.testing.http import BadRequest, parse_head, response_head
from tosnative.testing.incoming import ChunkedBody, SizedBody

MIB = 1 << 20


@pytest.fixture(scope="module")
def tos():
    with LocalTos(bucket="bkt", check_signatures=False, max_body_bytes=64 * MIB) as server:
        server.put("bkt", "hello", b"hello world")
        server.put("bkt", "big", bytes(range(256)) * (16 << 10))
        yield server


def test_get_put_head_delete_on_one_connection(tos):
    with Wire(tos) as wire:
        assert wire.ask("PUT", "/new", b"data").status == 200
        got = wire.ask("GET", "/new")
        assert (got.status, got.body) == (200, b"data")
        head = wire.ask("HEAD", "/new")
        assert (head.status, head.headers["content-length"]) == (200, "4")
        gone = wire.ask("DELETE", "/new")
        assert (gone.status, gone.headers["content-length"]) == (204, "0")
        missing = wire.ask("HEAD", "/new")
        assert (missing.status, missing.headers["content-length"]) == (404, "0")
        assert missing.headers["x-tos-ec"] == "0017-00000003"
        error = wire.ask("GET", "/new")
        document = json.loads(error.body)
        assert (error.status, document["Code"], document["EC"]) == (404, "NoSuchKey", "0017-00000003")
        assert document["RequestId"] == error.headers["x-tos-request-id"]
        assert document["Resource"] == "/bkt/new"
        assert len(error.headers["x-tos-id-2"]) > 0


def test_every_answer_has_its_own_request_id(tos):
    with Wire(tos) as wire:
        assert len({wire.ask("GET", "/hello").headers["x-tos-request-id"] for _ in range(5)}) == 5


def test_all_ways_to_name_the_host(tos):
    port = tos.port
    for host in (f"bkt.127.0.0.1:{port}", f"bkt.localhost:{port}", "bkt.any.thing", "bkt.tos-cn-beijing.volces.com"):
        with Wire(tos, host) as wire:
            assert wire.ask("GET", "/hello").body == b"hello world"
    for host in (f"127.0.0.1:{port}", f"localhost:{port}", "tos.local"):
        with Wire(tos, host) as wire:
            assert wire.ask("GET", "/bkt/hello").body == b"hello world"
    with Wire(tos, f"127.0.0.1:{port}/bkt") as wire:
        assert wire.ask("GET", "/bkt/hello").body == b"hello world"


def test_absolute_form_is_served_as_by_a_proxy(tos):
    tos.clear_requests()
    with Wire(tos, "bkt.no.such.host") as wire:
        assert wire.ask("GET", "http://bkt.no.such.host/hello").body == b"hello world"
    assert [(r.bucket, r.key, r.proxied) for r in tos.requests] == [("bkt", "hello", True)]


def test_connect_leads_back_here(tos):
    with Wire(tos, "bkt.no.such.host:80") as wire:
        wire.send("CONNECT", "bkt.no.such.host:80")
        assert wire.head().status == 200
        assert wire.ask("GET", "/hello").body == b"hello world"
    assert tos.requests[-1].proxied


def test_pipelined_requests_are_answered_in_order(tos):
    with Wire(tos) as wire:
        keys = [f"p{i}" for i in range(20)]
        for key in keys:
            wire.send("PUT", f"/{key}", key.encode())
        for key in keys:
            wire.send("GET", f"/{key}")
        assert [wire.reply("PUT").status for _ in keys] == [200] * 20
        assert [wire.reply().body for _ in keys] == [key.encode() for key in keys]


def test_a_pipeline_behind_a_large_answer_is_not_lost(tos):
    with Wire(tos) as wire:
        for _ in range(4):
            wire.send("GET", "/big")
            wire.send("GET", "/hello")
        for _ in range(4):
            assert len(wire.reply().body) == 4 * MIB
            assert wire.reply().body == b"hello world"


def test_a_request_in_single_bytes(tos):
    with Wire(tos) as wire:
        for byte in b"PUT /slow HTTP/1.1\r\nHost: bkt.localhost\r\nContent-Length: 3\r\n\r\nabc":
            wire.socket.sendall(bytes([byte]))
        assert wire.reply().status == 200
    assert tos.get("bkt", "slow") == b"abc"


def test_large_bodies_both_ways(tos):
    data = bytes(range(256)) * (128 << 10)
    connection = http.client.HTTPConnection(tos.host, tos.port, timeout=20)
    connection.request("PUT", "/bkt/large", body=data)
    assert connection.getresponse().read() == b""
    connection.request("GET", "/bkt/large")
    assert connection.getresponse().read() == data
    connection.close()
    assert tos.get("bkt", "large") == data


def test_chunked_request_bodies(tos):
    with Wire(tos) as wire:
        wire.send("PUT", "/chunks", Transfer_Encoding="chunked")
        wire.socket.sendall(b"5\r\nhello\r\n1;x=y\r\n \r\n")
        wire.socket.sendall(b"5\r\nworld\r\n0\r\nTrailer: x\r\n\r\n")
        assert wire.reply("PUT").status == 200
        assert wire.ask("GET", "/chunks").body == b"hello world"


def test_expect_continue_is_answered_before_the_body(tos):
    with Wire(tos) as wire:
        wire.send("PUT", "/expected", Expect="100-continue", Content_Length="3")
        assert wire.head().status == 100
        wire.socket.sendall(b"abc")
        assert wire.reply("PUT").status == 200


def test_connection_close_is_obeyed(tos):
    with Wire(tos) as wire:
        reply = wire.ask("GET", "/hello", Connection="close")
        assert reply.headers["connection"] == "close"
        assert wire.at_end()


def test_http_1_0_closes_unless_told_otherwise(tos):
    with Wire(tos) as wire:
        wire.socket.sendall(b"GET /bkt/hello HTTP/1.0\r\nHost: 127.0.0.1\r\n\r\n")
        assert wire.reply().body == b"hello world"
        assert wire.at_end()
    with Wire(tos) as wire:
        for _ in range(2):
            wire.socket.sendall(b"GET /bkt/hello HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: keep-alive\r\n\r\n")
            assert wire.reply().body == b"hello world"


def test_a_half_closed_client_still_gets_its_answer(tos):
    with Wire(tos) as wire:
        wire.send("GET", "/big")
        wire.socket.shutdown(socket.SHUT_WR)
        assert len(wire.reply().body) == 4 * MIB
        assert wire.at_end()


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (b"nonsense\r\n\r\n", 400),
        (b"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/2.0\r\nHost: a\r\n\r\n", 505),
        (b"G@T / HTTP/1.1\r\nHost: a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\n folded: x\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\nX: y\r\n\r\n", 400),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: \0\r\n\r\n", 400),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nContent-Length: -1\r\n\r\n", 400),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1_0\r\n\r\n", 400),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", 400),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: gzip\r\n\r\n", 501),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n", 400),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", 400),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nContent-Length: 99999999999\r\n\r\n", 413),
        (b"PUT /k HTTP/1.1\r\nHost: a.b\r\nTransfer-Encoding: chunked\r\n\r\nfffffffff\r\n", 413),
        (b"GET /%FF HTTP/1.1\r\nHost: a.b\r\n\r\n", 400),
        (b"OPTIONS * HTTP/1.1\r\nHost: a.b\r\n\r\n", 400),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1\r\nHost: a.b\r\n\r\n", 431),
    ],
)
def test_what_is_no_request_gets_an_error_and_the_end(tos, text, status):
    with Wire(tos) as wire:
        wire.socket.sendall(text)
        reply = wire.reply()
        assert reply.status == status
        assert json.loads(reply.body)["Code"] == "InvalidRequest"
        assert wire.at_end()
    with Wire(tos) as wire:
        assert wire.ask("GET", "/hello").status == 200


def test_a_client_that_vanishes_leaves_nothing(tos):
    before = tos.connections
    with Wire(tos) as wire:
        wire.send("PUT", "/half", Content_Length="1000")
        wire.socket.sendall(b"only this")
    with Wire(tos) as wire:
        wire.send("GET", "/big")
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    with Wire(tos) as wire:
        while tos.connections > before + 1:
            assert wire.ask("GET", "/hello").status == 200
    assert "half" not in tos.keys("bkt")


def test_header_values_cannot_break_out(tos):
    with Wire(tos) as wire:
        reply = wire.ask("GET", "/hello?response-content-type=a%0d%0aX-Evil:%201")
        assert reply.status == 400
        assert "x-evil" not in reply.headers
    with pytest.raises(ValueError, match="line break"):
        response_head(200, "", {"X": "a\nb"})


def test_traffic_limit_slows_the_body_down(tos):
    with Wire(tos) as wire:
        reply = wire.ask("GET", "/big", Range="bytes=0-99999", X_Tos_Traffic_Limit="8388608")
        assert len(reply.body) == 100_000
        assert wire.ask("PUT", "/limited", bytes(100_000), X_Tos_Traffic_Limit="8388608").status == 200


@given(body=st.binary(max_size=2000), sizes=st.lists(st.integers(1, 300)), cuts=st.lists(st.integers(1, 50)))
def test_chunked_bodies_decode_however_they_are_cut(body, sizes, cuts):
    coded, rest = b"", body
    for size in [*sizes, len(body)]:
        if rest:
            coded += b"%x\r\n%s\r\n" % (len(rest[:size]), rest[:size])
            rest = rest[size:]
    coded += b"0\r\n\r\n"
    decoder, at = ChunkedBody(1 << 20), 0
    for cut in [*cuts, len(coded)]:
        piece = (coded + b"next")[at : at + cut] if cut < len(coded) else (coded + b"next")[at:]
        at += decoder.feed(piece)
    assert decoder.done
    assert bytes(decoder.body) == body
    assert at == len(coded)


@given(body=st.binary(max_size=500), first=st.integers(0, 600))
def test_sized_bodies_leave_what_is_not_theirs(body, first):
    incoming = SizedBody(len(body))
    used = incoming.feed((body + b"next")[:first])
    assert used == min(first, len(body))
    while not incoming.done:
        room = incoming.wants(7)
        piece = body[incoming.received : incoming.received + len(room)]
        room[: len(piece)] = piece
        incoming.filled(len(piece))
    assert bytes(incoming.body) == body


@given(st.binary(max_size=300))
def test_head_parser_never_fails_otherwise_than_with_bad_request(data):
    for text in (data, b"GET / HTTP/1.1\r\nHost: a\r\n" + data):
        try:
            head = parse_head(text)
        except BadRequest as error:
            assert error.status in (400, 501, 505)  # noqa: PT017 - most inputs are refused, some are not
        else:
            assert head.method
            assert all(name == name.lower() for name in head.headers)


def test_tls_where_there_is_none_is_refused_at_once(tos):
    with Wire(tos) as wire:
        wire.socket.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03")
        assert wire.reply().status == 400
        assert wire.at_end()
