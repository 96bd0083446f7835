"""When an exchange is too slow: decided from what a channel has done, at moments that are given."""

import logging
import socket
from collections.abc import Iterator

import pytest
from conftest import AK, SK

from tosnative.client import TosClient
from tosnative.config import ConnectionOptions
from tosnative.credentials import CredentialProvider
from tosnative.wire.channel import Channel
from tosnative.wire.fast_channel import make_channel
from tosnative.wire.retry import Attempts, Kind
from tosnative.wire.scratch import Scratch
from tosnative.wire.transfer import Transfer
from tosnative.wire.upkeep import too_slow
from tosnative.wire.upload import Upload

OPTIONS = ConnectionOptions(first_byte_timeout_s=30, stall_timeout_s=20)
CLIENT = TosClient(endpoint="http://127.0.0.1:1", region="r", cred=CredentialProvider(AK, SK))


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    with ours, theirs:
        yield ours, theirs


def begin(sock: socket.socket, transfer: Transfer | None = None) -> Channel:
    channel = make_channel(sock)
    transfer = transfer or CLIENT.download("test", "k")
    transfer.attempts = Attempts(0.0)
    channel.start(transfer, b"GET / HTTP/1.1\r\n\r\n", 0.0)
    return channel


def test_no_answer_warns_once_then_fails(
    sockets: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    channel = begin(sockets[0])
    assert too_slow(channel, 100.0, OPTIONS) is None
    assert too_slow(channel, 109.0, OPTIONS) is None
    assert caplog.records == []
    for moment in (110.5, 115.0, 129.9):
        assert too_slow(channel, moment, OPTIONS) is None
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "GET tos://test/k: nothing comes before an answer for 10 s (attempt 1, from" in record.getMessage()
    failure = too_slow(channel, 130.1, OPTIONS)
    assert failure is not None
    assert failure.kind is Kind.SLOW


def test_a_body_must_move_in_every_interval(
    sockets: tuple[socket.socket, socket.socket], caplog: pytest.LogCaptureFixture
) -> None:
    ours, theirs = sockets
    channel, scratch = begin(ours), Scratch()
    theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + bytes(5000))
    assert not channel.read(scratch)
    now = 100.0
    assert too_slow(channel, now, OPTIONS) is None
    for _ in range(5):
        theirs.sendall(bytes(5000))
        assert not channel.read(scratch)
        now += 19.0
        assert too_slow(channel, now, OPTIONS) is None
    theirs.sendall(bytes(1000))
    channel.read(scratch)
    assert too_slow(channel, now + 19.0, OPTIONS) is None, "a little is not nothing, yet"
    assert "nothing comes after 31000 of 100000 bytes" in caplog.text
    failure = too_slow(channel, now + 20.1, OPTIONS)
    assert failure is not None
    assert "stalled after 31000 of 100000 bytes" in str(failure)


def test_sending_must_move_too(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = sockets
    channel = begin(ours, Upload(CLIENT._target("test"), "test", "k", memoryview(bytearray(50_000_000))))
    assert channel.sending
    assert too_slow(channel, 100.0, OPTIONS) is None
    received = 0
    while received < 1_000_000:
        received += len(theirs.recv(1 << 20))
        channel.write()
    assert too_slow(channel, 119.0, OPTIONS) is None
    assert too_slow(channel, 138.0, OPTIONS) is None
    failure = too_slow(channel, 140.1, OPTIONS)
    assert failure is not None
    assert "stalled while sending" in str(failure)
