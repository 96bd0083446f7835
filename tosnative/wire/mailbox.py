"""What other threads leave for the loop without taking a lock, and the way to end its wait."""

from __future__ import annotations

import contextlib
import socket
from collections import deque

from tosnative.wire import libc
from tosnative.wire.connections import Origin
from tosnative.wire.retry import Failure
from tosnative.wire.transfer import Transfer

__all__ = ["Mailbox"]


class Mailbox:
    """Deques that anybody appends to and the loop empties; an append is atomic. `woken` is readable after a `wake`."""

    def __init__(self) -> None:
        self.opened: deque[tuple[Origin, socket.socket | Failure]] = deque()
        self.ready: deque[tuple[Transfer, Failure | None]] = deque()
        self.orphans: deque[Transfer] = deque()
        self._closed = False
        self.woken, self._waker = socket.socketpair()
        self.woken.setblocking(False)
        self._waker.setblocking(False)

    def __bool__(self) -> bool:
        return bool(self.opened or self.ready or self.orphans)

    def wake(self) -> None:
        """End the loop's wait. May be called by a finalizer, in any thread."""
        # A full pipe wakes as well; a closed one has nobody left to wake.
        if libc.AVAILABLE:
            libc.send(self._waker.fileno(), b"x", 1, libc.QUIET)
        else:
            with contextlib.suppress(OSError):
                self._waker.send(b"x")

    def drain(self) -> None:
        """The loop is awake."""
        with contextlib.suppress(BlockingIOError):
            self.woken.recv(4096)

    def leave_opened(self, origin: Origin, result: socket.socket | Failure) -> None:
        """A connection was opened, or could not be."""
        self.opened.append((origin, result))
        if self._closed:
            self._close_opened()
        self.wake()

    def leave_ready(self, transfer: Transfer, failure: Failure | None) -> None:
        """A transfer goes on: with its next attempt, or with what became of the last."""
        self.ready.append((transfer, failure))
        self.wake()

    def leave_orphan(self, transfer: Transfer) -> None:
        """Nobody waits for this transfer any more."""
        self.orphans.append(transfer)
        self.wake()

    def close(self) -> None:
        self._closed = True
        self._close_opened()
        self.woken.close()
        self._waker.close()

    def _close_opened(self) -> None:
        while self.opened:
            with contextlib.suppress(IndexError):  # two threads may be here
                _, result = self.opened.popleft()
                if isinstance(result, socket.socket):
                    result.close()
