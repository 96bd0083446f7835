"""The order of an epoch and what is left of it: exactly the rest, whoever goes on."""

from collections import Counter

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from tosnative.sampling import Consumed, consumed_by_worker, epoch_order, extended, rest, rows_of
from tosnative.sharding import UNEVEN, Shard, Uneven, equalise

# Two cores do not keep anybody from starting three workers.
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")

shapes = st.tuples(st.integers(1, 4), st.integers(1, 4))


def test_the_order_is_a_function_of_seed_and_epoch() -> None:
    orders = {(seed, epoch): epoch_order(50, seed, epoch).tolist() for seed in range(3) for epoch in range(3)}
    assert all(sorted(order) == list(range(50)) for order in orders.values())
    assert len({tuple(order) for order in orders.values()}) == 9
    assert orders[1, 2] == epoch_order(50, 1, 2).tolist()
    assert epoch_order(50, None, 7).tolist() == list(range(50))
    assert epoch_order(0, 1, 1).tolist() == []


def test_the_order_does_not_touch_the_users_generator() -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    epoch_order(1000, 1, 1)
    assert torch.equal(torch.rand(3), expected)


def everything(count: int, history: tuple[Consumed, ...], world: int, workers: int, uneven: Uneven) -> Counter[int]:
    """What all workers of all ranks yield together."""
    order = epoch_order(count, 3, 1)
    rows: Counter[int] = Counter()
    for rank in range(world):
        for worker in range(workers):
            rows.update(rows_of(order, history, Shard(rank, world, worker, workers), uneven).tolist())
    return rows


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 60), shapes, shapes, shapes, st.sampled_from(UNEVEN), st.data())
def test_interrupted_twice_and_resumed_in_other_shapes_gives_the_rest_exactly(
    count: int,
    first: tuple[int, int],
    second: tuple[int, int],
    third: tuple[int, int],
    uneven: Uneven,
    data: st.DataObject,
) -> None:
    order = epoch_order(count, 3, 1)
    expected = Counter(order.tolist())
    if uneven != "exact":
        expected = Counter(equalise(order, first[0], uneven).tolist())
    got: Counter[int] = Counter()
    history: tuple[Consumed, ...] = ()
    for world, workers in (first, second):
        lengths = [len(rows_of(order, history, Shard(0, world, w, workers), uneven)) for w in range(workers)]
        counts = [data.draw(st.integers(0, length)) for length in lengths]
        for rank in range(world):
            for worker, taken in enumerate(counts):
                got.update(rows_of(order, history, Shard(rank, world, worker, workers), uneven)[:taken].tolist())
        history = extended(history, Shard(0, world, 0, workers), uneven, counts, data.draw(st.integers(0, workers - 1)))
    got.update(everything(count, history, *third, uneven))
    if uneven == "exact" or first == second == third:
        assert got == expected
    elif uneven == "drop":
        assert got <= expected
        assert (expected - got).total() < first[0] + second[0] + third[0]
    else:
        assert got >= expected
        assert (got - expected).total() < first[0] + second[0] + third[0]


def test_a_run_of_the_same_shape_goes_on_worker_by_worker() -> None:
    order = torch.arange(20)
    history = extended((), Shard(0, 1, 0, 3), "exact", [4, 2, 2], next_worker=1)
    parts = [rows_of(order, history, Shard(0, 1, worker, 3), "exact").tolist() for worker in range(3)]
    assert parts == [[7, 10, 13, 16, 19], [8, 11, 14, 17], [12, 15, 18]]


def test_the_state_of_one_worker_serves_that_worker_only() -> None:
    history = extended((), Shard(0, 1, 0, 2), "exact", [None, 3])
    assert rows_of(torch.arange(10), history, Shard(0, 1, 1, 2), "exact").tolist() == [7, 9]
    with pytest.raises(ValueError, match="worker 0"):
        rows_of(torch.arange(10), history, Shard(0, 1, 0, 2), "exact")
    with pytest.raises(ValueError, match="state_after"):
        rest(torch.arange(10), history[0])


@pytest.mark.parametrize(
    "wrong",
    [
        {"world": 0},
        {"workers": 3},
        {"uneven": "some"},
        {"done": [-1, 2]},
        {"next_worker": 2},
    ],
)
def test_a_damaged_state_is_refused(wrong: dict[str, object]) -> None:
    good = Consumed(1, 2, "exact", (1, 2)).as_dict()
    assert Consumed.from_dict(good) == Consumed(1, 2, "exact", (1, 2))
    with pytest.raises(ValueError, match="not a state"):
        Consumed.from_dict(good | wrong)


class Numbers(IterableDataset[int]):
    """Worker w of this dataset yields lengths[w] numbers that tell who yielded them."""

    def __init__(self, lengths: list[int]) -> None:
        self.lengths = lengths

    def __iter__(self):  # type: ignore[no-untyped-def]
        info = get_worker_info()
        worker = info.id if info else 0
        return iter([worker * 100 + number for number in range(self.lengths[worker])])


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("lengths", [[7], [7, 7], [9, 2, 5], [0, 4], [3, 0, 0]])
def test_counts_what_a_dataloader_takes_from_each_worker(lengths: list[int], drop_last: bool) -> None:
    workers = len(lengths) if len(lengths) > 1 else 0
    loader = DataLoader(Numbers(lengths), batch_size=2, num_workers=workers, drop_last=drop_last, prefetch_factor=None)
    batches = [batch.tolist() for batch in loader]
    for taken in range(len(batches) + 1):
        counts, following = consumed_by_worker(lengths, taken, 2, drop_last)
        seen = Counter(number // 100 for batch in batches[:taken] for number in batch)
        assert counts == [seen[worker] for worker in range(len(lengths))]
        if taken and taken < len(batches):
            left = [batch[0] // 100 for batch in batches[taken:]]
            order = [(following + step) % len(lengths) for step in range(len(lengths))]
            assert left[0] == next(worker for worker in order if worker in left)
    with pytest.raises(ValueError, match="batches"):
        consumed_by_worker(lengths, len(batches) + 1, 2, drop_last)
