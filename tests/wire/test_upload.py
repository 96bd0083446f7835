"""Uploads at the socket: sent again until the service has every byte, refused early, checked."""

import os
import socket
import struct
import threading
from typing import Any

import pytest
from conftest import MakeClient, check_error
from raw_server import read_request, serving

from tosnative import crc64
from tosnative.client import TosClient
from tosnative.errors import (
    TosAbortedError,
    TosAccessError,
    TosConnectionError,
    TosExistsError,
    TosIntegrityError,
    TosTimeoutError,
)
from tosnative.metrics import METRICS
from tosnative.testing import LocalTos
from tosnative.wire import fast_channel

DATA = os.urandom(6_000_000)
CRC = crc64.update(DATA)


@pytest.mark.parametrize("kind", [bytes, bytearray, lambda data: memoryview(bytearray(data))])
@pytest.mark.parametrize("size", [0, 1, 1000, 6_000_000])
def test_an_object_in_one_put(tos: LocalTos, client: TosClient, kind: Any, size: int) -> None:
    done = client.put("test", "k", kind(DATA[:size]), crc64=crc64.update(DATA[:size])).wait()
    assert tos.get("test", "k") == DATA[:size]
    assert done.crc64 == crc64.update(DATA[:size])
    assert done.etag


@pytest.mark.parametrize("patience_s", [-1.0, 1e9])
def test_parts_arrive_whole_with_the_gil_kept_or_given_up(
    tos: LocalTos, client: TosClient, monkeypatch: pytest.MonkeyPatch, patience_s: float
) -> None:
    """Which of the two depends on how long a send took; here every one did, or none."""
    monkeypatch.setattr(fast_channel, "_CROWDED_S", patience_s)
    monkeypatch.setattr(fast_channel, "_crowded", 0)
    data = bytearray(os.urandom(9_000_001))
    uploads = [client.put("test", f"many/{number}", data, crc64=crc64.update(data)) for number in range(4)]
    for upload in uploads:
        upload.wait()
    assert all(tos.get("test", f"many/{number}") == data for number in range(4))
    assert (fast_channel._crowded > 0) is (patience_s < 0)


def test_other_items_are_bytes_too(tos: LocalTos, client: TosClient) -> None:
    numbers = memoryview(bytearray(DATA[:4000])).cast("i")
    upload_id = client.create_upload("test", "k")
    part = client.upload_part("test", "k", upload_id, 1, numbers).wait()
    client.complete_upload("test", "k", upload_id, [(1, part.etag)])
    client.put("test", "k2", numbers).wait()
    assert tos.get("test", "k") == tos.get("test", "k2") == DATA[:4000]


def test_headers_are_sent_and_signed(tos: LocalTos, client: TosClient) -> None:
    client.put("test", "k", b"x", content_type="image/png").wait()
    assert tos.requests[-1].headers["content-type"] == "image/png"
    with pytest.raises(TosExistsError) as caught:
        client.put("test", "k", b"y", forbid_overwrite=True).wait()
    check_error(caught.value)
    assert tos.get("test", "k") == b"x"
    with pytest.raises(ValueError, match="control character"):
        client.put("test", "k", b"x", content_type="a\r\nx-evil: 1")


@pytest.mark.parametrize(
    "fault",
    [
        {"reset": "before"},
        {"reset": "after"},
        {"reset_after_request_bytes": 100_000},
        {"status": 503},
        {"status": 429, "retry_after_s": 0},
    ],
)
def test_trouble_that_passes(tos: LocalTos, client: TosClient, fault: dict[str, Any]) -> None:
    rule = tos.faults.add(method="PUT", times=2, **fault)
    assert client.put("test", "k", DATA, crc64=CRC).wait().crc64 == CRC
    assert tos.get("test", "k") == DATA
    assert rule.hits == 2


