"""Answers of the control plane that are wrong: too long, too slow, not what they should be. Bounded, and told apart."""

import resource
import threading
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import answer, read_request, serving

from tosnative.errors import TosAccessError, TosException, TosNotFoundError, TosTimeoutError, TosUnavailableError

ENDLESS = 200_000_000


def copy(client: Any) -> Any:
    return client.copy("test", "a", "test", "b")


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize("chunked", [False, True])
def test_a_body_without_end_is_cut(make_client: MakeClient, status: int, chunked: bool) -> None:
    sent = 0

    def endless(connection: Any) -> None:
        nonlocal sent
        read_request(connection)
        framing = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: 9000000000"
        connection.sendall(b"HTTP/1.1 %d No\r\n%s\r\n\r\n" % (status, framing))
        while sent < ENDLESS:
            connection.sendall(b"10000\r\n" + b"x" * 0x10000 + b"\r\n" if chunked else b"x" * 0x10000)
            sent += 0x10000

    with serving(endless) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=0)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        with pytest.raises(TosAccessError if status == 403 else TosException) as caught:
            copy(client)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # KiB
        assert sent < ENDLESS
        assert len(str(caught.value)) < 2000
        check_error(caught.value)


def test_a_trickle_is_no_progress(make_client: MakeClient) -> None:
    def trickle(connection: Any) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            threading.Event().wait(0.02)
            connection.sendall(b" ")

    with serving(trickle) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=0, stall_timeout_s=0.3)
        with pytest.raises(TosTimeoutError, match="fewer than 4096 bytes") as caught:
            copy(client)
        check_error(caught.value)


BODIES = [b"", b"<html>\nno</html>", b"[1]", b"\xff" * 100, b'{"Code": "a\\nb", "Message": "no\\ud800"}', b"[" * 60_000]


@pytest.mark.parametrize("body", BODIES)
@pytest.mark.parametrize(
    ("status", "kind"), [(403, TosAccessError), (503, TosUnavailableError), (404, TosNotFoundError)]
)
def test_an_error_is_told_by_its_status_whatever_its_body(
    make_client: MakeClient, body: bytes, status: int, kind: type[TosException]
) -> None:
    stream = b"HTTP/1.1 %d No\r\nContent-Length: %d\r\nx-tos-request-id: r1\r\n\r\n%s" % (status, len(body), body)
    with serving(answer(stream)) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=0)
        with pytest.raises(kind) as caught:
            copy(client)
        assert caught.value.error.request_id == "r1"
        assert str(caught.value).isprintable()
        check_error(caught.value)


def test_a_head_may_say_how_long_the_error_would_be(make_client: MakeClient) -> None:
    with serving(answer(b"HTTP/1.1 404 No\r\nContent-Length: 77\r\nx-tos-request-id: r1\r\n\r\n")) as server:
        with pytest.raises(TosNotFoundError) as caught:
            make_client(endpoint=server.endpoint, max_retry_count=0).head("test", "k")
        check_error(caught.value)
