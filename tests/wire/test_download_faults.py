"""Downloads over connections that break, services that are slow, and services that ask for patience."""

import os
import time
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import read_request, serving

from tosnative.client import TosClient
from tosnative.errors import (
    TosConnectionError,
    TosNotFoundError,
    TosTimeoutError,
    TosUnavailableError,
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


# -- connections that break


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_reset_without_an_answer_is_tried_again(tos: LocalTos, client: TosClient, when: str) -> None:
    fault = tos.faults.add(method="GET", times=2, reset=when)
    assert client.get("test", "small").wait().getvalue() == SMALL
    assert fault.hits == 2


def test_a_broken_answer_that_told_another_size_is_forgotten(tos: LocalTos, client: TosClient) -> None:
    """The same version cannot have two sizes: what one answer began is not what the next goes on with."""
    tos.faults.add(method="GET", times=1, extra_bytes=7, truncate_after_bytes=700_000)
    got = client.get("test", "big").wait()
    assert got.getvalue() == BODY
    assert got.verified


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
