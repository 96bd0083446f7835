"""Downloads when all goes well, in unusual answers, and of one version only."""

import os
import time

import pytest
from conftest import MakeClient, check_error
from raw_server import answer, serving, whole

from tosnative.client import TosClient
from tosnative.errors import (
    TosChangedError,
    TosException,
)
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
