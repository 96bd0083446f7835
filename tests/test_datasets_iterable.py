"""TosIterableDataset in one process, and how it splits over ranks."""

import gc
import sys
import threading
import types
import warnings
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
import torch.distributed as dist
from dataset_objects import asked, connection, fill, key_and_bytes, key_only

from tosnative.config import TosClientConfig
from tosnative.datasets import TosIterableDataset
from tosnative.errors import TosNotFoundError
from tosnative.reader import TosObjectReader
from tosnative.sharding import UNEVEN, Uneven
from tosnative.testing import LocalTos


@pytest.fixture
def kw(local_tos: LocalTos) -> dict[str, Any]:
    return {**connection(local_tos), "transform": key_only}


@pytest.fixture
def make_rank() -> Iterator[Any]:
    """Makes this process a rank of a group that talks to nobody."""
    # Importing it registers the backend "fake".
    import torch.testing._internal.distributed.fake_pg  # noqa: F401

    def make(rank: int, world: int) -> None:
        if dist.is_initialized():
            dist.destroy_process_group()
        dist.init_process_group("fake", store=dist.HashStore(), rank=rank, world_size=world)

    yield make
    if dist.is_initialized():
        dist.destroy_process_group()


def test_every_object_once_in_order_epoch_after_epoch(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    objects = fill(local_tos, "p/", 300)
    dataset = TosIterableDataset.from_prefix("tos://test/p/", **{**kw, "transform": key_and_bytes})
    for _ in range(3):
        assert list(dataset) == list(objects.items())
    assert asked(local_tos) == {"LIST": 1, "GET": 900}


def test_a_generator_of_urls_serves_every_epoch(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    objects = fill(local_tos, "p/", 5)
    dataset = TosIterableDataset.from_urls((f"tos://test/{key}" for key in objects), **kw)
    assert [list(dataset) for _ in range(2)] == [list(objects)] * 2


def test_objects_are_in_flight_while_a_transform_runs(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 64)
    pause = threading.Event()
    first: list[str] = []

    def transform(reader: TosObjectReader) -> str:
        if not first:
            first.append(reader.key)
            while asked(local_tos)["GET"] < 8:
                pause.wait(0.001)
        return reader.key

    assert len(list(TosIterableDataset.from_prefix("tos://test/p/", **{**kw, "transform": transform}))) == 64


@pytest.mark.parametrize("concurrency", [1, 2, 5])
def test_prefetch_concurrency_is_exact(local_tos: LocalTos, kw: dict[str, Any], concurrency: int) -> None:
    fill(local_tos, "p/", 20)
    taken = 0
    ahead = []
    dataset = TosIterableDataset.from_prefix(
        "tos://test/p/", **{**kw, "transform": key_and_bytes, "prefetch_concurrency": concurrency}
    )
    for _ in dataset:
        ahead.append(asked(local_tos)["GET"] - taken)
        taken += 1
    assert taken == 20
    assert max(ahead) <= concurrency


@pytest.mark.parametrize("taken", [0, 1, 7, 39])
def test_ending_early_cancels_what_is_in_flight(local_tos: LocalTos, kw: dict[str, Any], taken: int) -> None:
    fill(local_tos, "p/", 40)
    dataset = TosIterableDataset.from_prefix("tos://test/p/", **kw)
    for _ in range(3):
        stream = iter(dataset)
        assert len([next(stream) for _ in range(taken)]) == taken
        del stream
        gc.collect()
    assert dataset._client.budget.used == 0
    assert len(list(dataset)) == 40


def test_look_ahead_over_large_objects_is_bounded_by_bytes(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    part = 1 << 20
    fill(local_tos, "p/", 40, 3 * part)
    dataset = TosIterableDataset.from_prefix("tos://test/p/", **{**kw, "client_conf": TosClientConfig(part_size=part)})
    stream = iter(dataset)
    next(stream)
    assert 0 < dataset._client.budget.used <= 16 * part
    assert sum(1 for _ in stream) == 39
    assert dataset._client.budget.used == 0


def test_shuffled_by_seed_and_epoch(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    keys = list(fill(local_tos, "p/", 30))
    dataset = TosIterableDataset.from_prefix("tos://test/p/", shuffle=True, seed=1, **kw)
    first = list(dataset)
    assert first != keys
    assert sorted(first) == keys
    assert list(dataset) == first
    dataset.set_epoch(1)
    second = list(dataset)
    assert sorted(second) == keys
    assert second not in (first, keys)
    again = TosIterableDataset.from_prefix("tos://test/p/", shuffle=True, seed=1, **kw)
    again.set_epoch(1)
    assert list(again) == second
    other = TosIterableDataset.from_prefix("tos://test/p/", shuffle=True, seed=2, **kw)
    assert list(other) != first
    with pytest.raises(ValueError, match="epoch"):
        dataset.set_epoch(-1)


@pytest.mark.parametrize("uneven", UNEVEN)
@pytest.mark.parametrize("shuffle", [False, True])
def test_ranks_by_number(local_tos: LocalTos, kw: dict[str, Any], uneven: Uneven, shuffle: bool) -> None:
    keys = list(fill(local_tos, "p/", 10))
    parts = [
        list(TosIterableDataset.from_prefix("tos://test/p/", sharding=(rank, 4), uneven=uneven, shuffle=shuffle, **kw))
        for rank in range(4)
    ]
    assert [len(part) for part in parts] == {"exact": [3, 3, 2, 2], "drop": [2] * 4, "pad": [3] * 4}[uneven]
    seen = Counter(key for part in parts for key in part)
    assert len(seen) == (8 if uneven == "drop" else 10)
    assert seen.total() - len(seen) == (2 if uneven == "pad" else 0)
    assert set(seen) <= set(keys)


def test_sharding_true_reads_the_rank_when_iteration_begins(
    local_tos: LocalTos, kw: dict[str, Any], make_rank: Any
) -> None:
    keys = list(fill(local_tos, "p/", 9))
    dataset = TosIterableDataset.from_prefix("tos://test/p/", sharding=True, **kw)
    assert list(dataset) == keys
    for rank in range(2):
        make_rank(rank, 2)
        assert list(dataset) == keys[rank::2]


def test_a_process_group_and_a_mesh_dimension(local_tos: LocalTos, kw: dict[str, Any], make_rank: Any) -> None:
    keys = list(fill(local_tos, "p/", 9))
    make_rank(2, 4)
    group = dist.new_group([1, 2, 3])
    assert list(TosIterableDataset.from_prefix("tos://test/p/", sharding=group, **kw)) == keys[1::3]
    mesh = dist.device_mesh.init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    assert list(TosIterableDataset.from_prefix("tos://test/p/", sharding=mesh["dp"], **kw)) == keys[1::2]
    assert list(TosIterableDataset.from_prefix("tos://test/p/", sharding=mesh["tp"], **kw)) == keys[0::2]


def test_one_warning_where_nobody_said_whether_to_split(
    local_tos: LocalTos, kw: dict[str, Any], make_rank: Any
) -> None:
    keys = list(fill(local_tos, "p/", 4))
    dataset = TosIterableDataset.from_prefix("tos://test/p/", **kw)
    assert list(dataset) == keys
    make_rank(0, 2)
    with pytest.warns(UserWarning, match="sharding=True") as caught:
        assert [list(dataset), list(dataset)] == [keys, keys]
    assert len(caught) == 1
    assert caught[0].filename == __file__, "the warning points at the loop"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert list(TosIterableDataset.from_prefix("tos://test/p/", sharding=False, **kw)) == keys
        make_rank(1, 2)
        assert list(TosIterableDataset.from_prefix("tos://test/p/", **kw)) == keys


def test_under_a_wrapper_that_splits_by_itself_every_sample_is_seen(
    local_tos: LocalTos, kw: dict[str, Any], make_rank: Any
) -> None:
    keys = list(fill(local_tos, "p/", 40))
    seen: list[str] = []
    for rank in range(2):
        make_rank(rank, 2)
        dataset = TosIterableDataset.from_prefix("tos://test/p/", sharding=False, **kw)
        # What Accelerate's IterableDatasetShard does: each process takes its share of what it reads.
        seen += [key for number, key in enumerate(dataset) if number % 2 == rank]
    assert sorted(seen) == keys


def test_one_warning_where_accelerate_would_split_again(
    local_tos: LocalTos, kw: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = list(fill(local_tos, "p/", 4))
    # What Accelerate keeps once it is set up.
    state = types.SimpleNamespace(PartialState=types.SimpleNamespace(_shared_state={"num_processes": 2}))
    monkeypatch.setitem(sys.modules, "accelerate.state", state)  # type: ignore[misc]
    dataset = TosIterableDataset.from_prefix("tos://test/p/", sharding=(0, 2), **kw)
    with pytest.warns(UserWarning, match="sharding=False") as caught:
        assert [list(dataset), list(dataset)] == [keys[::2]] * 2
    assert len(caught) == 1
    assert list(TosIterableDataset.from_prefix("tos://test/p/", sharding=False, **kw)) == keys


def test_an_object_that_is_gone(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    keys = list(fill(local_tos, "p/", 12))
    kw = {**kw, "transform": key_and_bytes}
    raising = TosIterableDataset.from_prefix("tos://test/p/", **kw)
    skipping = TosIterableDataset.from_prefix("tos://test/p/", on_error="skip", **kw)
    assert len(raising.index) == len(skipping.index) == 12
    local_tos.delete("test", keys[5])
    stream = iter(raising)
    assert [key for key, _ in islice(stream, 5)] == keys[:5]
    with pytest.raises(TosNotFoundError, match=keys[5]):
        next(stream)
    assert [key for key, _ in skipping] == keys[:5] + keys[6:]
    assert skipping.skipped == 1
    assert raising._client.budget.used == 0
    # Without a transform, nothing but the look-ahead sees that it is gone.
    bare = TosIterableDataset.from_index(skipping.index, on_error="skip", **connection(local_tos))
    assert [reader.key for reader in bare] == keys[:5] + keys[6:]


def test_readers_without_a_transform_keep_their_bytes(local_tos: LocalTos) -> None:
    objects = fill(local_tos, "p/", 50)
    readers = list(TosIterableDataset.from_prefix("tos://test/p/", **connection(local_tos)))
    assert {reader.key: reader.read() for reader in readers} == objects


def test_it_has_no_length(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 5)
    with pytest.raises(TypeError):
        len(TosIterableDataset.from_prefix("tos://test/p/", **kw))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("keywords", "text"),
    [({"sharding": (2, 2)}, "rank < world"), ({"uneven": "most"}, "uneven"), ({"sharding": "yes"}, "sharding")],
)
def test_bad_keywords(local_tos: LocalTos, kw: dict[str, Any], keywords: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        TosIterableDataset.from_prefix("tos://test/p/", **kw, **keywords)
    with pytest.raises(TypeError, match="unexpected"):
        TosIterableDataset.from_prefix("tos://test/p/", **kw, sharded=True)
