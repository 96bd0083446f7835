"""Downloads at the socket: what goes wrong on the way, and what the caller gets."""

import os
import threading
import time
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import answer, read_request, serving, whole

from tosnative.client import TosClient
from tosnative.errors import (
    TosChangedError,
    TosConnectionError,
    TosException,
    TosIntegrityError,
    TosNotFoundError,
    TosTimeoutError,
    TosUnavailableError,
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


def ranges(tos: LocalTos) -> list[str | None]:
    return [request.range for request in tos.requests]


# -- the straight path


@pytest.mark.parametrize(
    ("start", "stop", "expected"),
    [
        (0, None, SMALL),
        (0, 1000, SMALL),
        (0, 5000, SMALL),
        (5, None, SMALL[5:]),
        (5, 10, SMALL[5:10]),
        (999, 1000, SMALL[999:]),
        (999, 5000, SMALL[999:]),
        (1000, 1001, b""),
        (5000, None, b""),
    ],
)
def test_ranges_are_half_open_and_clamped(client: TosClient, start: int, stop: int | None, expected: bytes) -> None:
    got = client.get("test", "small", start, stop).wait()
    assert got.getvalue() == expected
    assert got.length == len(expected)
    assert bytes(got.view) == expected
    assert got.meta.size == 1000
    assert got.done
    assert got.error is None


@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 100), (7, None), (7, 9)])
def test_an_empty_object_reads_as_nothing_with_any_range(client: TosClient, start: int, stop: int | None) -> None:
    got = client.get("test", "empty", start, stop).wait()
    assert (got.getvalue(), got.length, got.meta.size) == (b"", 0, 0)


def test_small_objects_cost_one_get_and_no_head(tos: LocalTos, client: TosClient) -> None:
    got = client.get("test", "small").wait()
    assert [(r.method, r.range) for r in tos.requests] == [("GET", None)]
    assert got.verified
    assert got.meta.crc64 == got.crc64()


def test_without_the_check_nothing_is_pretended(client: TosClient) -> None:
    assert client.get("test", "small", check_crc=False).wait().verified is False
    assert client.get("test", "small", 0, 999).wait().verified is False


def test_into_the_caller_s_own_buffer(client: TosClient) -> None:
    buffer = bytearray(3_000_000)
    got = client.get("test", "big", 1000, 2_000_000, into=memoryview(buffer)[1000:2_000_000]).wait()
    assert buffer[1000:2_000_000] == BODY[1000:2_000_000]
    assert not any(buffer[:1000])
    assert not any(buffer[2_000_000:])
    assert got.getvalue() == BODY[1000:2_000_000]


def test_a_buffer_that_is_too_small_is_an_error_and_is_not_overrun(client: TosClient) -> None:
    buffer = bytearray(20)
    with pytest.raises(TosException, match="do not fit") as caught:
        client.get("test", "small", into=memoryview(buffer)[:10]).wait()
    check_error(caught.value)
    assert not any(buffer)


def test_an_array_on_the_view_keeps_the_bytes(client: TosClient) -> None:
    got = client.get("test", "small").wait()
    with memoryview(got.view) as held:
        assert got.getvalue() == SMALL
        assert held == SMALL


def test_many_at_once_each_its_own(tos: LocalTos, client: TosClient) -> None:
    bodies = {f"k{n}": os.urandom(n * 37 % 5000) for n in range(300)}
    for key, body in bodies.items():
        tos.put("test", key, body)
    downloads = [client.download("test", key) for key in bodies]
    client.submit(downloads)
    for download in downloads:
        assert download.wait().getvalue() == bodies[download.key]


def test_never_submitted_is_an_error_not_a_hang(client: TosClient) -> None:
    with pytest.raises(RuntimeError, match="never submitted"):
        client.download("test", "small").wait()


# -- connections that break


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reset_without_an_answer_is_tried_again(tos: LocalTos, client: TosClient, when: str) -> None:
    fault = tos.faults.add(method="GET", times=2, reset=when)
    assert client.get("test", "small").wait().getvalue() == SMALL
    assert fault.hits == 2


@pytest.mark.parametrize("how", ["reset_after_bytes", "truncate_after_bytes"])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 3_000_000), (1000, 2_500_000), (1000, None)])
def test_a_broken_body_resumes_at_the_byte_pinned_to_its_version(
    tos: LocalTos, client: TosClient, how: str, start: int, stop: int | None
) -> None:
    tos.faults.add(method="GET", times=2, **{how: 700_000})
    got = client.get("test", "big", start, stop).wait()
    assert got.getvalue() == BODY[start:stop]
    assert got.verified is (got.length == got.meta.size)
    first, *more = tos.requests
    assert "if-match" not in first.headers
    assert len(more) == 2
    at = start
    for request in more:
        assert request.headers["if-match"] == f'"{got.meta.etag}"'
        resumed, _, end = (request.range or "").removeprefix("bytes=").partition("-")
        assert at < int(resumed) <= at + 700_000, "it went on where it broke"
        assert end == ("" if stop is None else str(stop - 1))
        at = int(resumed)
    assert at > start


