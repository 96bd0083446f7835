"""Ordered, lazy, bounded look-ahead. Knows nothing of what it starts or yields."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Protocol, TypeVar

__all__ = ["ByteBudget", "prefetch"]

Item = TypeVar("Item")
Started = TypeVar("Started")


class ByteBudget(Protocol):
    """Bytes that may be in flight or read ahead, shared by all who ask."""

    def take(self, n: int, force: bool = False) -> bool:
        """Take n bytes and return True, or take nothing and return False; with `force`, take them whatever is left."""

    def give(self, n: int) -> None:
        """Give n bytes back."""


class _Unbounded:
    def take(self, n: int, force: bool = False) -> bool:
        return True

    def give(self, n: int) -> None:
        return None


def prefetch(
    items: Iterable[Item],
    start: Callable[[list[Item]], Sequence[Started]],
    *,
    depth: Callable[[], int],
    discard: Callable[[Started], object],
    cost: Callable[[Item], int] = lambda _: 0,
    budget: ByteBudget | None = None,
) -> Iterator[Started]:
    """Yield start(item) for each item, in order, with up to depth() of them started and not yet yielded.

    `start` takes the next items together and returns one result for each; it is called when half of the window is free,
    never before the first result is asked for. depth() is asked at each such turn and may change; 1 means that an item
    is started when it is wanted. An item's cost() is taken from the budget when it starts and given back when it is
    yielded; the item that is wanted next is always admitted, so that no two that share a budget can wait for each
    other.

    Invariants: started - yielded <= depth(); each started result is either yielded or, when the iterator is closed,
    collected or stopped by an error, passed to `discard` exactly once; every byte taken is given back by then.
    """
    limits = budget or _Unbounded()
    source = iter(items)
    window: deque[Started] = deque()
    costs: deque[int] = deque()
    waiting: list[Item] = []  # at most one: taken from the source, not yet admitted by the budget
    low = 0
    try:
        while True:
            if len(window) <= low:
                limit = max(1, depth())
                low = limit // 2
                admitted = _admit(source, waiting, costs, limit, cost, limits)
                if admitted:
                    window.extend(start(admitted))
            if not window:
                return
            started = window.popleft()
            limits.give(costs.popleft())
            yield started
    finally:
        for started in window:
            discard(started)
        for size in costs:
            limits.give(size)


def _admit(
    source: Iterator[Item],
    waiting: list[Item],
    costs: deque[int],
    limit: int,
    cost: Callable[[Item], int],
    budget: ByteBudget,
) -> list[Item]:
    """Take items that fit into the window and the budget, and note what they cost;

    at least one where nothing is started.
    """
    admitted: list[Item] = []
    while len(costs) < limit:
        if not waiting:
            waiting.extend(islice(source, 1))
            if not waiting:
                break
        size = cost(waiting[0])
        if not budget.take(size, not costs):
            break
        costs.append(size)
        admitted.append(waiting.pop())
    return admitted
