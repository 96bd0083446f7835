"""One request of the data plane and everything that may happen to it until it is done: what callers wait on.

A transfer is written by the thread that made it until it is submitted, then by the engine's thread until it is done, then by
whoever waits for it. `done` may be read by anybody at any time.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Protocol

from tosnative.credentials import Credentials
from tosnative.errors import TosAbortedError, TosError, TosException
from tosnative.wire.http1 import Head
from tosnative.wire.retry import Attempts, Failure
from tosnative.wire.signing import quote_key
from tosnative.wire.targets import Target

if TYPE_CHECKING:
    from typing_extensions import Self


__all__ = ["MAX_ERROR_BODY", "EngineLike", "Transfer"]

# An error's body is read up to here; what follows is cut off with the connection.
MAX_ERROR_BODY = 64 * 1024


class EngineLike(Protocol):
    """What a transfer asks of the engine that it was submitted to.

    inherited: in a forked child, an engine of the parent's, of which nothing runs here.
    """

    inherited: bool

    def successor(self) -> EngineLike: ...
    def wait(self, transfer: Transfer) -> None: ...
    def cancel(self, transfer: Transfer) -> None: ...
    def abandon(self, transfer: Transfer) -> None: ...
    def submit(self, transfers: Iterable[Transfer]) -> None: ...
    def again(self, transfer: Transfer, failure: Failure) -> None: ...


class Transfer:
    """The common part of Download, Upload and Query; see the module."""

    __slots__ = (
        "__weakref__",
        "attempts",
        "bucket",
        "channels",
        "credentials",
        "done",
        "engine",
        "error",
        "key",
        "path",
        "settled",
        "target",
        "waiters",
    )
    operation = ""
    hedged = False

    def __init__(self, target: Target, bucket: str, key: str) -> None:
        self.target = target
        self.bucket = bucket
        self.key = key
        self.path = quote_key(key)
        self.done = False
        self.error: TosException | None = None
        self.engine: EngineLike | None = None
        self.attempts: Attempts | None = None
        self.channels: list[
            Any
        ] = []  # Channels, which are above this: where it is under way: one, or two while it is hedged
        self.credentials: Credentials | None = None  # those of the last attempt
        self.waiters: tuple[threading.Lock, ...] = ()
        self.settled = False  # the engine is through with it, and about to say `done`

    # -- for callers

    def wait(self) -> Self:
        """Return when done. Raises: the error, at every call.

        When the wait itself is interrupted (KeyboardInterrupt), the transfer is cancelled, and the engine has let go of
        every buffer before the interruption goes on.
        """
        if not self.done:
            engine = self.engine
            if engine is None:
                raise RuntimeError("this transfer was never submitted")
            if engine.inherited:
                engine = self._resubmit(engine)
            try:
                engine.wait(self)
            except BaseException:
                while not self.done:
                    try:
                        self.cancel()
                    except BaseException:  # noqa: BLE001, S110 - interrupted again: the first interruption goes on below
                        pass
                raise
        if self.error is not None:
            raise self.error
        return self

    def cancel(self) -> None:
        """Stop it. When this returns the engine has let go of its buffers. Idempotent; nothing happens when done."""
        if not self.done and self.engine is not None and not self.engine.inherited:
            self.engine.cancel(self)

    def abandon(self) -> None:
        """Stop it soon, without waiting and without taking a lock (for finalizers)."""
        if not self.done and self.engine is not None and not self.engine.inherited:
            self.engine.abandon(self)

    def _resubmit(self, inherited: EngineLike) -> EngineLike:
        """In a forked child, of a transfer that was under way at the fork: the parent's goes on there, ours starts again."""
        engine = inherited.successor()
        self.channels, self.waiters, self.attempts, self.settled = [], (), None, False
        engine.submit([self])
        return engine

    # -- for the engine

    def request(self, credentials: Credentials, now: float) -> bytes:
        """The request's head, signed at this moment (seconds since 1970)."""
        raise NotImplementedError

    @property
    def body(self) -> tuple[memoryview, ...]:
        """What follows the head, in pieces, none of them empty."""
        return ()

    def accept(self, head: Head) -> memoryview:
        """Where this answer's body goes, as long as the body is. Raises: Failure."""
        raise NotImplementedError

    def finish(self) -> None:
        """The answer's body has arrived where `accept` said. Raises: Failure."""

    def most_unsized(self, head: Head) -> int:
        """The most bytes that a body of unknown length may have."""
        return MAX_ERROR_BODY

    def progressed(self, size: int) -> None:
        """An attempt broke after `size` more bytes of the body had arrived where they belong."""

    def fail(self, error: TosException) -> None:
        """The last word: there is no further attempt."""
        self.error = error

    def cancelled_error(self) -> TosException:
        return TosAbortedError(
            TosError("the transfer was cancelled", operation=self.operation, bucket=self.bucket, key=self.key)
        )
