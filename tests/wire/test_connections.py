"""Opening sockets beside the loop, and not while the process is being copied."""

import queue
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tosnative.config import ConnectionOptions
from tosnative.wire.connections import Connector, Origin, proxy_authorization
from tosnative.wire.retry import Failure, Kind

OPTIONS = ConnectionOptions(connect_timeout_s=5.0)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0), backlog=64) as made:
        yield made


class Results:
    """Collects what a Connector opened; closes it."""

    def __init__(self) -> None:
        self.queue: queue.Queue[socket.socket | Failure] = queue.Queue()

    def __call__(self, origin: Origin, result: socket.socket | Failure) -> None:
        self.queue.put(result)

    def take(self, count: int) -> list[socket.socket | Failure]:
        taken = [self.queue.get(timeout=20) for _ in range(count)]
        for result in taken:
            if isinstance(result, socket.socket):
                result.close()
        return taken


def origin_of(listener: socket.socket) -> Origin:
    return Origin("http", "127.0.0.1", listener.getsockname()[1], None, OPTIONS)


def test_sockets_come_non_blocking_and_threads_end(listener: socket.socket) -> None:
    results = Results()
    connector = Connector(results)
    for _ in range(20):
        connector.open(origin_of(listener))
    for _ in range(20):
        result = results.queue.get(timeout=20)
        assert isinstance(result, socket.socket)
        assert result.getblocking() is False
        assert result.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        result.close()
    while any(thread.name == "tosnative-connect" for thread in threading.enumerate()):
        time.sleep(0.002)


def test_nothing_is_opened_while_it_is_held_and_nothing_is_forgotten(listener: socket.socket) -> None:
    results = Results()
    connector = Connector(results)
    for _ in range(30):
        connector.open(origin_of(listener))
    connector.hold(time.monotonic() + 20)
    assert not connector._threads, "no thread is in the resolver or in the TLS library"
    before = results.queue.qsize()
    connector.open(origin_of(listener))
    assert results.queue.qsize() == before
    connector.go_on()
    assert all(isinstance(result, socket.socket) for result in results.take(31))


def test_holding_waits_no_longer_than_allowed() -> None:
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        fillers = [socket.socket() for _ in range(3)]
        for filler in fillers:
            filler.setblocking(False)
            filler.connect_ex(full.getsockname())
        results = Results()
        connector = Connector(results)
        origin = Origin("http", "127.0.0.1", full.getsockname()[1], None, ConnectionOptions(connect_timeout_s=1.0))
        connector.open(origin)
        connector.hold(time.monotonic() + 0.05)
        connector.go_on()
        (result,) = results.take(1)
        assert isinstance(result, Failure)
        assert result.kind is Kind.CONNECT
        for filler in fillers:
            filler.close()


def test_failures_name_where_they_went() -> None:
    results = Results()
    connector = Connector(results)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    connector.open(Origin("http", "127.0.0.1", port, None, OPTIONS))
    connector.open(Origin("http", "far", 80, f"http://user:secret@127.0.0.1:{port}", OPTIONS))
    for result in results.take(2):
        assert isinstance(result, Failure)
        assert f"127.0.0.1:{port}" in str(result)
        assert "Connection refused" in str(result)
        assert "secret" not in str(result)


def test_equal_origins_share_connections() -> None:
    one, other = (Origin("http", "a", 1, None, ConnectionOptions()) for _ in range(2))
    assert one == other
    assert hash(one) == hash(other)
    assert one != Origin("http", "a", 1, None, ConnectionOptions(verify=False))


def test_the_proxy_s_user_and_password() -> None:
    assert proxy_authorization("http://proxy:1") is None
    assert proxy_authorization("http://user:p%40ss@proxy:1") == "Basic dXNlcjpwQHNz"
