"""Counters of this process: what was asked, what came, and what went wrong on the way."""

from __future__ import annotations

from dataclasses import asdict, dataclass

__all__ = ["METRICS", "Metrics", "get_metrics"]


@dataclass(slots=True)
class Metrics:
    """Totals since the process began (a forked child begins at zero). Bytes are body bytes.

    Written by the engine's thread and by callers without a lock: each is a statistic, not an invariant.
    """

    requests: int = 0
    retries: int = 0
    hedges: int = 0
    hedges_won: int = 0
    throttled: int = 0
    bytes_received: int = 0
    bytes_sent: int = 0
    connections_opened: int = 0
    connections_failed: int = 0
    integrity_failures: int = 0
    credential_refreshes: int = 0

    def reset(self) -> None:
        for name in asdict(self):
            setattr(self, name, 0)


METRICS = Metrics()


def get_metrics() -> dict[str, int]:
    """A copy of this process's counters, by name."""
    return asdict(METRICS)
