"""Nothing waits for ever: not for a connection, a handshake, a proxy's word; and a body that flows is not raced."""

from __future__ import annotations

import socket
import threading
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import RawServer, read_request, serving, whole

from tosnative.errors import TosConnectionError, TosException, TosTimeoutError
from tosnative.metrics import METRICS
from tosnative.testing import LocalTos


def silent(connection: socket.socket) -> None:
    """Take whatever comes, and say nothing."""
    while connection.recv(65536):
        pass


def both_planes(client: Any) -> list[Any]:
    return [
        lambda: client.get("test", "k").wait(),
        lambda: client.put("test", "k", b"body").wait(),
        lambda: client.head("test", "k"),
    ]


def test_a_tls_handshake_that_is_never_answered(make_client: MakeClient) -> None:
    with serving(silent) as server:
        client = make_client(
            endpoint=server.endpoint.replace("http:", "https:"), connect_timeout_s=0.3, first_byte_timeout_s=0.3,
            max_retry_count=1,
        )  # fmt: skip
        for ask in both_planes(client):
            with pytest.raises((TosConnectionError, TosTimeoutError)) as caught:
                ask()
            check_error(caught.value)


def test_a_proxy_that_never_answers_connect(make_client: MakeClient) -> None:
    with serving(silent) as server:
        client = make_client(
            endpoint="https://tos.nowhere.invalid", proxy=f"http://user:p4ssw0rd@127.0.0.1:{server.port}",
            connect_timeout_s=0.3, first_byte_timeout_s=0.3, max_retry_count=1,
        )  # fmt: skip
        for ask in both_planes(client):
            with pytest.raises((TosConnectionError, TosTimeoutError)) as caught:
                ask()
            assert "p4ssw0rd" not in str(caught.value)
            check_error(caught.value)


@pytest.mark.parametrize("answer", [b"x" * 5_000_000, b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 200_000, b"\0\r\n\r\n"])
def test_a_proxy_that_answers_connect_with_nonsense(make_client: MakeClient, answer: bytes) -> None:
    def script(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(answer)

    with serving(script) as server:
        client = make_client(
            endpoint="https://tos.nowhere.invalid", proxy=f"http://user:p4ssw0rd@127.0.0.1:{server.port}",
            connect_timeout_s=1.0, max_retry_count=1,
        )  # fmt: skip
        for ask in both_planes(client):
            with pytest.raises(TosException) as caught:
                ask()
            assert len(str(caught.value)) < 3000
            assert "p4ssw0rd" not in str(caught.value)
            check_error(caught.value)


def test_a_connection_that_cannot_be_made_in_time(make_client: MakeClient) -> None:
    with (
        socket.create_server(("127.0.0.1", 0), backlog=0) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        client = make_client(
            endpoint=f"http://127.0.0.1:{listener.getsockname()[1]}", connect_timeout_s=0.3, max_retry_count=1
        )
        for ask in both_planes(client):
            with pytest.raises((TosConnectionError, TosTimeoutError)) as caught:
                ask()
            check_error(caught.value)


def test_a_control_answer_that_stops_in_the_middle(make_client: MakeClient) -> None:
    def script(connection: socket.socket) -> None:
        read_request(connection)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{")
        silent(connection)

    with serving(script) as server:
        client = make_client(endpoint=server.endpoint, first_byte_timeout_s=0.3, stall_timeout_s=0.3, max_retry_count=1)
        for ask in (lambda: client.copy("test", "a", "test", "b"), lambda: client.list_page("test")):
            with pytest.raises((TosTimeoutError, TosConnectionError)) as caught:
                ask()
            check_error(caught.value)


def test_interim_answers_without_end_are_no_answer(make_client: MakeClient) -> None:
    def script(connection: socket.socket) -> None:
        read_request(connection)
        while True:
            connection.sendall(b"HTTP/1.1 103 Hints\r\nLink: <x>\r\n\r\n" * 100)

    with serving(script) as server:
        client = make_client(endpoint=server.endpoint, first_byte_timeout_s=0.3, max_retry_count=0)
        for ask in both_planes(client)[:2]:
            with pytest.raises(TosTimeoutError) as caught:
                ask()
            check_error(caught.value)


def counting(pieces: list[bytes], gate: threading.Event) -> Any:
    """Answer requests whole until the pieces run out; then the head and half of a body, and the rest after the gate."""

    def script(connection: socket.socket) -> None:
        while read_request(connection):
            if pieces:
                connection.sendall(pieces.pop())
            else:
                full = whole(b"0123456789")
                connection.sendall(full[:-5])
                gate.wait(10)
                connection.sendall(full[-5:])

    return script


def test_a_body_that_has_begun_is_not_raced(make_client: MakeClient) -> None:
    gate = threading.Event()
    with serving(counting([whole(b"body")] * 64, gate)) as server:
        client = make_client(endpoint=server.endpoint, hedge_percent=100)
        for _ in range(64):
            assert client.get("test", "k").wait().getvalue() == b"body"
        before, buffer = METRICS.hedges, bytearray(10)
        got = client.get("test", "k", into=memoryview(buffer))
        opened = _settle(server, lambda: buffer[:5] == b"01234")
        looks = threading.Event()
        looks.wait(0.5)  # many times what is late: the engine has looked a hundred times
        assert not got.done
        assert (METRICS.hedges, server.accepted) == (before, opened)
        gate.set()
        assert got.wait().getvalue() == b"0123456789"


def _settle(server: RawServer, condition: Any) -> int:
    """Wait until it is so; the test's timeout bounds it. Returns the connections so far."""
    while not condition():
        threading.Event().wait(0.002)
    return server.accepted


def test_the_loser_of_a_race_is_closed_at_the_winner_s_head(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(hedge_percent=100)
    body = bytes(range(256)) * 4000
    tos.put("test", "k", b"small")
    tos.put("test", "big", body)
    for _ in range(64):
        client.get("test", "k").wait()
    tos.clear_requests()
    tos.faults.add(method="GET", times=1, hang="before")
    buffer = bytearray(len(body))
    assert client.get("test", "big", into=memoryview(buffer)).wait().verified
    assert buffer == body
    first, second = tos.requests
    assert first.connection != second.connection
    while tos.connections > 1 + 16:
        threading.Event().wait(0.002)
    tos.clear_requests()
    for _ in range(10):
        client.get("test", "k").wait()
    assert first.connection not in {request.connection for request in tos.requests}, "it is not used again"
