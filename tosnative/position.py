"""Which epoch it is and how far it got, in memory that a dataset shares with its copies in DataLoader workers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tosnative.sampling import Consumed
from tosnative.shared import SharedNumbers

__all__ = ["EpochPosition", "SkipCounter"]

_EPOCH, _RESUMED_BY, _WARNED, _NUMBERS = range(4)
# What `_RESUMED_BY` holds besides the number of a DataLoader's iteration.
_NOBODY, _MAIN_PROCESS = 0, -1
_VERSION = 1


class EpochPosition:
    """The epoch, and the state to go on from, which one iteration uses up.

    All copies of a dataset see the same epoch. A state that was loaded in the main process applies to the iteration
    that begins next: to all workers of it, and to no worker of a later one.
    """

    def __init__(self) -> None:
        self._numbers = SharedNumbers(_NUMBERS)
        self._history: tuple[Consumed, ...] = ()
        self._of_epoch = 0
        self._used_here = False

    @property
    def epoch(self) -> int:
        return self._numbers[_EPOCH]

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        if epoch < 0:
            raise ValueError(f"an epoch is 0 or more, not {epoch}")
        self._numbers[_EPOCH] = epoch

    def first_warning(self) -> bool:
        """True the first time that any of the copies asks."""
        first = not self._numbers[_WARNED]
        self._numbers[_WARNED] = 1
        return first

    @property
    def pending(self) -> tuple[Consumed, ...]:
        """What was consumed of this epoch before, by the state that was loaded; nothing for any other epoch."""
        return self._history if self._of_epoch == self.epoch else ()

    def begin(self, iteration: int | None) -> tuple[Consumed, ...]:
        """What was consumed before the iteration that begins now.

        iteration: a number that all workers of one DataLoader iteration have in common, None in the main process.
        """
        history = self.pending
        if self._used_here or not history:
            return ()
        self._used_here = True
        me = _MAIN_PROCESS if iteration is None else (iteration or 1)
        if self._numbers[_RESUMED_BY] == _NOBODY:
            # Workers that begin at the same time write the same number.
            self._numbers[_RESUMED_BY] = me
        return history if self._numbers[_RESUMED_BY] == me else ()

    def load(self, state: Mapping[str, Any]) -> None:
        """Go on from a state in the next iteration. Raises: ValueError where it is none."""
        if state.get("version") != _VERSION:
            raise ValueError(f"not a state of this dataset, or of a version that is not known: {dict(state)!r:.200}")
        self._history = tuple(Consumed.from_dict(consumed) for consumed in state["history"])
        self.epoch = self._of_epoch = int(state["epoch"])
        self._numbers[_RESUMED_BY] = _NOBODY
        self._used_here = False


def make_state(epoch: int, objects: int, seed: int | None, history: tuple[Consumed, ...]) -> dict[str, Any]:
    """A state as plain values, fit for JSON, torch.save and the like."""
    return {
        "version": _VERSION,
        "epoch": epoch,
        "objects": objects,
        "seed": seed,
        "history": [consumed.as_dict() for consumed in history],
    }


def check_state(state: Mapping[str, Any], objects: int, seed: int | None) -> None:
    """Raises: ValueError where the state is of other objects or of another order."""
    if state["objects"] != objects:
        raise ValueError(
            f"the state is of {state['objects']} objects, this dataset has {objects}: were objects added or deleted?"
        )
    if state["seed"] != seed:
        raise ValueError(
            f"the state is of shuffle seed {state['seed']}, this dataset has {seed} (None is without shuffle)"
        )


class SkipCounter:
    """Objects left out, counted over all processes that hold a copy: each has a number of its own to add to."""

    _SLOTS = 1024

    def __init__(self) -> None:
        self._numbers = SharedNumbers(self._SLOTS)

    def add(self, worker: int | None) -> None:
        """worker: which DataLoader worker this process is, None in the main process."""
        self._numbers[0 if worker is None else 1 + worker % (self._SLOTS - 1)] += 1

    @property
    def total(self) -> int:
        return self._numbers.total(0)
