"""How many requests to one endpoint are in flight: adapts to latency and to the service's complaints. Pure decisions.

The idea is that of gradient limiters (Netflix's concurrency-limits is the public model): while the time to first byte stays
near the best seen, more in flight means more throughput; when it grows, requests only queue somewhere. As in TCP's slow start,
the limit doubles until it makes the first difference.
"""

from __future__ import annotations

import math

__all__ = ["Limit"]

# Measured over loopback with 100 KiB objects, which are read as they come: 48 to 64 in flight give half as much again as 16,
# as the server has something to do while the client looks at what has come; 128 are worse. Also what is begun with: a batch
# of the usual size goes out at once where each answer takes its 20 ms.
_FLOOR = 48
_WINDOW = 32
_FIRST_WINDOW = 16
_TOLERANCE = 1.5
# After so many windows the best latency is measured anew, with little in flight: otherwise a queue that stands for long would
# come to be taken for the distance.
_MEMORY = 100


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
        self._kept: float | None = None  # the limit to go back to after measuring
        self._times: list[float] = []
        self._windows = 0
        self._window = _WINDOW if fixed else _FIRST_WINDOW
        self._doubling = not fixed
        self._throttled_until = 0.0

    def answered(self, seconds: float, busy: bool) -> None:
        """A first byte came after so long. busy: more requests were waiting than the limit let through."""
        times = self._times
        times.append(seconds)
        if len(times) >= self._window:
            self._adapt(busy)
            times.clear()
            self._window = max(_FIRST_WINDOW, self.value // 2) if self._doubling else max(_WINDOW, self.value)
            if self._kept is not None:
                self._window = int(self._kept) + _WINDOW

    def _adapt(self, busy: bool) -> None:
        if self._kept is not None:
            self._measured()
            return
        ordered = sorted(self._times)
        typical = ordered[len(ordered) // 2]
        self._best = min(self._best, ordered[len(ordered) // 10])
        if self._fixed:
            self._set(self._exact + 1)
        elif busy:
            self._step(typical)
            self._windows += 1
            if self._windows % _MEMORY == 0 and self._exact > _FLOOR:
                self._kept = self._exact
                self.value = _FLOOR

    def _step(self, typical: float) -> None:
        gradient = max(0.5, min(1.0, _TOLERANCE * self._best / max(typical, 1e-9)))
        self._doubling = self._doubling and gradient == 1.0
        wanted = self._exact * (2.0 if self._doubling else gradient) + math.sqrt(self._exact)
        floor = min(_FLOOR, self.most, self._exact + 1)
        self._set(max(floor, wanted if self._doubling else 0.5 * self._exact + 0.5 * wanted))

    def _measured(self) -> None:
        """The last window was taken with little in flight, once what was under way before had come."""
        kept, self._kept = self._kept, None
        assert kept is not None
        ordered = sorted(self._times[-_WINDOW:])
        self._best = ordered[len(ordered) // 10]
        self._set(kept)

    def _set(self, exact: float) -> None:
        self._exact = min(float(self.most), exact)
        self.value = max(1, int(self._exact))

    def throttled(self, now: float, seconds: float = 1.0) -> None:
        """The service said 429 or 503: halve, at most once in `seconds`."""
        if now >= self._throttled_until:
            self._throttled_until = now + seconds
            self._doubling = False
            exact = self._exact if self._kept is None else self._kept
            self._kept = None
            self._set(max(1.0, exact / 2))