def test_every_byte_of_a_truncated_body_is_kept(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", times=1, truncate_after_bytes=400_000)
    client.get("test", "big").wait()
    assert ranges(tos) == [None, "bytes=400000-"]


def test_an_idle_connection_closed_as_it_is_used_costs_one_silent_retry(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=0)
    client.get("test", "small").wait()
    tos.faults.add(reused=True, reset="before", times=1)
    assert client.get("test", "small").wait().getvalue() == SMALL


def test_connections_closed_while_idle_are_replaced(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=0)
    tos.faults.add(times=3, close_idle=True)
    for _ in range(5):
        assert client.get("test", "small").wait().getvalue() == SMALL


def test_connection_close_is_honoured(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=0)
    tos.faults.add(times=2, close=True)
    for _ in range(4):
        assert client.get("test", "small").wait().getvalue() == SMALL
    assert len({request.connection for request in tos.requests}) == 3


def test_giving_up_tells_the_whole_story(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=3)
    tos.faults.add(method="GET", reset="before")
    with pytest.raises(TosConnectionError) as caught:
        client.get("test", "small").wait()
    error = caught.value.error
    assert (error.bucket, error.key, error.operation) == ("test", "small", "GET")
    assert len(error.attempts) == 3
    assert error.elapsed_s is not None
    assert "GET tos://test/small: " in str(caught.value)
    assert "gave up after 4 attempts" in str(caught.value)
    check_error(caught.value)
    with pytest.raises(TosConnectionError):
        client.get("test", "small").wait()


def test_the_error_is_raised_at_every_wait(tos: LocalTos, client: TosClient) -> None:
    got = client.get("test", "missing")
    for _ in range(3):
        with pytest.raises(TosNotFoundError):
            got.wait()
    assert isinstance(got.error, TosNotFoundError)


# -- answers that are unusual, and right


@pytest.mark.parametrize("size", [1, 1000, 70_000])
@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 1000), (5, 900)])
def test_chunked_answers(tos: LocalTos, client: TosClient, size: int, start: int, stop: int | None) -> None:
    tos.faults.add(chunk_bytes=size)
    for _ in range(2):
        assert client.get("test", "small", start, stop).wait().getvalue() == SMALL[start:stop]
    assert len({request.connection for request in tos.requests}) == 1


def test_interim_answers_are_passed_over(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(interim=(102, 103, 103), times=1)
    assert client.get("test", "small").wait().getvalue() == SMALL


@pytest.mark.parametrize("cut", [1, 7, 20, 60])
def test_any_number_of_interim_answers_in_pieces_of_any_size(make_client: MakeClient, cut: int) -> None:
    stream = b"HTTP/1.1 103 Early Hints\r\nLink: <a>\r\n\r\n" * (2000 if cut == 60 else 5) + whole(b"body")

    with serving(answer(*(stream[at : at + cut] for at in range(0, len(stream), cut)))) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=0)
        assert client.get("test", "k").wait().getvalue() == b"body"


def test_an_answer_byte_by_byte(make_client: MakeClient) -> None:
    stream = whole(SMALL)
    with serving(answer(*(stream[at : at + 1] for at in range(len(stream))))) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=0)
        assert client.get("test", "k").wait().getvalue() == SMALL


def test_a_body_until_the_end_of_its_connection(make_client: MakeClient) -> None:
    with serving(answer(b"HTTP/1.1 200 OK\r\n\r\n", SMALL)) as server:
        assert make_client(endpoint=server.endpoint).get("test", "k").wait().getvalue() == SMALL
    with serving(answer(b"HTTP/1.0 200 OK\r\nContent-Length: 4\r\n\r\nbody")) as server:
        assert make_client(endpoint=server.endpoint).get("test", "k").wait().getvalue() == b"body"


# -- answers that are wrong


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


# -- versions


@pytest.mark.parametrize(("start", "stop"), [(0, None), (1000, 2_000_000)])
def test_an_object_replaced_between_attempts_is_never_mixed(
    tos: LocalTos, client: TosClient, start: int, stop: int | None
) -> None:
    tos.faults.add(times=1, skip=1, status=503, retry_after_s=1)
    tos.faults.add(times=1, truncate_after_bytes=400_000)
    got = client.get("test", "big", start, stop)
    while len(tos.requests) < 2:
        time.sleep(0.002)
    tos.put("test", "big", BODY[::-1])
    with pytest.raises(TosChangedError, match="read it again from the start") as caught:
        got.wait()
    check_error(caught.value)
    assert len(tos.requests) == 3


