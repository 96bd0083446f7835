"""Who gets which samples: exact covers, equal lengths, and where the rank comes from."""

import pickle
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative.sharding import (
    Shard,
    Uneven,
    check_sharding,
    current_rank,
    current_worker,
    equalise,
    portable,
    split,
    unsharded_ranks,
)

counts, worlds, worker_counts = st.integers(0, 200), st.integers(1, 9), st.integers(1, 9)


def parts(count: int, world: int, workers: int, uneven: Uneven) -> list[list[int]]:
    """The samples of each rank, its workers' parts one after the other."""
    order = equalise(torch.arange(count), world, uneven)
    return [
        [row for worker in range(workers) for row in split(order, Shard(rank, world, worker, workers)).tolist()]
        for rank in range(world)
    ]


@settings(deadline=None)
@given(counts, worlds, worker_counts)
def test_exact_covers_every_sample_once(count: int, world: int, workers: int) -> None:
    got = parts(count, world, workers, "exact")
    assert sorted(row for part in got for row in part) == list(range(count))
    lengths = [len(part) for part in got]
    assert max(lengths) - min(lengths) <= 1
    assert lengths == sorted(lengths, reverse=True)


@settings(deadline=None)
@given(counts, worlds, worker_counts)
def test_drop_gives_equal_ranks_and_leaves_out_fewer_than_world(count: int, world: int, workers: int) -> None:
    got = parts(count, world, workers, "drop")
    assert {len(part) for part in got} == {count // world}
    assert sorted(row for part in got for row in part) == list(range(count - count % world))


@settings(deadline=None)
@given(counts, worlds, worker_counts)
def test_pad_gives_equal_ranks_and_repeats_fewer_than_world(count: int, world: int, workers: int) -> None:
    got = parts(count, world, workers, "pad")
    assert {len(part) for part in got} == {-(-count // world)}
    seen = Counter(row for part in got for row in part)
    assert set(seen) == set(range(count))
    assert 0 <= seen.total() - count < world
    if count >= world:
        assert all(times == 1 + (row < seen.total() - count) for row, times in seen.items())


@settings(deadline=None)
@given(counts, worlds, worker_counts, st.integers(1, 20), st.booleans(), st.sampled_from(["drop", "pad"]))
def test_equal_ranks_have_equally_many_batches(
    count: int, world: int, workers: int, batch: int, drop_last: bool, uneven: Uneven
) -> None:
    order = equalise(torch.arange(count), world, uneven)
    batches = set()
    for rank in range(world):
        lengths = [len(split(order, Shard(rank, world, worker, workers))) for worker in range(workers)]
        batches.add(sum(length // batch if drop_last else -(-length // batch) for length in lengths))
    assert len(batches) == 1


@settings(deadline=None)
@given(counts, worker_counts)
def test_workers_take_turns(count: int, workers: int) -> None:
    for worker in range(workers):
        assert split(list(range(count)), Shard(0, 1, worker, workers)) == list(range(worker, count, workers))


def test_no_sample_at_all() -> None:
    assert [parts(0, 3, 2, uneven) for uneven in ("exact", "drop", "pad")] == [[[], [], []]] * 3


@pytest.mark.parametrize("wrong", [(1, 1), (-1, 2), (0, 0), (True, 2), (1,), "yes", 3, [0, 2]])
def test_what_cannot_be_a_sharding(wrong: Any) -> None:
    with pytest.raises(ValueError, match="sharding"):
        check_sharding(wrong)


def test_without_a_process_group() -> None:
    for sharding in (None, False, True):
        assert current_rank(check_sharding(sharding)) == (0, 1)
        assert portable(sharding) is sharding
    assert current_rank((2, 5)) == (2, 5)
    assert current_worker() == (0, 1)
    unsharded_ranks(lambda: True)


@pytest.fixture
def rank_1_of_3() -> Iterator[None]:
    """A process group of three, as its rank 1 sees it."""
    dist.init_process_group("fake", store=dist.HashStore(), rank=1, world_size=3)
    yield
    dist.destroy_process_group()


@pytest.fixture(autouse=True)
def _fake_backend() -> None:
    # Importing it registers the backend "fake", which talks to nobody.
    import torch.testing._internal.distributed.fake_pg  # noqa: F401


def test_true_is_the_default_group_as_it_is_now(rank_1_of_3: None) -> None:
    assert current_rank(True) == (1, 3)
    assert current_rank(False) == current_rank(None) == (0, 1)
    assert portable(True) == (1, 3)


def test_a_process_group(rank_1_of_3: None) -> None:
    group = dist.new_group([1, 2])
    assert current_rank(check_sharding(group)) == (0, 2)
    assert pickle.loads(pickle.dumps(portable(group))) == (0, 2)


def test_a_group_that_this_process_is_no_member_of(rank_1_of_3: None) -> None:
    group = dist.new_group([0, 2])
    with pytest.raises(ValueError, match="no member"):
        current_rank(check_sharding(group))


def test_a_dimension_of_a_device_mesh() -> None:
    dist.init_process_group("fake", store=dist.HashStore(), rank=5, world_size=8)
    try:
        mesh = dist.device_mesh.init_device_mesh("cpu", (4, 2), mesh_dim_names=("dp", "tp"))
        assert current_rank(check_sharding(mesh["dp"])) == (2, 4)
        assert current_rank(check_sharding(mesh["tp"])) == (1, 2)
        with pytest.raises(ValueError, match=r"mesh\['dp'\]"):
            check_sharding(mesh)
    finally:
        dist.destroy_process_group()


def test_rank_0_warns_once_that_nobody_said_how_to_split() -> None:
    dist.init_process_group("fake", store=dist.HashStore(), rank=0, world_size=2)
    try:
        with pytest.warns(UserWarning, match="sharding=True"):
            unsharded_ranks(lambda: True)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            unsharded_ranks(lambda: False)
    finally:
        dist.destroy_process_group()


def test_other_ranks_do_not_warn(rank_1_of_3: None) -> None:
    unsharded_ranks(lambda: True)
