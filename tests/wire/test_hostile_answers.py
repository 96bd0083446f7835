"""Answers that are wrong: never taken for the right bytes, bounded, and an error that names the key."""

import os
import threading
import time
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import answer, read_request, serving, whole

from tosnative.client import TosClient
from tosnative.errors import (
    TosException,
    TosIntegrityError,
)
from tosnative.metrics import METRICS
from tosnative.testing import LocalTos

BODY = os.urandom(3_000_000)
SMALL = BODY[:1000]


@pytest.fixture(autouse=True)
def objects(tos: LocalTos) -> None:
    tos.put("test", "big", BODY)
    tos.put("test", "small", SMALL)
    tos.put("test", "empty", b"")


@pytest.mark.parametrize(
    "answer_",
    [
        b"garbage\r\n\r\n",
        b"\x16\x03\x01\x00\xa5" * 40 + b"\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\nContent-Length: 0\r\n\r\n",
        b"HTTP/1.1 103 Hints\r\n\r\nHTTP/1.1 200 OK\r\nX: " + b"a" * 70_000 + b"\r\n\r\n",
        b"a" * 300_000,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nx-tos-hash-crc64ecma: many\r\n\r\nhello",
        b"HTTP/1.1 206 Partial\r\nContent-Length: 5\r\nContent-Range: bytes 0-4/9\r\n\r\nhello",
    ],
)
def test_what_is_no_answer_is_an_error_after_a_few_tries(make_client: MakeClient, answer_: bytes) -> None:
    with serving(answer(answer_)) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=2)
        with pytest.raises(TosIntegrityError) as caught:
            client.get("test", "k").wait()
        check_error(caught.value)
        assert server.accepted == 3


def test_a_length_that_no_memory_holds_fails_this_transfer_only(make_client: MakeClient) -> None:
    huge = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000000000000000\r\n\r\n"
    with serving(answer(huge), answer(whole(b"body"))) as server:
        client = make_client(endpoint=server.endpoint)
        with pytest.raises(TosException, match="cannot be taken"):
            client.get("test", "k").wait()
        assert client.get("test", "k").wait().getvalue() == b"body"


def test_more_bytes_than_announced_are_never_another_answer(make_client: MakeClient) -> None:
    stream = whole(b"first") + whole(b"smuggled")
    with serving(answer(stream), answer(whole(b"second"))) as server:
        client = make_client(endpoint=server.endpoint)
        assert client.get("test", "a").wait().getvalue() == b"first"
        assert client.get("test", "b").wait().getvalue() == b"second"


@pytest.mark.parametrize("value", ["bytes 5-14/1000", "bytes 0-9/1000", "bytes 1-999/1000", "bytes */1000", "nonsense"])
def test_a_wrong_content_range_is_never_taken_for_the_right_bytes(
    tos: LocalTos, make_client: MakeClient, value: str
) -> None:
    client = make_client(max_retry_count=2)
    fault = tos.faults.add(content_range=value)
    with pytest.raises(TosIntegrityError):
        client.get("test", "small", 1, 11).wait()
    assert fault.hits == 3
    tos.faults.clear()
    tos.faults.add(content_range=value, times=1)
    assert client.get("test", "small", 1, 11).wait().getvalue() == SMALL[1:11]


@pytest.mark.parametrize("value", [b"bytes 0-0/1", b"bytes */1000", b"nonsense"])
def test_a_416_that_contradicts_itself_is_not_believed(make_client: MakeClient, value: bytes) -> None:
    lie = b"HTTP/1.1 416 No\r\nContent-Length: 0\r\nContent-Range: %s\r\n\r\n" % value
    right = b"HTTP/1.1 206 Partial\r\nContent-Length: 1\r\nContent-Range: bytes 5-5/6\r\n\r\nx"
    with serving(answer(lie), answer(right)) as server:
        assert make_client(endpoint=server.endpoint).get("test", "k", 5).wait().getvalue() == b"x"


@pytest.mark.parametrize(("start", "stop"), [(0, 10), (5, 10), (5, None)])
def test_a_range_answered_with_the_whole_object(tos: LocalTos, make_client: MakeClient, start: int, stop: Any) -> None:
    client = make_client(max_retry_count=1)
    tos.faults.add(ignore_range=True)
    with pytest.raises(TosIntegrityError, match="asked for"):
        client.get("test", "small", start, stop).wait()


