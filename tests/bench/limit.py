"""The limit: a bare selector loop around recv_into and send, with nothing of a library around it.

It signs nothing, checks nothing and hands nothing over. Setting `connections`: how many it keeps busy. `processes`:
how many loops share the work.
"""

from __future__ import annotations

import multiprocessing
import selectors
import socket
import ssl
import sys
import urllib.parse
from collections.abc import Iterable, Iterator
from typing import Any

from contents import BIG, BUCKET, MIB, Contents
from measure import Done, Job, Work, run_jobs

PART_BYTES = 8 * MIB
SEND_BYTES = 1 * MIB


class Connection:
    """One socket and what it is busy with. got: bytes of the answer's body so far; size: -1 until the head has come.

    head: what came of a head that is not whole yet. rest: what is still to be sent.
    """

    def __init__(self, address: tuple[str, int], context: ssl.SSLContext | None) -> None:
        self.socket = socket.create_connection(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if context is not None:
            self.socket = context.wrap_socket(self.socket, server_hostname="localhost")
        self.socket.setblocking(False)
        self.view = memoryview(b"")
        self.size = -1
        self.got = 0
        self.head = b""
        self.rest = memoryview(b"")


class Loop:
    """Keeps `connections` busy with a stream of requests; the connections stay open between calls of `run`."""

    def __init__(self, job: Job, connections: int, largest_bytes: int) -> None:
        where = urllib.parse.urlsplit(job.endpoint)
        trusted = job.setting("ca_bundle")
        self._context = None if trusted is None else ssl.create_default_context(cafile=trusted)
        self._address = ("127.0.0.1", where.port or 80)
        self._host = f"{BUCKET}.{where.hostname}:{where.port}"
        self._limit = connections
        self._idle: list[Connection] = []
        # Touched once here, so that the pages are there: what is measured is receiving, not the first use of memory.
        self._buffers = [memoryview(bytearray(b"x") * largest_bytes) for _ in range(connections)]
        self._head = bytearray(64 << 10)
        self._selector = selectors.DefaultSelector()

    def request(self, method: str, key: str, *headers: str) -> bytes:
        # nginx, set up to answer late, does so for whoever has no authorization that it knows.
        return "\r\n".join((f"{method} /{key} HTTP/1.1", f"Host: {self._host}", *headers, "", "")).encode()

    def get(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        return self.request("GET", key, *([] if stop is None else [f"Range: bytes={start}-{stop - 1}"]))

    def run(self, requests: Iterable[tuple[bytes, memoryview]]) -> int:
        """Send all requests (head and body), receive all answers; returns the bytes of their bodies."""
        waiting, busy, total = iter(requests), 0, 0
        for _ in range(self._limit):
            busy += self._start(waiting)
        while busy:
            for key, mask in self._selector.select():
                connection: Connection = key.data
                if mask & selectors.EVENT_WRITE:
                    self._send(connection)
                elif self._receive(connection):
                    total += connection.got
                    self._selector.unregister(connection.socket)
                    self._idle.append(connection)
                    busy += self._start(waiting) - 1
        return total

    def _start(self, waiting: Iterator[tuple[bytes, memoryview]]) -> int:
        asked = next(waiting, None)
        if asked is None:
            return 0
        connection = self._idle.pop() if self._idle else self._connect()
        head, body = asked
        connection.size, connection.got = -1, 0
        connection.socket.send(head)
        connection.rest = body
        self._selector.register(connection.socket, 2 if len(body) else 1, connection)
        return 1

    def _connect(self) -> Connection:
        connection = Connection(self._address, self._context)
        connection.view = self._buffers.pop()
        return connection

    def _send(self, connection: Connection) -> None:
        try:
            sent = connection.socket.send(connection.rest[:SEND_BYTES])
        except ssl.SSLWantWriteError:
            return
        connection.rest = connection.rest[sent:]
        if not len(connection.rest):
            self._selector.modify(connection.socket, 1, connection)

    def _receive(self, connection: Connection) -> bool:
        """Take what is there; whether the answer is whole now."""
        if self._context is None:
            return self._receive_some(connection)
        try:
            # A TLS socket can hold decrypted bytes that no selector knows of: read until it has no more.
            while not self._receive_some(connection):
                pass
        except ssl.SSLWantReadError:
            return False
        return True

    def _receive_some(self, connection: Connection) -> bool:
        if connection.size < 0:
            self._receive_head(connection)
        else:
            count = connection.socket.recv_into(connection.view[connection.got : connection.size])
            if not count:
                raise RuntimeError("the server closed the connection")
            connection.got += count
        return connection.got == connection.size

    def _receive_head(self, connection: Connection) -> None:
        count = connection.socket.recv_into(self._head)
        came = connection.head + bytes(self._head[:count])
        end = came.find(b"\r\n\r\n") + 4
        if end < 4 and count:
            connection.head = came
            return
        head = came[:end].lower()
        if head[9:11] != b"20":
            raise RuntimeError(f"not an answer the limit can deal with: {came[:200]!r}")
        at = head.index(b"content-length:") + 15
        connection.size, connection.got = int(head[at : head.index(b"\r", at)]), len(came) - end
        connection.view[: connection.got] = came[end:]
        connection.head = b""

    def close(self) -> None:
        for connection in self._idle:
            connection.socket.close()
        self._selector.close()


NO_BODY = memoryview(b"")


def small_objects(job: Job) -> Work:
    """All small objects; with the setting `batch`, one batch after the other has come."""
    size = job.setting("object_bytes")
    contents = job.contents
    keys = (contents.small_keys() if size is None else contents.sized_keys(size))[: job.setting("objects")]
    batch = job.setting("batch") or len(keys)

    loop = Loop(job, job.setting("connections", 32), size or contents.small_bytes)

    def work() -> Done:
        total = 0
        for start in range(0, len(keys), batch):
            total += loop.run([(loop.get(key), NO_BODY) for key in keys[start : start + batch]])
        loop.close()
        return Done(len(keys), total)

    return work


def parts(keys: list[str], size: int) -> list[tuple[str, int, int]]:
    """Objects of one size, cut into ranges [start, stop)."""
    return [(key, at, min(at + PART_BYTES, size)) for key in keys for at in range(0, size, PART_BYTES)]


def fetch_ranges(loop: Loop, asked: list[tuple[str, int, int]]) -> int:
    total = loop.run((loop.get(key, start, stop), NO_BODY) for key, start, stop in asked)
    loop.close()
    return total


def fetch_in_child(job: Job, connections: int, asked: list[tuple[str, int, int]], largest_bytes: int) -> int:
    return fetch_ranges(Loop(job, connections, largest_bytes), asked)


def ranged(asked: list[tuple[str, int, int]], objects: int, job: Job, largest_bytes: int = PART_BYTES) -> Work:
    connections, processes = job.setting("connections", 16), job.setting("processes", 1)

    loop = Loop(job, connections, largest_bytes) if processes == 1 else None

    def work() -> Done:
        if loop is not None:
            return Done(objects, fetch_ranges(loop, asked))
        shares = [(job, connections, asked[n::processes], largest_bytes) for n in range(processes)]
        with multiprocessing.get_context("fork").Pool(processes) as pool:
            total = sum(pool.starmap(fetch_in_child, shares))
            pool.close()
            pool.join()
        return Done(objects, total)

    return work


def big(job: Job) -> Work:
    return ranged(parts([BIG], job.contents.big_bytes), 1, job)


def volumes(job: Job) -> Work:
    keys = job.contents.volume_keys()
    return ranged(parts(keys, job.contents.volume_bytes), len(keys), job)


def random_ranges(job: Job) -> Work:
    size = job.contents.range_bytes
    asked = [(BIG, start, start + size) for start in job.contents.range_offsets()]
    return ranged(asked, len(asked), job, size)


def write(job: Job) -> Work:
    contents: Contents = job.contents
    body = memoryview(bytes(PART_BYTES))

    def requests(loop: Loop) -> Iterator[tuple[bytes, memoryview]]:
        for number in range(contents.big_bytes // PART_BYTES):
            yield loop.request("PUT", f"limit/{number % 8}", f"Content-Length: {PART_BYTES}"), body

    loop = Loop(job, job.setting("connections", 4), 4096)

    def work() -> Done:
        loop.run(requests(loop))
        loop.close()
        return Done(1, contents.big_bytes // PART_BYTES * PART_BYTES)

    return work


WORKLOADS: dict[str, Any] = {
    "iterable": small_objects,
    "batches": small_objects,
    "volumes": volumes,
    "big": big,
    "ranges": random_ranges,
    "write": write,
    "save": write,
    "load": big,
}

if __name__ == "__main__":
    run_jobs(WORKLOADS, sys.argv[2])
