"""The data plane: one thread and one selector loop for every transfer of the process.

Started by the first transfer, and in a forked child again by the child's first. Other threads submit transfers and wait for
them here; what the thread does is in `loop`.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
import time
import weakref
from collections.abc import Iterable

from tosnative.errors import TosError, TosException
from tosnative.logs import LOG
from tosnative.metrics import METRICS
from tosnative.wire.connections import Origin
from tosnative.wire.loop import Loop
from tosnative.wire.process import ForkTurn, PerProcess
from tosnative.wire.retry import Failure
from tosnative.wire.transfer import Transfer
from tosnative.wire.upkeep import tick

__all__ = ["ENGINE", "Engine"]

_FIRST_DEPTH = 96
# How long a fork may wait for what is under way on other threads; past it they are copied as they are.
_FORK_WAIT_S = 5.0
# How late the handler of a signal may run while the main thread waits.
_LOOK_S = 1.0


class Engine:
    """See the module. `_lock` guards `_incoming`, `_cancels`, `_asleep`, `_thread`, `_forking`, and every transfer's done
    and waiters.
    """

    def __init__(self) -> None:
        self.inherited = False
        self._lock = threading.Lock()
        self._lock_held = self._resume = False  # over a fork
        self._incoming: list[Transfer] = []
        self._cancels: list[Transfer] = []
        self._asleep = False
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._forking = False
        self._dead: BaseException | None = None
        self._local = threading.local()
        self._waiters: weakref.WeakSet[threading.Lock] = weakref.WeakSet()
        self._loop = Loop()

    # -- for any thread

    def submit(self, transfers: Iterable[Transfer]) -> None:
        """Take these on, in order. Where the loop has died they are failed."""
        with self._lock:
            for transfer in transfers:
                transfer.engine = self
                self._incoming.append(transfer)
            asleep = self._rouse()
        if asleep:
            self._loop.mail.wake()

    def again(self, transfer: Transfer, failure: Failure) -> None:
        """A transfer that was done turned out wrong: another attempt if the policy allows, else its error."""
        with self._lock:
            if not transfer.done:
                return  # another thread that waits for it has said so already
            transfer.done = transfer.settled = False
        self._loop.mail.leave_ready(transfer, failure)
        self._nudge()

    def wait(self, transfer: Transfer) -> None:
        """Return when the transfer is done. Raises: TosException where the interpreter is too far in its exit for that."""
        if sys.is_finalizing():
            raise TosException(TosError("nothing can be transferred any more: the interpreter is exiting"))
        while not transfer.done:
            # Not a Condition's wait: a signal's handler may raise in it between two steps, and leave the lock to nobody.
            with self._lock:
                if transfer.done:
                    return
                if self._dead is not None:
                    self._bury(transfer)
                    return
                waiter = self._waiter()
                if waiter not in transfer.waiters:
                    transfer.waiters = (*transfer.waiters, waiter)
            # A signal that comes just before the sleep, or to another thread, is not looked at before its end.
            waiter.acquire(True, _LOOK_S)

    def cancel(self, transfer: Transfer) -> None:
        """Stop a transfer; when this returns (or raises) no buffer of it is written to or read from any more."""
        if sys.is_finalizing():
            return  # the thread cannot run any more, nor another be started; and it may have ended with the lock
        interruption: BaseException | None = None
        with self._lock:
            if not transfer.done:
                self._cancels.append(transfer)
        while not transfer.done and self._dead is None:
            try:
                self._nudge()
                self.wait(transfer)
            except BaseException as error:  # noqa: BLE001 - raised below, once the engine has let go
                interruption = error
        if interruption is not None:
            raise interruption

    def abandon(self, transfer: Transfer) -> None:
        """Stop a transfer soon. Takes no lock: a finalizer may run in the thread that holds it."""
        self._loop.mail.leave_orphan(transfer)

    def successor(self) -> Engine:
        """The engine of this process."""
        return ENGINE.get()

    def advised_depth(self, origin: Origin) -> int:
        """How many small transfers to this origin are worth submitting ahead now."""
        pool = self._loop.pools.get(origin)
        # Twice the limit, as it is refilled half a window at a time and must not run dry meanwhile; and once more, so that an
        # answer that is late, and is raced, does not hold up the others behind it: with 1 % of them a second late, 0.95 of
        # what 512 in flight reach, and with twice the limit 0.79.
        return _FIRST_DEPTH if pool is None else 3 * pool.limit.value

    def least_first_byte_s(self, origin: Origin) -> float:
        """The least of the recent times to first byte from there; 0 where there is none."""
        pool = self._loop.pools.get(origin)
        return 0.0 if pool is None else pool.hedge.least_s

    def _waiter(self) -> threading.Lock:
        """Under the lock: this thread's own, which it waits for while others have not released it."""
        found: threading.Lock | None = getattr(self._local, "waiter", None)
        if found is None:
            found = self._local.waiter = threading.Lock()
            found.acquire()
            self._waiters.add(found)
        return found

    def _release(self, waiters: Iterable[threading.Lock]) -> None:
        """Under the lock, without which nobody releases: end these threads' sleep."""
        for waiter in waiters:
            if waiter.locked():
                waiter.release()

    def _bury(self, transfer: Transfer) -> None:
        """Under the lock, when the loop has died: this is how the transfer ends."""
        if not transfer.settled:
            transfer.fail(TosException(TosError(f"the transfer loop died: {self._dead!r}", hint="please report this")))
        transfer.settled = transfer.done = True

    def _rouse(self) -> bool:
        """Under the lock: start the thread if it is not running; tell whether it sleeps and must be woken.

        It says itself that it sleeps no more: an interruption before it is woken leaves that to the next call.
        """
        if self._thread is None and not self._forking and self._dead is None:
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="tosnative-engine", daemon=True)
            self._thread.start()
        return self._asleep

    def _nudge(self) -> None:
        with self._lock:
            asleep = self._rouse()
        if asleep:
            self._loop.mail.wake()

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - every waiter must hear of it
            self._die(error)

    def _turn(self) -> None:
        loop = self._loop
        with self._lock:
            incoming, self._incoming = self._incoming, []
            cancels, self._cancels = self._cancels, []
        loop.take_in(incoming, cancels)
        loop.dispatch()
        with self._lock:
            self._announce()
            quiet = self._asleep = not (self._incoming or self._cancels or self._stopping)
        loop.poll(quiet)
        self._asleep = False
        if loop.now >= loop.next_tick:
            tick(loop)

    def _announce(self) -> None:
        """Under the lock: everything that finished since the last turn; each waiter is notified once."""
        finished = self._loop.outcomes.finished
        for transfer in finished:
            transfer.done = True
            if transfer.waiters:
                self._release(transfer.waiters)
                transfer.waiters = ()
        finished.clear()

    def _die(self, error: BaseException) -> None:
        LOG.error("the transfer loop died", exc_info=error)
        with self._lock:
            self._dead = error
            if ENGINE.peek() is self:
                ENGINE.drop()  # the next use starts a new loop
            try:
                for transfer in (*self._incoming, *self._cancels, *self._loop.transfers()):
                    self._bury(transfer)
                self._loop.close()
            finally:
                self._release(self._waiters)  # whatever state the loop died in, whoever waits looks for himself

    # -- fork and exit

    def pause(self) -> bool:
        """End the thread and keep everything else; the next call starts it again. Returns whether it ran."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return False
        self._stopping = True
        self._loop.mail.wake()
        thread.join(_FORK_WAIT_S)
        with self._lock:
            self._thread = None
            self._announce()  # what the last turn finished is done, and is not begun again in a child
        return True

    def before_fork(self) -> None:
        """Nothing runs and nothing is half done while the process is copied."""
        with self._lock:
            self._forking = True
        self._resume = self.pause()
        self._loop.connector.hold(time.monotonic() + _FORK_WAIT_S)
        # Held over the fork, so that the child finds what it guards in one state.
        self._lock_held = self._lock.acquire(timeout=_FORK_WAIT_S)

    def after_fork_in_parent(self) -> None:
        """Go on where it stopped."""
        self._forking = False
        if self._lock_held:
            self._lock.release()
        self._loop.connector.go_on()
        if self._resume or self._incoming or self._cancels:
            self._nudge()

    def after_fork_in_child(self) -> None:
        """Close what was inherited; the transfers on it start again when somebody here waits for them."""
        self.inherited = True
        self._dead = RuntimeError("this loop belongs to the parent process")
        self._loop.close(inherited=True)


ENGINE: PerProcess[Engine] = PerProcess(Engine)
_TURN = ForkTurn()


def _before_fork() -> None:
    _TURN.take()
    engine = ENGINE.peek()
    if engine is not None:
        engine.before_fork()


def _after_fork_in_parent() -> None:
    engine = ENGINE.peek()
    try:
        if engine is not None:
            engine.after_fork_in_parent()
    finally:
        _TURN.give()


def _after_fork_in_child() -> None:
    _TURN.renew()
    engine = ENGINE.inherited()
    if engine is not None:
        engine.after_fork_in_child()
        ENGINE.drop()
    METRICS.reset()


def _at_exit() -> None:
    engine = ENGINE.peek()
    if engine is not None:
        engine.pause()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_parent=_after_fork_in_parent, after_in_child=_after_fork_in_child)
# Registered when this module is imported, so that it runs after the writers' own (the last registered runs first).
atexit.register(_at_exit)
