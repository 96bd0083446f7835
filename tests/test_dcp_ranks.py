"""Distributed checkpoints of several ranks: saved and loaded by other numbers of them, and when one of them fails."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from torch.distributed.checkpoint.api import CheckpointException

from tests.dcp_ranks import Ranks, connection, load, save, sharded, state
from tosnative.dcp import TosStorageWriter
from tosnative.testing import LocalTos

URL = "tos://demo/run/step-1/"


@pytest.fixture
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        yield server


def shards(tos: LocalTos) -> list[str]:
    return [key for key in tos.keys("demo", "run/step-1/") if key.endswith(".distcp")]


def test_saved_by_four_ranks_then_by_two(tos: LocalTos, tmp_path: Path) -> None:
    assert Ranks(4, tmp_path, save, tos, URL, 1).results() == ["saved"] * 4
    assert [key.split("/")[-1][:4] for key in shards(tos)] == ["__0_", "__1_", "__2_", "__3_"]
    first = set(shards(tos))
    assert Ranks(3, tmp_path, load, tos, URL, 1, 0).results() == [True] * 3
    assert Ranks(2, tmp_path, save, tos, URL, 2).results() == ["saved"] * 2
    assert len(shards(tos)) == 2
    assert not first & set(shards(tos))
    assert Ranks(4, tmp_path, load, tos, URL, 2, 1).results() == [True] * 4


def test_a_rank_that_cannot_write_fails_the_save_on_all(tos: LocalTos, tmp_path: Path) -> None:
    assert Ranks(2, tmp_path, save, tos, URL, 1).results() == ["saved"] * 2
    before = {key: tos.get("demo", key) for key in tos.keys("demo")}
    tos.faults.add(method="P*", key="*/__1_*", status=403, code="AccessDenied")
    for text in Ranks(2, tmp_path, save, tos, URL, 2).results():
        assert "CheckpointException" in text
        assert "AccessDenied" in text
        assert "(RANK 1)" in text
    assert {key: tos.get("demo", key) for key in before} == before
    assert not tos.uploads("demo")
    tos.faults.clear()
    assert Ranks(1, tmp_path, load, tos, URL, 1, 0).results() == [True]
    # What the failed save has left goes with the next one.
    assert Ranks(2, tmp_path, save, tos, URL, 3).results() == ["saved"] * 2
    assert len(shards(tos)) == 2


def test_ranks_fetch_their_own_rows_only(tos: LocalTos, tmp_path: Path) -> None:
    assert Ranks(1, tmp_path, save, tos, URL, 1).results() == ["saved"]
    stored = sum(len(tos.get("demo", key)) for key in shards(tos))
    tos.clear_requests()
    assert Ranks(3, tmp_path, load, tos, URL, 1, 0).results() == [True] * 3
    fetched = sum(request.sent_bytes for request in tos.requests if (request.key or "").endswith(".distcp"))
    assert fetched < 1.1 * stored


def save_until_it_fails(rank: int, world: int, tos: LocalTos, url: str) -> str:
    """Two asynchronous saves; nobody asks how the first ended. Returns what the second raised."""
    writer = TosStorageWriter(url, **connection(tos))
    # Spread beforehand: that takes collectives, which may not mix with those of a save under way.
    first, second, third = (sharded(state(seed), world, 0) for seed in (1, 2, 3))
    writer.async_save(first)
    try:
        writer.async_save(second)
    except CheckpointException as error:
        writer.async_save(third).result()
        return str(error)
    return "no failure"


def test_a_rank_whose_async_save_fails_is_noticed_by_all(tos: LocalTos, tmp_path: Path) -> None:
    tos.faults.add(method="PUT", key="*/__1_*", status=403, code="AccessDenied", times=1)
    for text in Ranks(2, tmp_path, save_until_it_fails, tos, URL).results():
        assert "AccessDenied" in text
        assert "(RANK 1)" in text
    assert Ranks(2, tmp_path, load, tos, URL, 3, 0).results() == [True] * 2
