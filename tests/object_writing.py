"""What tests of writers share: a service with an old object under the key, clients, and what must hold in the end.

A test module takes the fixtures that it needs as its own: `tos = object_writing.tos`.
"""

import random
from collections.abc import Iterator

import pytest

from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

PART = 4 << 20  # the least that the service takes
MIB = 1 << 20
DATA = random.Random(5).randbytes(5 * PART + 77)
LARGE = DATA + DATA[: 4 * PART]
# Bytes written before the end: none, a little, several parts.
SIZES = [0, 100, len(DATA)]


@pytest.fixture(scope="module")
def server() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as made:
        yield made


@pytest.fixture
def tos(server: LocalTos) -> LocalTos:
    """Without faults, with b"old" under the key "k"."""
    server.faults.clear()
    server.put("demo", "k", b"old")
    server.clear_requests()
    return server


def make(tos: LocalTos, retries: int | None = 1, tasks: int | None = None, **options: float) -> TosClient:
    connection = ConnectionOptions(**options)  # type: ignore[arg-type]
    config = TosClientConfig(
        part_size=PART, max_retry_count=retries, shared_upload_part_tasks=tasks, connection=connection
    )
    return TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config)


@pytest.fixture
def client(tos: LocalTos) -> Iterator[TosClient]:
    """Gives up after one retry. In the end no memory is taken and no upload is open."""
    with make(tos) as made:
        yield made
        assert made.budget.used == 0
        assert tos.uploads("demo") == []


@pytest.fixture
def fruitless(tos: LocalTos) -> Iterator[TosClient]:
    """A client for a test that commits nothing: in the end the key is untouched, and no memory is taken."""
    with make(tos, retries=None) as made:
        yield made
        assert untouched(tos)
        assert made.budget.used == 0


def untouched(tos: LocalTos) -> bool:
    """Whether the old object is under the key, no upload is open, and nobody tried to complete one."""
    completions = [request for request in tos.requests if request.method == "POST" and "uploadId" in request.query]
    return (tos.get("demo", "k"), tos.uploads("demo"), completions) == (b"old", [], [])


def write(client: TosClient, data: bytes) -> TosObjectWriter:
    """A writer to which all of `data` was written, and which has committed it under "k".

    Pieces that can change, and are copied, and pieces that cannot, and are kept, in turn.
    """
    with TosObjectWriter(client, "demo", "k") as writer:
        for number, at in enumerate(range(0, len(data), MIB)):
            piece = data[at : at + MIB]
            writer.write(piece if number % 3 else bytearray(piece))
    return writer
