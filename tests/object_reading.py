"""What tests of readers in trouble share: a service with a large and a small object, and a client that gives up early.

A test module takes the fixtures that it needs as its own: `tos = object_reading.tos`.
"""

import random
from collections.abc import Iterator

import pytest

from tosnative.client import TosClient
from tosnative.config import ReaderType, TosClientConfig
from tosnative.testing import LocalTos

PART = 1 << 20
OLD = random.Random(1).randbytes(6 * PART + 5)
NEW = random.Random(2).randbytes(6 * PART + 5)
KINDS = list(ReaderType)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as made:
        yield made


@pytest.fixture
def tos(server: LocalTos) -> LocalTos:
    """Without faults, with OLD under "big" and its first thousand bytes under "small"."""
    server.faults.clear()
    server.put("demo", "big", OLD)
    server.put("demo", "small", OLD[:1000])
    server.clear_requests()
    return server


def make(tos: LocalTos, retries: int | None = 1) -> TosClient:
    config = TosClientConfig(part_size=PART, max_retry_count=retries, hedge_percent=0)  # faults are counted
    return TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config)


@pytest.fixture
def client(tos: LocalTos) -> Iterator[TosClient]:
    """In the end no memory is taken."""
    with make(tos) as made:
        yield made
        assert made.budget.used == 0
