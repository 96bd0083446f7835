"""Scripted trouble, as a client at the socket sees it."""

import json
import socket
import time

import pytest
from server_wire import Wire

from tosnative.testing import LocalTos

DATA = bytes(range(256)) * 400


@pytest.fixture(scope="module")
def server():
    with LocalTos(bucket="bkt", check_signatures=False, seed=7) as tos:
        tos.put("bkt", "key", DATA)
        yield tos


@pytest.fixture
def tos(server):
    server.faults.clear()
    server.clear_requests()
    return server


@pytest.fixture
def wire(tos):
    with Wire(tos) as connection:
        yield connection


def stored(tos, key):
    return key in tos.keys("bkt")


# -- refusals


def test_status_for_some_requests(tos, wire):
    fault = tos.faults.add(key="k*", method="GET", times=2, skip=1, status=503, retry_after_s=2)
    assert [wire.ask("GET", "/key").status for _ in range(5)] == [200, 503, 503, 200, 200]
    assert fault.hits == 2
    assert [record.status for record in tos.requests] == [200, 503, 503, 200, 200]


def test_refusals_have_the_usual_form(tos, wire):
    tos.faults.add(status=429, retry_after_s=3, code="ExceedQPSLimit", ec="0001-1", times=1)
    reply = wire.ask("GET", "/key")
    document = json.loads(reply.body)
    assert (reply.status, reply.headers["retry-after"], reply.headers["x-tos-ec"]) == (429, "3", "0001-1")
    assert (document["Code"], document["EC"]) == ("ExceedQPSLimit", "0001-1")
    assert document["RequestId"] == reply.headers["x-tos-request-id"]
    tos.faults.add(status=503, times=1)
    head = wire.ask("HEAD", "/key")
    assert (head.status, head.headers["content-length"]) == (503, "0")


def test_a_refused_request_is_not_processed(tos, wire):
    tos.faults.add(status=500, times=1)
    assert wire.ask("PUT", "/refused", b"x").status == 500
    assert not stored(tos, "refused")


def test_expired_token(tos, wire):
    tos.faults.add(expired_token=True, times=1)
    reply = wire.ask("GET", "/key")
    assert (reply.status, json.loads(reply.body)["Code"]) == (403, "ExpiredToken")


def test_error_in_the_body_of_a_success(tos, wire):
    tos.faults.add(method="POST", query_has="uploadId", error_in_200="InternalError")
    reply = wire.ask("POST", "/key?uploadId=u", b"{}")
    assert (reply.status, json.loads(reply.body)["Code"]) == (200, "InternalError")


def test_trouble_for_a_time(tos, wire):
    tos.faults.add(status=503, for_s=0.05)
    deadline = time.monotonic() + 20
    assert wire.ask("GET", "/key").status == 503
    while wire.ask("GET", "/key").status == 503:
        assert time.monotonic() < deadline


# -- lost connections


@pytest.mark.parametrize(("when", "kept"), [("before", False), ("after", True)])
def test_reset_around_the_processing(tos, wire, when, kept):
    tos.faults.add(reset=when, times=1)
    with pytest.raises(ConnectionResetError):
        wire.ask("PUT", f"/reset-{when}", b"x")
    assert stored(tos, f"reset-{when}") is kept
    assert tos.requests[-1].status == 0


def test_reset_while_the_request_comes(tos, wire):
    tos.faults.add(reset_after_request_bytes=1000, times=1)
    wire.send("PUT", "/half", bytes(1000), Content_Length="5000")
    with pytest.raises(ConnectionResetError):
        wire.reply()
    assert not stored(tos, "half")


def test_reset_within_the_answer(tos, wire):
    tos.faults.add(reset_after_bytes=1000, times=1)
    wire.send("GET", "/key")
    head = wire.head()
    assert int(head.headers["content-length"]) == len(DATA)
    assert wire.stream.read(1000) == DATA[:1000]
    with pytest.raises(ConnectionResetError):
        wire.stream.read(1)


def test_truncated_answer_ends_properly(tos, wire):
    tos.faults.add(truncate_after_bytes=0, times=1)
    wire.send("GET", "/key")
    assert int(wire.head().headers["content-length"]) == len(DATA)
    assert wire.at_end()


def test_reset_at_accept(tos):
    fault = tos.faults.add(reset="accept", times=1)
    with pytest.raises(ConnectionError), Wire(tos) as wire:
        wire.ask("GET", "/key")
    assert fault.hits == 1
    with Wire(tos) as wire:
        assert wire.ask("GET", "/key").status == 200
    assert len(tos.requests) == 1


def test_a_kept_connection_lost_when_it_is_used_again(tos, wire):
    tos.faults.add(reused=True, reset="before", times=1)
    assert wire.ask("GET", "/key").status == 200
    with pytest.raises(ConnectionResetError):
        wire.ask("GET", "/key")
    with Wire(tos) as other:
        assert other.ask("GET", "/key").status == 200


# -- silence


@pytest.mark.parametrize(("when", "kept"), [("before", False), ("after", True)])
def test_no_answer_ever(tos, wire, when, kept):
    tos.faults.add(key="hung-*", hang=when)
    wire.send("PUT", f"/hung-{when}", b"x")
    with Wire(tos) as other:
        assert other.ask("GET", "/key").status == 200
    assert stored(tos, f"hung-{when}") is kept
    wire.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.socket.recv(1)


