"""Bytes on their way out, and the pace at which a connection may move bytes at all."""

from __future__ import annotations

import time

from tosnative.testing.messages import Buffer
from tosnative.testing.transport import Transport

IOV_MAX = 64
PACE_BYTES = 16 << 10
SHORTEST_PAUSE_S, LONGEST_PAUSE_S = 0.001, 0.02


class Pace:
    """Allows `rate` bytes per second, counted from its construction; None: any number."""

    __slots__ = ("_moved", "_rate", "_since")

    def __init__(self, rate: float | None) -> None:
        self._rate = rate
        self._moved = 0
        self._since = time.monotonic()

    def allowance(self) -> int:
        """How many bytes may be moved now; may be 0 or less."""
        if self._rate is None:
            return 1 << 62
        return int((time.monotonic() - self._since) * self._rate) - self._moved

    def count(self, n: int) -> None:
        self._moved += n

    @property
    def debt_s(self) -> float:
        """How long until what was moved was allowed; 0 or less: it is."""
        return -self.allowance() / self._rate if self._rate is not None else 0.0

    @property
    def pause_s(self) -> float:
        """How long to wait when nothing is allowed."""
        assert self._rate is not None
        return max(SHORTEST_PAUSE_S, min(PACE_BYTES / self._rate, LONGEST_PAUSE_S))


class Outgoing:
    """Buffers to send one after the other."""

    __slots__ = ("_buffers", "_pace")

    def __init__(self, buffers: list[Buffer], rate: float | None) -> None:
        self._buffers = buffers
        self._pace = Pace(rate) if rate is not None else None

    @property
    def pause_s(self) -> float:
        """How long to wait after "paced"."""
        return self._pace.pause_s if self._pace is not None else 0.0

    def push(self, transport: Transport) -> str:
        """Send what can be sent now: "done", "full" (wait for the socket) or "paced" (wait for `pause_s`).

        Raises:
            OSError: the connection is lost.
        """
        buffers, pace = self._buffers, self._pace
        while buffers:
            batch = buffers[:IOV_MAX] if len(buffers) > IOV_MAX else buffers
            if pace is not None:
                allowed = pace.allowance()
                if allowed < min(PACE_BYTES, len(buffers[0])):
                    return "paced"  # a few bytes at a time would keep the loop from all other connections
                batch = [memoryview(buffers[0])[:allowed]]
            n = transport.send(batch)
            if n is None:
                return "full"
            if pace is not None:
                pace.count(n)
            if not self._drop(n) and pace is None and transport.takes_all:
                return "full"
        return "done"

    def _drop(self, n: int) -> bool:
        """Forget n sent bytes; whether they ended where a buffer ends."""
        buffers, whole = self._buffers, 0
        while whole < len(buffers) and n >= len(buffers[whole]):
            n -= len(buffers[whole])
            whole += 1
        del buffers[:whole]
        if n:
            buffers[0] = memoryview(buffers[0])[n:]
        return not n