def test_another_version_than_asked_for(tos: LocalTos, client: TosClient) -> None:
    etag = client.head("test", "small").etag
    assert client.get("test", "small", etag=etag).wait().getvalue() == SMALL
    tos.put("test", "small", SMALL + b"x")
    before = len(tos.requests)
    for start, stop in ((0, None), (5, 10)):
        with pytest.raises(TosChangedError, match="changed") as caught:
            client.get("test", "small", start, stop, etag=etag).wait()
        assert caught.value.error.status_code == 412
        assert caught.value.error.request_id
        check_error(caught.value)
    assert len(tos.requests) == before + 2, "not tried again"


# -- slowness


def test_no_answer_is_given_up_and_tried_on_another_connection(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(first_byte_timeout_s=0.3)
    fault = tos.faults.add(method="GET", times=1, hang="before")
    assert client.get("test", "small").wait().getvalue() == SMALL
    assert fault.hits == 1
    first, second = tos.requests
    assert first.connection != second.connection


def test_never_an_answer_is_a_timeout(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(first_byte_timeout_s=0.2, max_retry_count=1)
    tos.faults.add(method="GET", hang="before")
    with pytest.raises(TosTimeoutError, match=r"no answer in 0\.2 s") as caught:
        client.get("test", "small").wait()
    check_error(caught.value)


def test_a_stalled_body_is_replaced_where_it_stopped(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(stall_timeout_s=0.3)
    tos.faults.add(method="GET", times=1, stall_after_bytes=500_000)
    got = client.get("test", "big").wait()
    assert got.getvalue() == BODY
    assert ranges(tos) == [None, "bytes=500000-"]


def test_a_head_that_never_ends_counts_as_no_answer(make_client: MakeClient) -> None:
    def drip(connection: Any) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X: y\r\n")
            time.sleep(0.02)

    with serving(drip) as server:
        client = make_client(endpoint=server.endpoint, first_byte_timeout_s=0.3, max_retry_count=0)
        with pytest.raises(TosTimeoutError):
            client.get("test", "k").wait()


# -- a service that asks for patience


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_trouble_that_passes(tos: LocalTos, client: TosClient, status: int) -> None:
    fault = tos.faults.add(method="GET", times=3, status=status)
    assert client.get("test", "small").wait().getvalue() == SMALL
    assert fault.hits == 3
    assert len({request.connection for request in tos.requests}) == 1, "a refusal is no reason for a new connection"


def test_retry_after_is_waited_for(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", times=1, status=503, retry_after_s=1)
    assert client.get("test", "small").wait().getvalue() == SMALL
    first, second = tos.requests
    assert second.arrived - first.arrived >= 1.0


def test_trouble_that_does_not_pass_is_told_with_ids_and_code(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=2)
    tos.faults.add(method="GET", status=503, code="SlowDown", message="please slow down")
    with pytest.raises(TosUnavailableError, match="please slow down") as caught:
        client.get("test", "small").wait()
    error = caught.value.error
    assert (error.status_code, error.code) == (503, "SlowDown")
    assert error.request_id
    assert len(error.attempts) == 2
    assert all("request id" in attempt for attempt in error.attempts)
    check_error(caught.value)


def test_a_retry_after_past_the_deadline_is_not_waited_for(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(deadline_s=5.0)
    tos.faults.add(method="GET", status=503, retry_after_s=3600)
    with pytest.raises(TosUnavailableError):
        client.get("test", "small").wait()
    assert len(tos.requests) == 1


@pytest.mark.parametrize("body", [b"", b"<html>no</html>", b"[1]", b"\xff" * 100, b'{"Code": 5, "Message": null}'])
@pytest.mark.parametrize("chunked", [False, True])
def test_error_bodies_of_every_kind(make_client: MakeClient, body: bytes, chunked: bool) -> None:
    framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % len(body)
    payload = (b"%x\r\n%s\r\n" % (len(body), body) if body else b"") + b"0\r\n\r\n" if chunked else body
    stream = b"HTTP/1.1 403 No\r\n%s\r\nx-tos-request-id: r1\r\n\r\n%s" % (framing, payload)
    with serving(answer(stream)) as server:
        with pytest.raises(PermissionError) as caught:
            make_client(endpoint=server.endpoint).get("test", "k").wait()
        assert caught.value.error.request_id == "r1"  # type: ignore[attr-defined]
        check_error(caught.value)


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
