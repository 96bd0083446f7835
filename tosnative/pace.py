"""How a sequential reader keeps ahead of its caller, decided from how fast it has been. Pure decisions."""

from __future__ import annotations

__all__ = ["FAR", "LARGE", "Pace"]

# Reads from this size on can be split into ranges that are worth a request each.
LARGE = 4 << 20
# Straight reads of at least so many bytes/s need no comparison: what comes ahead is copied once more, and waits in memory that
# costs its first use. Measured over loopback on two cores: 2.3 GiB/s with read-ahead, 3.4 without.
_FAST = 2 << 30
# Below this a single look is enough: the service is far, and its latency has to be hidden by many parts in flight.
FAR = 400 << 20
# Parts ahead of a near service. More bring nothing there, and their memory costs its first use.
_NEAR_WINDOW = 4
_STRAIGHT_READS = 8  # of a comparison, after the first, which opens connections
_EVEN_READS = 8  # until read-ahead runs evenly
_AHEAD_READS = 16
_GAIN = 1.1
_MOST_SLOW = 4


class Pace:
    """Tells a near service from a far one, and how to read from it.

    straight: whether the next large read should go straight into the caller's memory, with nothing asked for ahead. It begins
    so, as nothing is ahead yet. Where the service is neither very near nor far both ways are measured, once; what the caller
    does between two reads counts, as read-ahead hides it.
    settled: there will be no more comparison. Straight reads that become slow, four in a row, are given up all the same.
    near: a request was answered so fast, and none so slowly since, that a few parts in flight are enough.
    """

    def __init__(self) -> None:
        self.straight = True
        self.near = False
        self.settled = False
        self._reads = 0  # of this phase
        self._bytes = 0
        self._seconds = 0.0
        self._rate = 0.0  # of straight reads, in bytes/s
        self._slow = 0

    def window(self, most: int) -> int:
        """How many parts to have in flight or held ahead."""
        return min(most, _NEAR_WINDOW) if self.near else most

    def answered(self, size: int, seconds: float) -> None:
        """The first request brought so many bytes, so long after it was made."""
        self.near = size / max(seconds, 1e-9) >= FAR

    def waited(self, flying: int, seconds: float) -> None:
        """A part had to be waited for so long, while `flying` bytes were in flight."""
        self.near = self.near and flying >= FAR * seconds

    def went_straight(self, size: int, seconds: float) -> None:
        """A read of `size` bytes took so long, from the end of the one before."""
        rate = size / max(seconds, 1e-9)
        self.near = rate >= FAR
        if not self.near:
            self.read_ahead()
        elif self.settled:
            self._slow = self._slow + 1 if rate < self._rate / 2 else 0
            if self._slow >= _MOST_SLOW:
                self.read_ahead()
        elif self._measured(size, seconds, skipped=1, wanted=_STRAIGHT_READS):
            self._rate = self._bytes / self._seconds
            self.settled = self._rate >= _FAST
            self.straight = self.settled
            self._reads = 0

    def went_ahead(self, size: int, seconds: float) -> None:
        """The same, of a read that was served from what came ahead."""
        if not self.settled and self._measured(size, seconds, skipped=_EVEN_READS, wanted=_AHEAD_READS):
            self.straight = self._bytes / self._seconds < _GAIN * self._rate
            self.settled = True

    def read_ahead(self) -> None:
        """Read ahead from now on."""
        self.straight, self.settled = False, True

    def _measured(self, size: int, seconds: float, skipped: int, wanted: int) -> bool:
        """Add a read up; whether there are enough of them."""
        self._reads += 1
        if self._reads <= skipped:
            self._bytes, self._seconds = 0, 0.0
            return False
        self._bytes += size
        self._seconds += seconds
        return self._reads == skipped + wanted
