"""The connections to one origin, and the transfers that wait for one. State only; the engine acts on it."""

from __future__ import annotations

from collections import deque

from tosnative.wire.channel import Channel
from tosnative.wire.concurrency import Limit
from tosnative.wire.connections import Origin
from tosnative.wire.hedge import HedgePolicy
from tosnative.wire.retry import Failure
from tosnative.wire.targets import Target
from tosnative.wire.transfer import Transfer

__all__ = ["Pool"]

# The origins that have ever been connected to, also by the process that this one was forked from: what has answered once is
# down, not wrong, and worth more patience.
_reached: set[Origin] = set()


class Pool:
    """Invariant: `active` channels have a transfer, `idle` ones have none, and `opening` more are being connected."""

    def __init__(self, target: Target) -> None:
        options = target.origin.options
        fixed = target.most_in_flight is not None
        self.origin: Origin = target.origin
        self.limit = Limit(min(target.most_in_flight or options.max_connections, options.max_connections), fixed)
        self.hedge = HedgePolicy(target.hedge_percent)
        self.queue: deque[Transfer] = deque()
        self.idle: list[Channel] = []
        self.active: set[Channel] = set()
        self.opening = 0
        self.trouble: Failure | None = None  # why the last attempt to connect failed
        self.not_before = 0.0  # no new connection before this moment

    @property
    def reached(self) -> bool:
        """Whether this origin has ever been connected to."""
        return self.origin in _reached

    def connected(self) -> None:
        """A connection has been made."""
        _reached.add(self.origin)
        self.trouble = None

    @property
    def room(self) -> int:
        """How many more transfers may be under way."""
        return self.limit.value - len(self.active)

    @property
    def wanted(self) -> int:
        """How many more connections the queue could use now."""
        connections = len(self.active) + len(self.idle) + self.opening
        most = min(self.room - len(self.idle), self.origin.options.max_connections - connections + len(self.idle))
        return min(len(self.queue) - len(self.idle), most) - self.opening

    def stale(self, now: float) -> list[Channel]:
        """Take out the idle channels that nobody has used for too long, oldest first; the caller closes them."""
        oldest = now - self.origin.options.idle_timeout_s
        old = [channel for channel in self.idle if channel.since < oldest]
        if old:
            self.idle = [channel for channel in self.idle if channel.since >= oldest]
        return old
