"""A channel fed through a real socket: any cut of a right answer is the same answer, any other bytes are one Failure."""

import socket
import ssl

import pytest
from conftest import AK, SK
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative.client import TosClient
from tosnative.credentials import CredentialProvider
from tosnative.wire.channel import Channel
from tosnative.wire.download import Download
from tosnative.wire.fast_channel import FastChannel, SocketChannel, make_channel
from tosnative.wire.retry import Failure, Kind
from tosnative.wire.scratch import Scratch

CLIENT = TosClient(endpoint="http://127.0.0.1:1", region="r", cred=CredentialProvider(AK, SK))
SCRATCH = Scratch()
KINDS = [FastChannel, SocketChannel]


def feed(kind: type[Channel], pieces: list[bytes], end: bool = True) -> tuple[Download, Channel, bool]:
    """Send the pieces one after another; returns whether the answer was complete. Raises: Failure."""
    download = CLIENT.download("test", "k", check_crc=False)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        channel = kind(ours)
        channel.start(download, b"GET", 0.0)
        for piece in pieces:
            if piece:
                theirs.sendall(piece)
                if channel.read(SCRATCH):
                    download.finish()
                    return download, channel, True
        if end:
            theirs.shutdown(socket.SHUT_WR)
            if channel.read(SCRATCH):
                download.finish()
                return download, channel, True
    return download, channel, False


def cut(data: bytes, at: list[int]) -> list[bytes]:
    edges = sorted(position % (len(data) + 1) for position in at)
    return [data[a:b] for a, b in zip([0, *edges], [*edges, len(data)], strict=True)]


def answer(body: bytes, form: str, interim: int) -> bytes:
    before = b"HTTP/1.1 103 Hints\r\nLink: <x>\r\n\r\n" * interim
    if form == "length":
        head, payload = b"Content-Length: %d\r\n" % len(body), body
    elif form == "chunked":
        head = b"Transfer-Encoding: chunked\r\n"
        pieces = [body[at : at + 7] for at in range(0, len(body), 7)]
        payload = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces) + b"0\r\n\r\n"
    else:
        head, payload = b"", body
    return before + b'HTTP/1.1 200 OK\r\nETag: "e"\r\n' + head + b"\r\n" + payload


@settings(deadline=None)
@given(
    st.sampled_from(KINDS),
    st.binary(max_size=60),
    st.sampled_from(["length", "chunked", "end"]),
    st.integers(0, 3),
    st.lists(st.integers(0, 10_000), max_size=8),
)
def test_any_cut_of_an_answer_is_the_same_answer(
    kind: type[Channel], body: bytes, form: str, interim: int, at: list[int]
) -> None:
    download, channel, complete = feed(kind, cut(answer(body, form, interim), at))
    assert complete
    assert download.getvalue() == body
    assert channel.reusable is (form != "end")


TOKENS = st.sampled_from(
    [b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 103 X\r\n\r\n", b"\r\n", b"\r\n\r\n", b"Content-Length: 5\r\n", b"hello",
     b"Transfer-Encoding: chunked\r\n", b"5\r\n", b"0\r\n\r\n", b"\0", b"Content-Range: bytes 0-4/5\r\n", b"\xff",
     b"HTTP/1.1 404 No\r\n", b"HTTP/1.1 206 P\r\n", b"x-tos-hash-crc64ecma: x\r\n", b"Connection: close\r\n"]
)  # fmt: skip


@settings(deadline=None)
@given(st.sampled_from(KINDS), st.lists(TOKENS | st.binary(max_size=20), max_size=10))
def test_any_bytes_are_an_answer_or_a_failure(kind: type[Channel], pieces: list[bytes]) -> None:
    try:
        download, _, complete = feed(kind, pieces)
    except Failure:
        return
    if complete:
        assert download.length == len(download.getvalue())


@pytest.mark.parametrize("kind", KINDS)
def test_the_end_of_an_idle_connection_is_stale_and_of_a_new_one_is_not(kind: type[Channel]) -> None:
    for used, expected in ((0, Kind.BROKEN), (1, Kind.STALE)):
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)
            channel = kind(ours)
            channel.used = used
            channel.start(CLIENT.download("test", "k"), b"GET", 0.0)
            theirs.close()
            with pytest.raises(Failure) as caught:
                channel.read(SCRATCH)
            assert caught.value.kind is expected


@pytest.mark.parametrize("kind", KINDS)
def test_sending_to_a_closed_connection_is_told_by_reading(kind: type[Channel]) -> None:
    ours, theirs = socket.socketpair()
    with ours:
        ours.setblocking(False)
        theirs.close()
        channel = kind(ours)
        channel.used = 1
        channel.start(CLIENT.download("test", "k"), b"GET", 0.0)
        assert not channel.sending
        assert not channel.reusable
        with pytest.raises(Failure) as caught:
            channel.read(SCRATCH)
        assert caught.value.kind is Kind.STALE


def test_tls_goes_through_python_s_own_calls() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        assert isinstance(make_channel(ours), FastChannel)
        context = ssl.create_default_context()
        with context.wrap_socket(ours, server_hostname="x", do_handshake_on_connect=False) as wrapped:
            assert type(make_channel(wrapped)) is SocketChannel


def test_closing_lets_go_of_the_buffer() -> None:
    buffer = bytearray(1000)
    ours, theirs = socket.socketpair()
    with theirs:
        ours.setblocking(False)
        channel = make_channel(ours)
        view = memoryview(buffer)
        download = CLIENT.download("test", "k", into=view)
        channel.start(download, b"GET", 0.0)
        theirs.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + bytes(10))
        assert not channel.read(SCRATCH)
        channel.close()
    download._into = download._view = None
    view.release()
    buffer.append(0)
