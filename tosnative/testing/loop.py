"""A selector loop with timers: the one thread that everything of a local server happens in."""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
import time
from collections.abc import Callable

OnReady = Callable[[int], None]


class Timer:
    """A call that is due at `when` on the monotonic clock, unless it is cancelled before."""

    __slots__ = ("call", "when")

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call: Callable[[], None] | None = call

    def cancel(self) -> None:
        self.call = None


class Loop:
    """Calls back when sockets are ready and when timers are due.

    `run` serves until `stop`; it may be run again, in another thread too, and finds everything as it was left. Only
    `stop` may be called from other threads; everything else belongs to the thread that runs, or to anyone while none
    does.
    """

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._stopping = False
        self._woken, self._wake = socket.socketpair()
        self._woken.setblocking(False)
        self._wake.setblocking(False)
        self.selector.register(self._woken, selectors.EVENT_READ, self._on_woken)

    def now(self) -> float:
        """Seconds on the monotonic clock, which timers go by."""
        return time.monotonic()

    def call_later(self, delay_s: float, call: Callable[[], None]) -> Timer:
        timer = Timer(self.now() + delay_s, call)
        heapq.heappush(self._timers, (timer.when, next(self._order), timer))
        return timer

    def run(self) -> None:
        """Serve until `stop` is called, then forget that it was."""
        select = self.selector.select
        while not self._stopping:
            for key, mask in select(self._until_next_timer()):
                # A callback of this round may have closed what another event of it is about; such an event's
                # connection ignores it, since it knows that it is closed.
                key.data(mask)
            if self._timers:
                self._run_due()
        self._stopping = False

    def stop(self) -> None:
        # A plain flag and one system call: this is called in signal handlers too, where taking a lock could deadlock.
        self._stopping = True
        try:
            self._wake.send(b"\0")
        except (BlockingIOError, OSError):
            pass  # it is already full of reasons to wake up, or closed

    def close(self) -> None:
        """Close the loop's own descriptors, after it has run for the last time."""
        self.selector.close()
        self._woken.close()
        self._wake.close()

    def _until_next_timer(self) -> float | None:
        while self._timers and self._timers[0][2].call is None:
            heapq.heappop(self._timers)
        if not self._timers:
            return None
        return max(0.0, self._timers[0][0] - time.monotonic())

    def _run_due(self) -> None:
        now = time.monotonic()
        while self._timers and self._timers[0][0] <= now:
            call = heapq.heappop(self._timers)[2].call
            if call is not None:
                call()

    def _on_woken(self, _mask: int) -> None:
        try:
            self._woken.recv(4096)
        except BlockingIOError:
            pass
