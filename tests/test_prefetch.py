"""Look-ahead: in order, lazily, within depth and budget, and nothing is left when it ends early."""

import gc
from collections.abc import Iterator
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative.prefetch import prefetch


class Recorder:
    """Starts items and keeps account of what became of each."""

    def __init__(self, limit: int = 1 << 60) -> None:
        self.started: list[int] = []
        self.discarded: list[int] = []
        self.pulled = 0
        self.turns: list[int] = []
        self.limit, self.used, self.most = limit, 0, 0

    def items(self, count: int) -> Iterator[int]:
        for item in range(count):
            self.pulled += 1
            yield item

    def start(self, items: list[int]) -> list[int]:
        self.started += items
        self.turns.append(len(items))
        return [item * 10 for item in items]

    def discard(self, started: int) -> None:
        self.discarded.append(started)

    def take(self, n: int, force: bool = False) -> bool:
        if not force and self.used + n > self.limit:
            return False
        self.used += n
        self.most = max(self.most, self.used)
        return True

    def give(self, n: int) -> None:
        self.used -= n


@settings(deadline=None)
@given(count=st.integers(0, 60), depths=st.lists(st.integers(-1, 20), min_size=1), limit=st.integers(0, 30))
def test_in_order_and_never_beyond_depth_and_budget(count: int, depths: list[int], limit: int) -> None:
    record = Recorder(limit)
    asked: list[int] = []

    def depth() -> int:
        asked.append(max(1, depths[len(asked) % len(depths)]))
        return asked[-1]

    yielded = []
    for result in prefetch(
        record.items(count),
        record.start,
        depth=depth,
        discard=record.discard,
        cost=lambda item: item % 7,
        budget=record,
    ):
        assert len(record.started) - len(yielded) <= max(asked)
        assert record.pulled - len(record.started) <= 1
        yielded.append(result)
    assert yielded == [item * 10 for item in range(count)]
    assert record.most <= max(limit, 6), "only the item that is wanted next may pass the limit"
    assert record.used == 0
    assert record.discarded == []


@settings(deadline=None)
@given(count=st.integers(1, 40), stop=st.integers(0, 39), depth=st.integers(1, 16))
def test_closing_early_discards_what_is_in_flight_once(count: int, stop: int, depth: int) -> None:
    record = Recorder()
    stream = prefetch(
        record.items(count), record.start, depth=lambda: depth, discard=record.discard, cost=lambda _: 5, budget=record
    )
    yielded = [result for result, _ in zip(stream, range(stop), strict=False)]
    del stream
    gc.collect()
    started = [item * 10 for item in record.started]
    handed_over = len(yielded) + (stop < count and bool(started))  # zip takes one more than it gives
    assert record.discarded == started[handed_over:]
    assert record.used == 0


def test_nothing_starts_before_the_first_is_wanted() -> None:
    record = Recorder()
    stream = prefetch(record.items(5), record.start, depth=lambda: 3, discard=record.discard)
    assert record.pulled == 0
    next(stream)
    assert record.started == [0, 1, 2]


def test_depth_one_starts_each_when_it_is_wanted() -> None:
    record = Recorder()
    for wanted, _ in enumerate(prefetch(record.items(5), record.start, depth=lambda: 1, discard=record.discard)):
        assert record.started == list(range(wanted + 1))


def test_refills_half_a_window_at_a_time() -> None:
    record = Recorder()
    list(prefetch(record.items(40), record.start, depth=lambda: 8, discard=record.discard))
    assert record.turns == [8, *[4] * 8]


def test_two_streams_over_a_full_budget_both_come_to_their_end() -> None:
    record = Recorder(limit=1)
    streams = [
        prefetch(range(9), record.start, depth=lambda: 4, discard=record.discard, cost=lambda _: 100, budget=record)
        for _ in range(2)
    ]
    assert list(zip(*streams, strict=True)) == [(item * 10, item * 10) for item in range(9)]
    assert record.used == 0


def test_an_error_of_the_source_discards_what_is_in_flight() -> None:
    record = Recorder()

    def source() -> Iterator[int]:
        yield from range(6)
        raise RuntimeError("listing failed")

    stream = prefetch(source(), record.start, depth=lambda: 4, discard=record.discard, cost=lambda _: 1, budget=record)
    assert list(islice(stream, 4)) == [0, 10, 20, 30]
    with pytest.raises(RuntimeError, match="listing failed"):
        next(stream)
    assert record.discarded == [40, 50]
    assert record.used == 0


def test_an_error_while_starting_gives_the_budget_back() -> None:
    record = Recorder()

    def start(items: list[int]) -> list[int]:
        if 4 in items:
            raise RuntimeError("no more")
        return record.start(items)

    stream = prefetch(range(9), start, depth=lambda: 4, discard=record.discard, cost=lambda _: 1, budget=record)
    with pytest.raises(RuntimeError, match="no more"):
        list(stream)
    assert record.used == 0
    assert record.discarded == [20, 30]
