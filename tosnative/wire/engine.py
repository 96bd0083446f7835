"""The data plane: one thread and one selector loop for every transfer of the process.

Started by the first transfer, in a forked child again by the child's first. Other threads submit transfers and wait for them;
the engine's thread alone touches sockets and pools. It decides nothing about retries: it asks the policies in `retry`, `hedge`
and `concurrency`.
"""

from __future__ import annotations

import atexit
import contextlib
import heapq
import itertools
import os
import random
import selectors
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable

from tosnative.errors import TosError, TosException
from tosnative.logs import LOG
from tosnative.metrics import METRICS
from tosnative.wire.channel import Channel, Scratch, make_channel
from tosnative.wire.connections import Connector, Origin
from tosnative.wire.pool import Pool
from tosnative.wire.process import PerProcess
from tosnative.wire.refresh import Refresher, SwitchInterval
from tosnative.wire.retry import Attempts, Failure, Kind, RetryBudget
from tosnative.wire.transfer import Transfer

__all__ = ["ENGINE", "Engine"]

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
_TICK_S = 0.25
_IDLE_TICK_S = 5.0


class Engine:
    """See the module. `_lock` guards `_incoming`, `_cancels`, `_asleep`, `_thread`, and every transfer's done and waiter."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held = False  # over a fork
        self._incoming: list[Transfer] = []
        self._cancels: list[Transfer] = []
        self._asleep = False
        self._thread: threading.Thread | None = None
        self._stopping = False
        self._dead: BaseException | None = None
        self.inherited = False
        self._local = threading.local()
        # Appended to by finalizers and helper threads without a lock.
        self._orphans: deque[Transfer] = deque()
        self._opened: deque[tuple[Origin, socket.socket | Failure]] = deque()
        self._ready: deque[tuple[Transfer, Failure | None]] = deque()
        # The engine's thread's own.
        self._selector = selectors.DefaultSelector()
        self._woken, self._waker = socket.socketpair()
        self._woken.setblocking(False)
        self._waker.setblocking(False)
        self._selector.register(self._woken, _READ, None)
        self._scratch = Scratch()
        self._pools: dict[Origin, Pool] = {}
        self._pool_of: dict[Channel, Pool] = {}
        self._timers: list[tuple[float, int, Transfer]] = []
        self._sequence = itertools.count()
        self._again: list[Channel] = []  # TLS channels with decrypted bytes that no selector reports
        self._finished: list[Transfer] = []
        self._next_tick = 0.0
        self._now = 0.0  # when this turn began
        self._retry_budget = RetryBudget()
        self._random = random.Random()
        self._connector = Connector(self._on_opened)
        self._refresher = Refresher(self._on_refreshed)
        self._switch_interval = SwitchInterval()

    # -- called by any thread

    def submit(self, transfers: Iterable[Transfer]) -> None:
        """Take these on, in order. Raises: RuntimeError where the loop has died."""
        with self._lock:
            for transfer in transfers:
                transfer.engine = self
                self._incoming.append(transfer)
            wake = self._wake_needed()
        if wake:
            self._wake()

    def again(self, transfer: Transfer, failure: Failure) -> None:
        """A transfer that was done turned out wrong: another attempt if the policy allows, else its error."""
        transfer.done = transfer.settled = False
        self._ready.append((transfer, failure))
        with self._lock:
            wake = self._wake_needed()
        if wake:
            self._wake()

    def wait(self, transfer: Transfer) -> None:
        """Return when the transfer is done."""
        with self._lock:
            while not transfer.done:
                if self._dead is not None:
                    raise RuntimeError(f"the transfer loop died: {self._dead!r}") from self._dead
                waiter = transfer.waiter
                if waiter is None:
                    waiter = transfer.waiter = self._condition()
                waiter.wait()

    def cancel(self, transfer: Transfer) -> None:
        """Stop a transfer; when this returns (or raises) no buffer of it is written to or read from any more."""
        interruption: BaseException | None = None
        with self._lock:
            if not transfer.done:
                self._cancels.append(transfer)
        while not transfer.done and self._dead is None:
            try:
                with self._lock:
                    wake = self._wake_needed()
                if wake:
                    self._wake()
                self.wait(transfer)
            except BaseException as error:  # noqa: BLE001 - raised below, once the engine has let go
                interruption = error
        if interruption is not None:
            raise interruption

    def abandon(self, transfer: Transfer) -> None:
        """Stop a transfer soon. Takes no lock: a finalizer may run in the thread that holds it."""
        self._orphans.append(transfer)
        self._wake()

    def successor(self) -> Engine:
        """The engine of this process."""
        return ENGINE.get()

    def advised_depth(self, origin: Origin) -> int:
        """How many small transfers to this origin are worth submitting ahead now."""
        pool = self._pools.get(origin)
        return 32 if pool is None else min(2 * pool.limit.value, pool.limit.most)

    def _condition(self) -> threading.Condition:
        found: threading.Condition | None = getattr(self._local, "condition", None)
        if found is None:
            found = self._local.condition = threading.Condition(self._lock)
        return found

    def _wake_needed(self) -> bool:
        """Under the lock: start the thread if it is not running; tell whether it sleeps."""
        if self._dead is not None:
            raise RuntimeError(f"the transfer loop died: {self._dead!r}") from self._dead
        if self._thread is None:
            self._stopping = False
            self._thread = threading.Thread(target=self._run, name="tosnative-engine", daemon=True)
            self._thread.start()
        wake, self._asleep = self._asleep, False
        return wake

    def _wake(self) -> None:
        with contextlib.suppress(OSError):  # a full pipe wakes as well; a closed one has nobody left to wake
            self._waker.send(b"x")

    def _on_opened(self, origin: Origin, result: socket.socket | Failure) -> None:
        self._opened.append((origin, result))
        self._wake()

    def _on_refreshed(self, transfer: Transfer, failure: Failure | None) -> None:
        self._ready.append((transfer, failure))
        self._wake()

    # -- the thread

    def _run(self) -> None:
        try:
            while not self._stopping:
                self._turn()
        except BaseException as error:  # noqa: BLE001 - every waiter must hear of it
            self._die(error)

    def _turn(self) -> None:
        now = self._now = time.monotonic()
        self._take_in(now)
        for pool in self._pools.values():
            if pool.queue:
                self._dispatch(pool, now)
        with self._lock:
            self._deliver()
            quiet = not (self._incoming or self._cancels)
            self._asleep = quiet
        timeout = (
            self._timeout(now) if quiet and not (self._again or self._opened or self._ready or self._orphans) else 0.0
        )
        events = self._selector.select(timeout)
        self._asleep = False
        now = time.monotonic()
        again, self._again = self._again, []
        for selected, mask in events:
            channel = selected.data
            if channel is None:
                with contextlib.suppress(BlockingIOError):
                    self._woken.recv(4096)
            else:
                self._serve(channel, mask, now)
        for channel in again:
            if channel in self._pool_of:
                self._serve(channel, _READ, now)
        if now >= self._next_tick:
            self._tick(now)

    def _timeout(self, now: float) -> float:
        soonest = self._next_tick
        if self._timers:
            soonest = min(soonest, self._timers[0][0])
        return max(0.0, soonest - now)

    def _deliver(self) -> None:
        """Under the lock: everything that finished in this turn, each waiter notified once."""
        if self._finished:
            for transfer in self._finished:
                transfer.done = True
                waiter, transfer.waiter = transfer.waiter, None
                if waiter is not None:
                    waiter.notify_all()
            self._finished.clear()

    def _take_in(self, now: float) -> None:
        with self._lock:
            incoming, self._incoming = self._incoming, []
            cancels, self._cancels = self._cancels, []
        for transfer in incoming:
            if transfer.attempts is None:
                transfer.attempts = Attempts(now)
            self._enqueue(transfer)
        while self._opened:
            self._adopt(*self._opened.popleft(), now)
        while self._ready:
            transfer, failure = self._ready.popleft()
            if failure is None:
                self._enqueue(transfer)
            else:
                self._decide(transfer, failure, now)
        while self._orphans:
            cancels.append(self._orphans.popleft())
        for transfer in cancels:
            self._drop(transfer)
        while self._timers and self._timers[0][0] <= now:
            self._enqueue(heapq.heappop(self._timers)[2])

    def _enqueue(self, transfer: Transfer) -> None:
        if transfer.settled:
            return
        origin = transfer.target.origin
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = Pool(transfer.target)
        pool.queue.append(transfer)
        self._next_tick = min(self._next_tick, self._now + _TICK_S)

    def _drop(self, transfer: Transfer) -> None:
        """Cancelled or abandoned: let go of it, wherever it is."""
        if transfer.settled:
            return
        for channel in list(transfer.channels):
            self._discard(channel)
        self._finish(transfer, transfer.cancelled_error())

    # -- starting

    def _dispatch(self, pool: Pool, now: float) -> None:
        wall = time.time()
        queue, idle = pool.queue, pool.idle
        while queue and idle and pool.room > 0:
            transfer = queue.popleft()
            if transfer.settled:
                continue  # cancelled meanwhile
            credentials = transfer.target.provider.ready()
            if credentials is None:
                self._refresher.fetch(transfer)
                continue
            transfer.credentials = credentials
            self._begin(pool, idle.pop(), transfer, now, wall)
        wanted = pool.wanted
        if wanted > 0 and now >= pool.not_before:
            pool.opening += wanted
            for _ in range(wanted):
                self._connector.open(pool.origin)

    def _begin(self, pool: Pool, channel: Channel, transfer: Transfer, now: float, wall: float) -> None:
        assert transfer.credentials is not None
        pool.active.add(channel)
        transfer.channels.append(channel)
        try:
            channel.start(transfer, transfer.request(transfer.credentials, wall), now)
        except Failure as failure:
            self._failed(pool, channel, failure, now)
            return
        self._watch(channel)

    def _watch(self, channel: Channel) -> None:
        """Ask the selector for writability while, and only while, there is something to send."""
        if channel.sending != channel.writing:
            channel.writing = channel.sending
            self._selector.modify(channel.sock, _READ | _WRITE if channel.writing else _READ, channel)

    def _adopt(self, origin: Origin, result: socket.socket | Failure, now: float) -> None:
        """A connection was opened, or could not be."""
        pool = self._pools[origin]
        pool.opening -= 1
        if isinstance(result, Failure):
            METRICS.connections_failed += 1
            result.reached = pool.reached
            if pool.active or pool.idle:
                pool.not_before = now + 1.0  # what is connected carries on
                return
            while pool.queue:
                transfer = pool.queue.popleft()
                if not transfer.settled:
                    self._decide(transfer, result, now)
                    break
            return
        METRICS.connections_opened += 1
        pool.reached = True
        channel = make_channel(result)
        channel.since = now
        self._pool_of[channel] = pool
        self._selector.register(result, _READ, channel)
        pool.idle.append(channel)
        self._switch_interval.connected(channel, pool)

    # -- serving

    def _serve(self, channel: Channel, mask: int, now: float) -> None:
        pool = self._pool_of.get(channel)
        if pool is None:
            return  # discarded earlier in this turn
        try:
            if mask & _WRITE:
                channel.write()
                self._watch(channel)
            if not mask & _READ:
                return
            complete = channel.read(self._scratch)
            transfer = channel.transfer
            assert transfer is not None
            if channel.sent_at and channel.head is not None:
                self._answered(pool, channel, transfer, now)
            if complete:
                transfer.finish()
            else:
                if channel.pending():
                    self._again.append(channel)
                return
        except Failure as failure:
            self._failed(pool, channel, failure, now)
            return
        self._retry_budget.succeeded()
        self._release(pool, channel, now)
        self._finish(transfer, None)

    def _answered(self, pool: Pool, channel: Channel, transfer: Transfer, now: float) -> None:
        """The head of an answer is there: note how long it took, and stop those that raced it."""
        if transfer.hedged:
            took = now - channel.sent_at
            pool.limit.answered(took, busy=bool(pool.queue))
            pool.hedge.answered(took)
        channel.sent_at = 0.0
        if len(transfer.channels) > 1:
            METRICS.hedges_won += transfer.channels[0] is not channel
            for other in list(transfer.channels):
                if other is not channel:
                    self._discard(other)

    def _release(self, pool: Pool, channel: Channel, now: float) -> None:
        """The exchange on this channel is over, and went well."""
        transfer = channel.transfer
        if transfer is not None:
            transfer.channels.remove(channel)
        if not channel.reusable:
            self._discard(channel)
            return
        channel.transfer = None
        channel.since = now
        pool.active.discard(channel)
        pool.idle.append(channel)

    def _discard(self, channel: Channel) -> None:
        pool = self._pool_of.pop(channel, None)
        if pool is None:
            return
        pool.active.discard(channel)
        if channel in pool.idle:
            pool.idle.remove(channel)
        if channel.transfer is not None and channel in channel.transfer.channels:
            channel.transfer.channels.remove(channel)
        with contextlib.suppress(KeyError, ValueError):
            self._selector.unregister(channel.sock)
        channel.close()
        self._switch_interval.closed(channel)

    # -- ending

    def _failed(self, pool: Pool, channel: Channel, failure: Failure, now: float) -> None:
        transfer = channel.transfer
        refused = failure.kind in (Kind.STATUS, Kind.EXPIRED) or failure.status is not None
        if transfer is None:  # an idle connection that the service closed
            self._discard(channel)
            return
        if refused:
            self._release(pool, channel, now)  # the exchange itself went well
        else:
            transfer.progressed(channel.stream_bytes)
            self._discard(channel)
        if failure.status in (429, 503):
            METRICS.throttled += 1
            pool.limit.throttled(now)
        if transfer.channels:
            return  # the other one of a race goes on
        self._decide(transfer, failure, now)

    def _decide(self, transfer: Transfer, failure: Failure, now: float) -> None:
        """Another attempt, or the end."""
        attempts = transfer.attempts
        assert attempts is not None
        delay = attempts.decide(transfer.target.policy, failure, now, self._random.random(), self._retry_budget)
        if delay is None:
            error = attempts.exception(failure, now, transfer.operation, transfer.bucket, transfer.key)
            self._finish(transfer, error)
            return
        METRICS.retries += 1
        LOG.debug("%s %s/%s again in %.2f s: %s", transfer.operation, transfer.bucket, transfer.key, delay, failure)
        if failure.kind is Kind.EXPIRED:
            self._refresher.replace(transfer, failure)
        elif delay > 0:
            heapq.heappush(self._timers, (now + delay, next(self._sequence), transfer))
        else:
            self._enqueue(transfer)

    def _finish(self, transfer: Transfer, error: TosException | None) -> None:
        if error is not None:
            transfer.fail(error)
        transfer.settled = True  # queues and timers skip it when they come to it
        self._finished.append(transfer)

    def _tick(self, now: float) -> None:
        """What needs no exact moment: timeouts, hedges, connections that nobody uses."""
        step = _IDLE_TICK_S
        for pool in self._pools.values():
            options = pool.origin.options
            for channel in list(pool.active):
                failure = channel.check(now, options.first_byte_timeout_s, options.stall_timeout_s)
                if failure is not None:
                    self._failed(pool, channel, failure, now)
            if pool.active or pool.queue or pool.opening:
                step = min(step, self._race(pool, now))
            for channel in pool.stale(now):
                self._discard(channel)
        self._next_tick = now + step
        self._switch_interval.settle(any(pool.active for pool in self._pools.values()))

    def _race(self, pool: Pool, now: float) -> float:
        """Race the answers that are unusually late; returns the seconds until the next look."""
        delay = pool.hedge.delay
        if delay is None:
            return _TICK_S
        for channel in list(pool.active):
            transfer = channel.transfer
            late = channel.sent_at and channel.awaiting_head and now - channel.sent_at > delay
            if not late or transfer is None or not transfer.hedged or len(transfer.channels) != 1:
                continue
            if not pool.idle:
                if pool.opening == 0 and len(pool.active) < pool.origin.options.max_connections:
                    pool.opening += 1
                    self._connector.open(pool.origin)
                continue
            if not pool.hedge.allow():
                break
            METRICS.hedges += 1
            self._begin(pool, pool.idle.pop(), transfer, now, time.time())
        return min(_TICK_S, max(delay / 2, 0.005))

    def _die(self, error: BaseException) -> None:
        LOG.error("the transfer loop died", exc_info=error)
        with self._lock:
            self._dead = error
            waiting = [*self._incoming, *self._finished, *(timer[2] for timer in self._timers)]
            for pool in self._pools.values():
                waiting += pool.queue
                waiting += [channel.transfer for channel in pool.active if channel.transfer is not None]
            for channel in list(self._pool_of):
                channel.close()
            for transfer in waiting:
                if not transfer.done:
                    transfer.fail(TosException(TosError(f"the transfer loop died: {error!r}")))
            self._finished = waiting
            self._deliver()
            if ENGINE.peek() is self:
                ENGINE.drop()  # the next use starts a new loop

    # -- fork and exit

    def pause(self) -> None:
        """End the thread, keep everything else; the next call or `resume` starts it again."""
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        self._stopping = True
        self._wake()
        thread.join()
        self._thread = None

    def before_fork(self) -> None:
        self.pause()
        self._connector.settle(0.5)
        # Held over the fork, so that the child finds it in one state.
        self._held = self._lock.acquire(timeout=5.0)

    def after_fork_in_parent(self) -> None:
        if self._held:
            self._lock.release()
        with self._lock:
            busy = (
                self._incoming
                or self._cancels
                or self._timers
                or any(p.active or p.queue for p in self._pools.values())
            )
            if busy or self._opened or self._ready:
                self._wake_needed()

    def after_fork_in_child(self) -> None:
        """Close what was inherited without touching what the parent goes on using; transfers know that they are orphans."""
        self.inherited = True
        self._dead = RuntimeError("this loop belongs to the parent process")
        self._selector.close()
        for sock in (self._woken, self._waker):
            sock.close()
        for channel in self._pool_of:
            channel.close(inherited=True)
        for _, result in self._opened:
            if isinstance(result, socket.socket):
                result.close()


ENGINE: PerProcess[Engine] = PerProcess(Engine)


def _before_fork() -> None:
    engine = ENGINE.peek()
    if engine is not None:
        engine.before_fork()


def _after_fork_in_parent() -> None:
    engine = ENGINE.peek()
    if engine is not None:
        engine.after_fork_in_parent()


def _after_fork_in_child() -> None:
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