def test_stalled_answer(tos, wire):
    tos.faults.add(stall_after_bytes=10, times=1)
    wire.send("GET", "/key")
    wire.head()
    assert wire.stream.read(10) == DATA[:10]
    with Wire(tos) as other:
        assert other.ask("GET", "/key").status == 200
    wire.socket.setblocking(False)
    with pytest.raises(BlockingIOError):
        wire.socket.recv(1)


def test_hung_connections_end_with_their_client(tos):
    tos.faults.add(hang="before")
    with Wire(tos) as wire:
        wire.send("GET", "/key")
    tos.faults.clear()
    with Wire(tos) as other:
        while tos.connections > 1:
            assert other.ask("GET", "/key").status == 200


# -- answers that are not right


def test_flipped_byte(tos, wire):
    tos.put("bkt", "flipped", DATA)  # its own: a request that another test has given up may still arrive
    tos.faults.add(key="flipped", flip_byte_at=300, times=1)
    spoiled = wire.ask("GET", "/flipped").body
    assert [i for i in range(len(DATA)) if spoiled[i] != DATA[i]] == [300]
    assert wire.ask("GET", "/flipped").body == DATA


def test_crc_header(tos, wire):
    right = wire.ask("GET", "/key").headers["x-tos-hash-crc64ecma"]
    tos.faults.add(crc="wrong", times=1)
    wrong = wire.ask("GET", "/key").headers["x-tos-hash-crc64ecma"]
    assert wrong != right
    assert wrong.isdigit()
    tos.faults.add(crc="missing", times=1)
    assert "x-tos-hash-crc64ecma" not in wire.ask("PUT", "/other", b"x").headers


def test_wrong_content_range(tos, wire):
    tos.faults.add(content_range="bytes 5-9/100", times=1)
    reply = wire.ask("GET", "/key", Range="bytes=0-4")
    assert (reply.status, reply.headers["content-range"], reply.body) == (206, "bytes 5-9/100", DATA[:5])


def test_more_bytes_than_asked_for(tos, wire):
    tos.faults.add(extra_bytes=3, times=1)
    assert wire.ask("GET", "/key", Range="bytes=0-4").body == DATA[:5] + bytes(3)
    assert wire.ask("GET", "/key", Range="bytes=0-4").body == DATA[:5]


def test_ignored_range(tos, wire):
    tos.faults.add(ignore_range=True, times=1)
    reply = wire.ask("GET", "/key", Range="bytes=0-4")
    assert (reply.status, reply.body) == (200, DATA)
    assert tos.requests[-1].range == "bytes=0-4"


# -- answers that are right but unusual


def test_chunked_answer(tos, wire):
    tos.faults.add(chunk_bytes=1000, times=1)
    reply = wire.ask("GET", "/key")
    assert "content-length" not in reply.headers
    assert reply.body == DATA
    assert wire.ask("GET", "/key").body == DATA


def test_interim_answers(tos, wire):
    tos.faults.add(interim=(102, 103), times=1)
    reply = wire.ask("GET", "/key")
    assert (reply.interim, reply.status, reply.body) == ([102, 103], 200, DATA)


def test_connection_close(tos, wire):
    tos.faults.add(close=True, times=1)
    assert wire.ask("GET", "/key").headers["connection"] == "close"
    assert wire.at_end()


def test_idle_connection_closed_without_a_word(tos, wire):
    tos.faults.add(close_idle=True, times=1)
    reply = wire.ask("GET", "/key")
    assert "connection" not in reply.headers
    assert reply.body == DATA
    assert wire.at_end()


# -- time and rate


def test_delays_do_not_hold_up_others(tos, wire):
    tos.faults.add(key="slow", delay_s=0.3)
    wire.send("GET", "/slow")
    with Wire(tos) as other:
        assert other.ask("GET", "/key").status == 200
    assert [record.status for record in tos.requests] == [0, 200]
    assert wire.reply().status == 404


def test_bandwidth_bounds_both_directions(tos, wire):
    tos.faults.add(bandwidth_bytes_s=1_000_000)
    began = time.monotonic()
    assert wire.ask("GET", "/key").body == DATA
    assert wire.ask("PUT", "/paced", DATA).status == 200
    assert time.monotonic() - began >= 2 * len(DATA) / 1_000_000 - 0.01
    assert tos.get("bkt", "paced") == DATA


def test_paced_connections_run_beside_each_other(tos):
    tos.faults.add(bandwidth_bytes_s=1_000_000)
    with Wire(tos) as first, Wire(tos) as second:
        first.send("GET", "/key")
        second.send("GET", "/key")
        assert first.reply().body == DATA
        # Both began together, so what one has received when the other is through is nearly all.
        waiting = second.socket.recv(len(DATA), socket.MSG_PEEK | socket.MSG_DONTWAIT)
        assert len(waiting) > len(DATA) // 2


def test_slow_accept(tos):
    tos.faults.add(accept_delay_s=0.1, times=1)
    began = time.monotonic()
    with Wire(tos) as wire:
        assert wire.ask("GET", "/key").status == 200
    assert time.monotonic() - began >= 0.1
