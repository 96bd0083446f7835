"""The order of an epoch, and what is left of it after some was consumed: arithmetic only."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from tosnative.sharding import UNEVEN, Shard, Uneven, equalise, split

__all__ = ["Consumed", "consumed_by_worker", "epoch_order", "extended", "rest", "rows_of"]


def epoch_order(count: int, seed: int | None, epoch: int) -> torch.Tensor:
    """The positions 0 to count - 1 in the order of this epoch, int64; in their own order where seed is None.

    A function of its three arguments: every rank and worker computes the same. A million takes about 10 ms.
    """
    if seed is None:
        return torch.arange(count)
    # The generator takes 32 bits; a digest spreads neighbouring seeds and epochs over all of them.
    digest = hashlib.blake2b(f"{seed}:{epoch}".encode(), digest_size=4).digest()
    generator = torch.Generator().manual_seed(int.from_bytes(digest, "little"))
    return torch.randperm(count, generator=generator)


@dataclass(frozen=True)
class Consumed:
    """How far one run got: the shape it ran in, and the samples each worker of every rank has yielded.

    done[w]: samples of worker w, the same on every rank; None where it is not known (a worker knows of itself only).
    next_worker: whose batch comes next.
    """

    world: int
    workers: int
    uneven: Uneven
    done: tuple[int | None, ...]
    next_worker: int = 0

    def __post_init__(self) -> None:
        counts = [count for count in self.done if count is not None]
        if self.world < 1 or self.workers < 1 or len(self.done) != self.workers or self.uneven not in UNEVEN:
            raise ValueError(f"not a state of this dataset: {self}")
        if any(count < 0 for count in counts) or not 0 <= self.next_worker < self.workers:
            raise ValueError(f"not a state of this dataset: {self}")

    def fits(self, shard: Shard, uneven: Uneven) -> bool:
        """Whether a run of this shape goes on where that one stopped, worker by worker."""
        return (self.world, self.workers, self.uneven) == (shard.world, shard.workers, uneven)

    def predecessor(self, worker: int) -> int:
        """The worker of that run whose samples `worker` continues, such that batches go on in their order."""
        return (worker + self.next_worker) % self.workers

    def as_dict(self) -> dict[str, Any]:
        return {
            "world": self.world,
            "workers": self.workers,
            "uneven": self.uneven,
            "done": list(self.done),
            "next_worker": self.next_worker,
        }

    @staticmethod
    def from_dict(state: dict[str, Any]) -> Consumed:
        return Consumed(state["world"], state["workers"], state["uneven"], tuple(state["done"]), state["next_worker"])


def rest(order: torch.Tensor, consumed: Consumed) -> torch.Tensor:
    """What is left of an order after that run, in its order, over all ranks and workers.

    Raises: ValueError where it is not known how far each worker got.
    """
    if any(count is None for count in consumed.done):
        raise ValueError(
            f"this state knows one of {consumed.workers} workers only and fits no other number of workers or ranks: "
            "take it with state_after(loader, batches)"
        )
    order = equalise(order, consumed.world, consumed.uneven)
    place = torch.arange(len(order)) // consumed.world
    done = torch.tensor(consumed.done, dtype=torch.int64)
    return order[place // consumed.workers >= done[place % consumed.workers]]


def rows_of(order: torch.Tensor, history: Sequence[Consumed], shard: Shard, uneven: Uneven) -> torch.Tensor:
    """The samples that one worker of one rank has to yield after the runs in `history`, oldest first, took theirs."""
    if history and history[-1].fits(shard, uneven):
        last = history[-1]
        for earlier in history[:-1]:
            order = rest(order, earlier)
        worker = last.predecessor(shard.worker)
        done = last.done[worker]
        if done is None:
            raise ValueError(f"this state does not know how far worker {worker} got")
        return split(equalise(order, shard.world, uneven), shard._replace(worker=worker))[done:]
    for consumed in history:
        order = rest(order, consumed)
    return split(equalise(order, shard.world, uneven), shard)


def extended(
    history: Sequence[Consumed], shard: Shard, uneven: Uneven, counts: Sequence[int | None], next_worker: int = 0
) -> tuple[Consumed, ...]:
    """The history after a run that went on from `history`, in which worker w yielded counts[w] samples."""
    if not history or not history[-1].fits(shard, uneven):
        return (*history, Consumed(shard.world, shard.workers, uneven, tuple(counts), next_worker))
    last = history[-1]
    done = list(last.done)
    for worker, count in enumerate(counts):
        at = last.predecessor(worker)
        before = done[at]
        done[at] = None if count is None or before is None else before + count
    return (*history[:-1], Consumed(shard.world, shard.workers, uneven, tuple(done), last.predecessor(next_worker)))


def consumed_by_worker(
    lengths: Sequence[int], batches: int, batch_size: int | None, drop_last: bool = False
) -> tuple[list[int], int]:
    """How many samples each worker has yielded once a DataLoader gave out so many batches, and whose batch is next.

    lengths: samples of each worker. A DataLoader takes batches from its workers in turn and passes over those that have
    no more; batch_size None is one sample at a time. Raises: ValueError where there are not so many batches.
    """
    size = batch_size or 1
    left = [length // size if drop_last else -(-length // size) for length in lengths]
    if batches > sum(left):
        raise ValueError(f"an epoch of this loader has {sum(left)} batches, fewer than {batches}")
    taken = [0] * len(lengths)
    worker = 0
    for _ in range(batches):
        while taken[worker] == left[worker]:
            worker = (worker + 1) % len(lengths)
        taken[worker] += 1
        worker = (worker + 1) % len(lengths)
    return [min(count * size, length) for count, length in zip(taken, lengths, strict=True)], worker
