"""When to race a second request against one whose answer is late. Pure decisions."""

from __future__ import annotations

import math

__all__ = ["HedgePolicy"]

_SAMPLES = 128
_AT_LEAST = 32  # answers before "late" means anything
_MARGIN = 1.5
_FLOOR_S = 0.01
_LOOK_AT_LEAST_S = 0.005


class HedgePolicy:
    """Keeps the recent times to first byte; a request is late past their p95 by a margin, within a budget.

    percent: most extra requests, per hundred requests sent. 0 never hedges.
    """

    def __init__(self, percent: float) -> None:
        self._ratio = percent / 100
        self._times = [0.0] * _SAMPLES
        self._count = 0
        self._delay: float | None = None
        self._allowance = 0.0

    def answered(self, seconds: float) -> None:
        """A first byte came after so long."""
        count = self._count
        self._times[count % _SAMPLES] = seconds
        self._count = count = count + 1
        self._allowance = min(self._allowance + self._ratio, 32.0)
        if count % 32 == 0 and count >= _AT_LEAST and self._ratio:
            ordered = sorted(self._times[: min(count, _SAMPLES)])
            self._delay = max(ordered[int(len(ordered) * 0.95)] * _MARGIN, _FLOOR_S)

    @property
    def least_s(self) -> float:
        """The least of the recent times to first byte; 0 while there is none."""
        return min(self._times[: self._count], default=0.0)

    @property
    def delay(self) -> float | None:
        """Seconds after which an unanswered request is late; None while nobody knows."""
        return self._delay

    @property
    def look_s(self) -> float:
        """How often to look for late answers, in seconds; infinite while nobody knows what is late."""
        return math.inf if self._delay is None else max(self._delay / 2, _LOOK_AT_LEAST_S)

    def allow(self) -> bool:
        """Take one hedge out of the budget, if there is one."""
        if self._allowance < 1.0:
            return False
        self._allowance -= 1.0
        return True