def test_an_idle_connection_closed_as_it_is_used(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(max_retry_count=0)
    client.put("test", "k", b"x").wait()
    tos.faults.add(reused=True, reset="before", times=1)
    client.put("test", "k", DATA[:1000]).wait()
    assert tos.get("test", "k") == DATA[:1000]


def test_never_answered_is_given_up_on_a_deadline_of_its_own(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(first_byte_timeout_s=0.3, max_retry_count=1)
    tos.faults.add(method="PUT", times=1, hang="after")
    client.put("test", "k", DATA[:1000]).wait()
    tos.faults.add(method="PUT", hang="before")
    with pytest.raises(TosTimeoutError) as caught:
        client.put("test", "k", DATA[:1000]).wait()
    check_error(caught.value)


def test_a_service_that_stops_taking_bytes_is_left(make_client: MakeClient) -> None:
    def deaf(connection: socket.socket) -> None:
        connection.recv(1000)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        while not gone.is_set():
            gone.wait(0.02)

    gone = threading.Event()
    with serving(deaf) as server:
        client = make_client(endpoint=server.endpoint, stall_timeout_s=0.4, max_retry_count=0)
        with pytest.raises(TosTimeoutError, match="stalled while sending") as caught:
            client.put("test", "k", bytearray(40_000_000)).wait()
        gone.set()
    check_error(caught.value)


def refuse(connection: socket.socket, how: str) -> None:
    """403 after the head and a little of the body, without reading the rest; then hang up, or not."""
    read_request(connection)
    body = b'{"Code": "AccessDenied", "Message": "not you"}'
    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    if how == "rst":
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    elif how == "fin":
        connection.shutdown(socket.SHUT_WR)
        while connection.recv(1 << 20):
            pass
    else:
        while connection.recv(1 << 20):
            pass


@pytest.mark.parametrize("how", ["rst", "fin", "stay"])
def test_an_early_refusal_is_heard_while_still_sending(make_client: MakeClient, how: str) -> None:
    with serving(lambda connection: refuse(connection, how)) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=0)
        with pytest.raises((TosAccessError, TosConnectionError)) as caught:
            client.put("test", "k", DATA).wait()
        if how != "rst":  # a reset may overtake the answer inside the network stack
            assert isinstance(caught.value, TosAccessError)
            assert "not you" in str(caught.value)
        check_error(caught.value)


def test_a_refusal_by_the_local_service_while_a_large_body_is_sent(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", status=403, code="AccessDenied")
    for _ in range(3):
        with pytest.raises(TosAccessError):
            client.put("test", "k", DATA).wait()
    tos.faults.clear()
    client.put("test", "k", DATA).wait()
    assert tos.get("test", "k") == DATA


@pytest.mark.parametrize("part", [False, True])
def test_a_wrong_checksum_is_sent_again_then_raised(tos: LocalTos, make_client: MakeClient, part: bool) -> None:
    client = make_client(max_retry_count=2)
    before = METRICS.integrity_failures
    upload_id = client.create_upload("test", "k")

    def send() -> Any:
        if part:
            return client.upload_part("test", "k", upload_id, 1, memoryview(DATA), CRC)
        return client.put("test", "k", DATA, crc64=CRC)

    tos.faults.add(method="PUT", times=1, crc="wrong")
    assert send().wait().crc64 == CRC
    assert METRICS.integrity_failures == before + 1
    fault = tos.faults.add(method="PUT", crc="wrong")
    with pytest.raises(TosIntegrityError, match="CRC64") as caught:
        send().wait()
    assert fault.hits == 3
    assert caught.value.error.key == "k"
    check_error(caught.value)


def test_64_parts_at_once_each_with_its_own_checksum(tos: LocalTos, client: TosClient) -> None:
    upload_id = client.create_upload("test", "k")
    pieces = [os.urandom(200_000) for _ in range(64)]
    parts = [
        client.upload_part("test", "k", upload_id, n, memoryview(piece), crc64.update(piece))
        for n, piece in enumerate(pieces, 1)
    ]
    for part, piece in zip(parts, pieces, strict=True):
        assert part.wait().crc64 == crc64.update(piece)


def test_an_upload_of_a_parent_is_not_waited_for_in_a_child(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", delay_s=0.5)
    upload = client.put("test", "k", b"x")
    pid = os.fork()
    if pid == 0:
        try:
            upload.wait()
        except TosAbortedError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    upload.wait()
    assert tos.get("test", "k") == b"x"
