"""A position that can be saved and resumed: the rest of the epoch exactly, then whole epochs."""

import json
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest
from dataset_objects import connection, fill, key_only
from torch.utils.data import DataLoader, get_worker_info

from tosnative.datasets import TosIterableDataset
from tosnative.testing import LocalTos

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")
COUNT = 23
URI = "tos://demo/p/"


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo", process=True) as tos:
        fill(tos, "p/", COUNT)
        yield tos


@pytest.fixture
def kw(tos: LocalTos) -> dict[str, Any]:
    return {**connection(tos), "transform": key_only}


def loader_of(dataset: TosIterableDataset, workers: int, method: str = "fork", **more: Any) -> DataLoader[Any]:
    context = method if workers else None
    return DataLoader(dataset, batch_size=2, num_workers=workers, multiprocessing_context=context, **more)


def keys_of(batches: Any) -> list[str]:
    return [key for batch in batches for key in batch]


@pytest.mark.parametrize("shuffle", [False, True])
def test_without_workers_the_dataset_counts_what_it_yielded(kw: dict[str, Any], shuffle: bool) -> None:
    whole = list(TosIterableDataset.from_prefix(URI, shuffle=shuffle, **kw))
    for taken in range(COUNT + 1):
        dataset = TosIterableDataset.from_prefix(URI, shuffle=shuffle, **kw)
        stream = iter(dataset)
        head = [next(stream) for _ in range(taken)]
        state = json.loads(json.dumps(dataset.state_dict()))
        resumed = TosIterableDataset.from_prefix(URI, shuffle=shuffle, **kw)
        resumed.load_state_dict(state)
        assert head + list(resumed) == whole
        assert list(resumed) == whole
        resumed.set_epoch(1)
        assert sorted(resumed) == sorted(whole)


def test_a_state_of_a_resumed_run(kw: dict[str, Any]) -> None:
    whole = list(TosIterableDataset.from_prefix(URI, shuffle=True, **kw))
    state: dict[str, Any] | None = None
    got: list[str] = []
    for taken in (5, 0, 3, 10, COUNT):
        dataset = TosIterableDataset.from_prefix(URI, shuffle=True, **kw)
        if state is not None:
            dataset.load_state_dict(state)
            assert dataset.state_dict() == state
        got += islice(dataset, taken)
        state = dataset.state_dict()
    assert got == whole


@pytest.mark.parametrize(("before", "after"), [(2, 2), (2, 0), (0, 3), (3, 2)])
def test_saved_after_every_batch_and_resumed_with_as_many_or_other_workers(
    kw: dict[str, Any], before: int, after: int
) -> None:
    dataset = TosIterableDataset.from_prefix(URI, shuffle=True, **kw)
    dataset.set_epoch(3)
    loader = loader_of(dataset, before)
    batches = list(loader)
    whole = sorted(keys_of(batches))
    assert len(set(whole)) == COUNT
    states = [dataset.state_after(loader, taken) for taken in range(len(batches) + 1)]
    for taken, state in list(enumerate(states))[:: 1 if after == 0 else 4]:
        resumed = TosIterableDataset.from_prefix(URI, shuffle=True, **kw)
        resumed.load_state_dict(state)
        again = loader_of(resumed, after)
        rest = list(again)
        assert Counter(keys_of(batches[:taken]) + keys_of(rest)) == Counter(whole)
        if before == after:
            assert [sorted(batch) for batch in rest] == [sorted(batch) for batch in batches[taken:]]
        assert sorted(keys_of(again)) == whole, "the next epoch is whole again"
        resumed.set_epoch(4)
        assert sorted(keys_of(again)) == whole
    with pytest.raises(ValueError, match="batches"):
        dataset.state_after(loader, len(batches) + 1)


def test_resumed_over_other_ranks(kw: dict[str, Any]) -> None:
    got: Counter[str] = Counter()
    states = []
    for rank in range(3):
        dataset = TosIterableDataset.from_prefix(URI, shuffle=True, sharding=(rank, 3), **kw)
        loader = loader_of(dataset, 0)
        got.update(keys_of(batch for batch, _ in zip(loader, range(2), strict=False)))
        states.append(dataset.state_after(loader, 2))
    assert states[0] == states[1] == states[2]
    for rank in range(2):
        dataset = TosIterableDataset.from_prefix(URI, shuffle=True, sharding=(rank, 2), **kw)
        dataset.load_state_dict(states[0])
        got.update(dataset)
    assert len(got) == got.total() == COUNT


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_live_on_follow_the_epoch(kw: dict[str, Any], method: str) -> None:
    dataset = TosIterableDataset.from_prefix(URI, shuffle=True, **kw)
    state = dataset.state_after(loader_of(dataset, 2), 5)
    dataset.load_state_dict(state)
    loader = loader_of(dataset, 2, method, persistent_workers=True)
    assert len(keys_of(loader)) == COUNT - 10
    orders = []
    for epoch in (0, 1, 2):
        dataset.set_epoch(epoch)
        orders.append(keys_of(loader))
        fresh = TosIterableDataset.from_prefix(URI, shuffle=True, **kw)
        fresh.set_epoch(epoch)
        assert orders[-1] == keys_of(loader_of(fresh, 2))
    assert len({tuple(order) for order in orders}) == 3
    assert all(len(set(order)) == COUNT for order in orders)


def test_a_worker_knows_of_itself(kw: dict[str, Any]) -> None:
    whole = keys_of(loader_of(TosIterableDataset.from_prefix(URI, **kw), 2))
    first = list(DataLoader(_States(TosIterableDataset.from_prefix(URI, **kw), 3), batch_size=None, num_workers=2))
    taken, states = [key for keys, _ in first for key in keys], [state for _, state in first]
    rest = [
        key
        for keys, _ in DataLoader(
            _States(TosIterableDataset.from_prefix(URI, **kw), COUNT, states), batch_size=None, num_workers=2
        )
        for key in keys
    ]
    assert len(taken) == 6
    assert sorted(taken + rest) == sorted(whole)
    alone = TosIterableDataset.from_prefix(URI, **kw)
    alone.load_state_dict(states[0])
    with pytest.raises(ValueError, match="state_after"):
        iter(alone)


class _States(TosIterableDataset):
    """Yields once per worker: some samples, and the worker's state after them. Loads states in the workers."""

    def __init__(self, dataset: TosIterableDataset, count: int, states: list[Any] | None = None) -> None:
        self.__dict__.update(dataset.__dict__)
        self.count, self.states = count, states

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        assert info is not None
        if self.states is not None:
            self.load_state_dict(self.states[info.id])
        yield list(islice(super().__iter__(), self.count)), self.state_dict()


def test_a_state_of_something_else_is_refused(tos: LocalTos, kw: dict[str, Any]) -> None:
    dataset = TosIterableDataset.from_prefix(URI, shuffle=True, **kw)
    state = dataset.state_dict()
    for wrong in ({}, {**state, "version": 99}, {**state, "history": [{"world": 0}]}):
        with pytest.raises((ValueError, KeyError)):
            dataset.load_state_dict(wrong)
    unshuffled = TosIterableDataset.from_prefix(URI, **kw)
    unshuffled.load_state_dict(state)
    with pytest.raises(ValueError, match="seed"):
        iter(unshuffled)
    fewer = TosIterableDataset.from_urls(["tos://demo/p/0001"], shuffle=True, **kw)
    fewer.load_state_dict(state)
    with pytest.raises(ValueError, match="23 objects"):
        iter(fewer)
