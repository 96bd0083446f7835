"""One socket's place in the loop: the readiness it waits for, and at most one timer."""

from __future__ import annotations

import selectors
import socket
from collections.abc import Callable

from tosnative.testing.loop import Loop, OnReady, Timer

NOTHING, READ, WRITE = 0, selectors.EVENT_READ, selectors.EVENT_WRITE


class Watch:
    """Calls `on_ready(mask)` when the socket is ready for what `wait_for` said, and `after` when a time has passed."""

    __slots__ = ("_loop", "_mask", "_on_ready", "_sock", "_timer")

    def __init__(self, loop: Loop, sock: socket.socket, on_ready: OnReady) -> None:
        self._loop = loop
        self._sock = sock
        self._on_ready = on_ready
        self._mask = NOTHING
        self._timer: Timer | None = None

    def wait_for(self, mask: int) -> None:
        if mask == self._mask:
            return
        if not self._mask:
            self._loop.selector.register(self._sock, mask, self._on_ready)
        elif not mask:
            self._loop.selector.unregister(self._sock)
        else:
            self._loop.selector.modify(self._sock, mask, self._on_ready)
        self._mask = mask

    def moved_to(self, sock: socket.socket) -> None:
        """The descriptor belongs to this socket object now."""
        self._sock = sock

    @property
    def sleeping(self) -> bool:
        """Whether a time is still to pass."""
        return self._timer is not None

    def after(self, delay_s: float, call: Callable[[], None]) -> None:
        """Call later; replaces what was to be called before."""
        self._cancel()

        def due() -> None:
            self._timer = None
            call()

        self._timer = self._loop.call_later(delay_s, due)

    def close(self) -> None:
        """Wait for nothing any more. To be called before the socket is closed."""
        self._cancel()
        self.wait_for(NOTHING)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
