"""Whether large reads should be read ahead of, decided from how fast they are without. Pure decisions."""

from __future__ import annotations

__all__ = ["LARGE", "Pace"]

# Reads from this size on can be split into ranges that are worth a request each.
LARGE = 4 << 20
# What comes ahead is copied once more, and costs the memory it waits in. Measured over loopback on two cores: 2.3 GiB/s
# with read-ahead, 3.4 without. Straight reads of at least so many bytes/s are kept.
_FAST = 2 << 30
# Below this a single look is enough: the service is far, and its latency has to be hidden.
_FAR = 400 << 20
# So many slower reads more than faster ones end it. Connections are opened during the first.
_MOST_SLOW = 4


class Pace:
    """Tells large reads to go straight into the caller's memory for as long as that is faster than reading ahead.

    straight: whether the next large read should. Each reader begins so, as there is nothing ahead yet; once it reads ahead, it
    goes on with that.
    """

    def __init__(self) -> None:
        self.straight = True
        self._slow = 0

    def went_straight(self, size: int, seconds: float) -> None:
        """A read of `size` bytes took so long, with what the caller did since the one before: read-ahead would hide that."""
        rate = size / max(seconds, 1e-9)
        if rate >= _FAST:
            self._slow = max(0, self._slow - 1)
        else:
            self._slow += 1
            self.straight = rate >= _FAR and self._slow < _MOST_SLOW

    def read_ahead(self) -> None:
        """Something else has begun to read ahead."""
        self.straight = False
