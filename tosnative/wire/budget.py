"""The byte budget of a process: everything in flight or read ahead, but not what was handed over to the user."""

from __future__ import annotations

import threading

__all__ = ["Budget"]


class Budget:
    """Counts bytes against a limit.

    Callers always admit the head of their line (`force=True`), so a full budget slows down and never deadlocks; `used`
    may pass `limit` by one such item for each reader and writer. A forked child makes its own (see
    `TosClient.budget`).
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._lock = threading.Lock()  # guards used

    def take(self, size: int, force: bool = False) -> bool:
        """Count `size` bytes in, if they fit or `force` is set. Returns whether they were counted."""
        with self._lock:
            if not force and self.used + size > self.limit:
                return False
            self.used += size
            return True

    def give(self, size: int) -> None:
        """Count `size` bytes out again."""
        with self._lock:
            self.used = max(0, self.used - size)