def test_the_whole_object_is_as_good_as_a_range_that_covers_it(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(ignore_range=True)
    assert client.get("test", "small", 0, 5000).wait().getvalue() == SMALL


def test_a_body_that_is_too_long(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=1)
    tos.faults.add(extra_bytes=3)
    with pytest.raises(TosIntegrityError):
        client.get("test", "small", 5, 10).wait()
    with pytest.raises(TosIntegrityError, match="CRC64"):
        client.get("test", "small").wait()


def test_a_flipped_byte_is_found_tried_again_and_named(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=2)
    before = METRICS.integrity_failures
    fault = tos.faults.add(flip_byte_at=500, times=1)
    got = client.get("test", "small").wait()
    assert got.getvalue() == SMALL
    assert got.verified
    assert fault.hits == 1
    assert METRICS.integrity_failures == before + 1
    tos.faults.add(flip_byte_at=500)
    with pytest.raises(TosIntegrityError, match="CRC64") as caught:
        client.get("test", "small").wait()
    assert caught.value.error.key == "small"
    check_error(caught.value)


def test_a_flipped_byte_in_the_caller_s_buffer_is_overwritten(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(flip_byte_at=500, times=1)
    buffer = bytearray(1000)
    assert client.get("test", "small", into=memoryview(buffer)).wait().verified
    assert buffer == SMALL


def test_many_threads_on_one_corrupt_transfer_try_again_once(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(flip_byte_at=500, times=1)
    got = client.get("test", "small")
    values: list[bytes] = []
    threads = [threading.Thread(target=lambda: values.append(got.wait().getvalue())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert values == [SMALL] * 8


def test_without_a_checksum_nothing_is_pretended(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(crc="missing")
    got = client.get("test", "small").wait()
    assert (got.getvalue(), got.verified, got.meta.crc64) == (SMALL, False, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"<html>no</html>",
        b"[1]",
        b"\xff" * 100,
        b'{"Code": 5, "Message": null}',
        b"<p>\nno\x1b[0m",
        b'{"Message": "no\\nno\\ud800", "Code": "a\\rb"}',
        b"[" * 60_000,
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
def test_error_bodies_of_every_kind(make_client: MakeClient, body: bytes, chunked: bool) -> None:
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    payload = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n" if chunked else body
    stream = b"HTTP/1.1 403 No\r\n%s\r\nx-tos-request-id: r1\r\n\r\n%s" % (framing, payload)
    with serving(answer(stream)) as server:
        with pytest.raises(PermissionError) as caught:
            make_client(endpoint=server.endpoint).get("test", "k").wait()
        assert caught.value.error.request_id == "r1"  # type: ignore[attr-defined]
        assert str(caught.value).isprintable()
        check_error(caught.value)


def test_a_date_to_come_back_at_is_the_service_s_own(make_client: MakeClient) -> None:
    """The service's clock is years off: what counts is how far its two dates lie apart."""
    dates = b"Date: Wed, 21 Oct 2015 07:27:59 GMT\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT"
    refusal = b"HTTP/1.1 503 No\r\nContent-Length: 0\r\n%s\r\n\r\n" % dates
    moments: list[float] = []

    def note(stream: bytes) -> Any:
        def script(connection: Any) -> None:
            read_request(connection)
            moments.append(time.monotonic())
            connection.sendall(stream)

        return script

    with serving(note(refusal), note(whole(b"body"))) as server:
        assert make_client(endpoint=server.endpoint).get("test", "k").wait().getvalue() == b"body"
    assert moments[1] - moments[0] >= 1.0


def test_a_refusal_with_a_body_too_deep_to_read_is_still_one_that_passes(make_client: MakeClient) -> None:
    body = b"[" * 60_000
    refusal = b"HTTP/1.1 503 No\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    with serving(answer(refusal), answer(whole(b"body"))) as server:
        assert make_client(endpoint=server.endpoint).get("test", "k").wait().getvalue() == b"body"


@pytest.mark.parametrize("chunked", [False, True])
def test_an_error_body_without_end_is_cut(make_client: MakeClient, chunked: bool) -> None:
    def endless(connection: Any) -> None:
        read_request(connection)
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 9000000000"
        connection.sendall(b"HTTP/1.1 403 No\r\n%s\r\n\r\n" % framing)
        while True:
            connection.sendall(b"2000\r\n" + b"x" * 0x2000 + b"\r\n" if chunked else b"x" * 0x2000)

    with serving(endless) as server:
        with pytest.raises(PermissionError) as caught:
            make_client(endpoint=server.endpoint).get("test", "k").wait()
        assert len(str(caught.value)) < 2000


@pytest.mark.parametrize("etag", ['e"\r\nX-Evil: 1', "e\0", "\ud800"])
def test_an_etag_cannot_begin_another_header(client: TosClient, etag: str) -> None:
    with pytest.raises(ValueError, match="etag"):
        client.download("test", "small", etag=etag)
