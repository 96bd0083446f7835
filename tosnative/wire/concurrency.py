"""How many requests to one endpoint are in flight: adapts to latency and to the service's complaints. Pure decisions.

The idea is that of gradient limiters (Netflix's concurrency-limits is the public model): while the time to first byte stays
near the best seen, more in flight means more throughput; when it grows, requests only queue somewhere. As in TCP's slow start,
the limit doubles until it makes the first difference.
"""

from __future__ import annotations

import math

__all__ = ["Limit"]

# Measured over loopback with 100 KiB objects: 16 to 32 connections cost least; below that every turn of the loop does too little.
_FLOOR = 16
_WINDOW = 32
_TOLERANCE = 1.5
_MEMORY = 50  # windows after which the best latency is measured anew


class Limit:
    """`value`: the requests to have in flight now, between 1 and `most`.

    fixed: no adaptation but to throttling.
    """

    def __init__(self, most: int, fixed: bool = False) -> None:
        self.most = most
        self._fixed = fixed
        self._exact = float(most if fixed else min(_FLOOR, most))
        self.value = int(self._exact)
        self._best = math.inf
        self._recent_best = math.inf
        self._times: list[float] = []
        self._windows = 0
        self._doubling = True
        self._throttled_until = 0.0

    def answered(self, seconds: float, busy: bool) -> None:
        """A first byte came after so long. busy: more requests were waiting than the limit let through."""
        times = self._times
        times.append(seconds)
        if len(times) >= _WINDOW and len(times) >= self.value:
            self._adapt(busy)
            times.clear()

    def _adapt(self, busy: bool) -> None:
        ordered = sorted(self._times)
        typical = ordered[len(ordered) // 2]
        low = ordered[len(ordered) // 10]
        self._best = min(self._best, low)
        self._recent_best = min(self._recent_best, low)
        self._windows += 1
        if self._windows % _MEMORY == 0:
            self._best, self._recent_best = self._recent_best, math.inf
        if self._fixed:
            self._exact = min(self.most, self._exact + 1)
        elif not busy:
            return
        else:
            gradient = max(0.5, min(1.0, _TOLERANCE * self._best / max(typical, 1e-9)))
            self._doubling = self._doubling and gradient == 1.0
            wanted = self._exact * (2.0 if self._doubling else gradient) + math.sqrt(self._exact)
            floor = min(_FLOOR, self.most, self._exact + 1)
            settled = wanted if self._doubling else 0.5 * self._exact + 0.5 * wanted
            self._exact = min(float(self.most), max(floor, settled))
        self.value = max(1, int(self._exact))

    def throttled(self, now: float, seconds: float = 1.0) -> None:
        """The service said 429 or 503: halve, at most once in `seconds`."""
        if now >= self._throttled_until:
            self._throttled_until = now + seconds
            self._doubling = False
            self._exact = max(1.0, self._exact / 2)
            self.value = int(self._exact)
