"""A window of 503 or 429 at the socket: reads, uploads and control calls come through it, with few requests and not together."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import read_request, serving

from tosnative.errors import TosUnavailableError
from tosnative.metrics import METRICS
from tosnative.testing import LocalTos

BODY = os.urandom(1000)
COUNT = 30


@pytest.fixture(autouse=True)
def objects(tos: LocalTos) -> None:
    for number in range(COUNT):
        tos.put("test", f"k{number}", BODY)


def exercise(client: Any) -> None:
    """Reads and uploads side by side, then the control plane."""
    reads = [client.download("test", f"k{number}") for number in range(COUNT)]
    client.submit(reads)
    writes = [client.put("test", f"new{number}", BODY) for number in range(COUNT)]
    for transfer in (*reads, *writes):
        transfer.wait()
    assert all(read.getvalue() == BODY for read in reads)
    assert client.head("test", "new0").size == len(BODY)


@pytest.mark.parametrize("status", [503, 429])
def test_everything_comes_through_a_window_in_which_the_service_asks_for_patience(
    tos: LocalTos, make_client: MakeClient, status: int
) -> None:
    client = make_client(shared_prefetch_tasks=16)
    before = METRICS.throttled
    rule = tos.faults.add(status=status, retry_after_s=1, for_s=0.8)
    exercise(client)
    hit, later = tos.requests[: rule.hits], tos.requests[rule.hits :]
    assert METRICS.throttled - before >= rule.hits
    assert rule.hits <= 2 * COUNT, "each is asked once in the window: nobody comes back before he was told to"
    assert len(tos.requests) <= 2 * COUNT + 1 + rule.hits
    assert min(request.arrived for request in later) - hit[0].arrived >= 1.0
    for number in range(COUNT):
        assert tos.get("test", f"new{number}") == BODY


def test_the_control_plane_waits_too(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client()
    tos.faults.add(times=1, status=503, retry_after_s=1)
    client.copy("test", "k0", "test", "copied")
    first, second = tos.requests
    assert second.arrived - first.arrived >= 1.0
    assert tos.get("test", "copied") == BODY


def test_a_date_to_come_back_at_is_heeded_by_the_control_plane(make_client: MakeClient) -> None:
    dates = b"Date: Wed, 21 Oct 2015 07:27:59 GMT\r\nRetry-After: Wed, 21 Oct 2015 07:28:00 GMT"
    moments: list[float] = []

    def script(connection: socket.socket) -> None:
        read_request(connection)
        moments.append(time.monotonic())
        connection.sendall(b"HTTP/1.1 503 No\r\nConnection: close\r\nContent-Length: 0\r\n%s\r\n\r\n" % dates)

    with serving(script) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=1)
        with pytest.raises(TosUnavailableError):
            client.head("test", "k")
    assert moments[1] - moments[0] >= 1.0


def test_giving_up_tells_every_answer_on_both_planes(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=3)
    tos.faults.add(status=503, code="SlowDown", message="please slow down", retry_after_s=0)
    for ask in (
        lambda: client.get("test", "k0").wait(),
        lambda: client.put("test", "k0", BODY).wait(),
        lambda: client.create_upload("test", "k0"),
    ):
        tos.clear_requests()
        with pytest.raises(TosUnavailableError, match="please slow down") as caught:
            ask()
        error = caught.value.error
        assert len(error.attempts) == 3 == len(tos.requests) - 1
        assert all("request id" in attempt for attempt in error.attempts)
        assert error.request_id
        assert len({error.request_id, *error.attempts}) == 4, "each attempt has an id of its own"
        assert error.elapsed_s is not None
        assert "lower the number of workers" in str(caught.value)
        check_error(caught.value)
