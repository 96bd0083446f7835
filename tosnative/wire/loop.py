"""What the engine's thread does: connections, transfers on them, and what becomes of each. Not thread-safe, on purpose.

It decides nothing: how many at once, and whether to race, it asks the policies in `concurrency` and `hedge`; what becomes of
a transfer is settled in `outcomes`.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import time
from collections.abc import Iterable, Iterator

from tosnative.metrics import METRICS
from tosnative.wire.channel import Channel
from tosnative.wire.connections import Connector, Origin
from tosnative.wire.fast_channel import make_channel
from tosnative.wire.mailbox import Mailbox
from tosnative.wire.outcomes import Outcomes
from tosnative.wire.pool import Pool
from tosnative.wire.refresh import Refresher, SwitchInterval, provider_failure
from tosnative.wire.retry import Attempts, Failure, Kind
from tosnative.wire.scratch import Scratch, settle_allocator
from tosnative.wire.transfer import Transfer

__all__ = ["TICK_S", "Loop"]

# A resumed attempt that moved this much was worth its while: the deadline starts anew.
_PROGRESS_BYTES = 1 << 20
_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE
# How often timeouts are looked at while something is under way.
TICK_S = 0.25


class Loop:
    """Takes transfers and ends them; see the module."""

    def __init__(self) -> None:
        settle_allocator()
        self.mail = Mailbox()
        self.pools: dict[Origin, Pool] = {}
        self.now = 0.0  # when this turn began, or its events came
        self.next_tick = 0.0
        self.connector = Connector(self.mail.leave_opened)
        self.switch_interval = SwitchInterval()
        self.refresher = Refresher(self.mail.leave_ready)
        self.outcomes = Outcomes(self.enqueue, self.refresher.replace)
        self._selector = selectors.DefaultSelector()
        self._selector.register(self.mail.woken, _READ, None)
        self._scratch = Scratch()
        self._pool_of: dict[Channel, Pool] = {}
        self._again: list[Channel] = []  # TLS channels with decrypted bytes that no selector reports

    # -- one turn

    def take_in(self, incoming: Iterable[Transfer], cancelled: Iterable[Transfer]) -> None:
        """Begin a turn: with what was submitted, and with what other threads have left."""
        now = self.now = time.monotonic()
        for transfer in incoming:
            if transfer.attempts is None:
                transfer.attempts = Attempts(now)
            self.enqueue(transfer)
        mail = self.mail
        while mail.opened:
            self._adopt(*mail.opened.popleft())
        while mail.ready:
            transfer, failure = mail.ready.popleft()
            if failure is None:
                self.enqueue(transfer)
            else:
                self.outcomes.failed(transfer, failure, now)
        while mail.orphans:
            self._drop(mail.orphans.popleft())
        for transfer in cancelled:
            self._drop(transfer)
        self.outcomes.go_on(now)

    def dispatch(self) -> None:
        """Start what may start."""
        for pool in self.pools.values():
            if pool.queue:
                self._start(pool)

    def poll(self, may_wait: bool) -> None:
        """Wait for sockets, if there is nothing else to do, and serve those that are ready."""
        idle = may_wait and not (self._again or self.mail)
        events = self._selector.select(self._timeout() if idle else 0.0)
        self.now = time.monotonic()
        again, self._again = self._again, []
        for selected, mask in events:
            channel = selected.data
            if channel is None:
                self.mail.drain()
            else:
                self._serve(channel, mask)
        for channel in again:
            self._serve(channel, _READ)

    def _timeout(self) -> float:
        soonest, resumed = self.next_tick, self.outcomes.next_at
        return max(0.0, (soonest if resumed is None else min(soonest, resumed)) - self.now)

    # -- starting

    def enqueue(self, transfer: Transfer) -> None:
        if transfer.settled:
            return
        origin = transfer.target.origin
        pool = self.pools.get(origin)
        if pool is None:
            pool = self.pools[origin] = Pool(transfer.target)
        pool.queue.append(transfer)
        self.next_tick = min(self.next_tick, self.now + min(TICK_S, pool.hedge.look_s))

    def _start(self, pool: Pool) -> None:
        wall = time.time()
        queue, idle = pool.queue, pool.idle
        while queue and idle and pool.room > 0:
            transfer = queue.popleft()
            if transfer.settled:
                continue  # cancelled meanwhile
            if self._authorize(transfer):
                self.begin(pool, idle.pop(), transfer, wall)
        wanted = pool.wanted
        if wanted > 0 and self.now >= pool.not_before:
            pool.opening += wanted
            self.connector.open(pool.origin, wanted)

    def _authorize(self, transfer: Transfer) -> bool:
        """Whether there are credentials to sign with now; else they are fetched, and the transfer comes back."""
        try:
            transfer.credentials = transfer.target.provider.ready()
        except Exception as error:  # noqa: BLE001 - providers are foreign code
            self.outcomes.failed(transfer, provider_failure(error), self.now)
            return False
        if transfer.credentials is None:
            self.refresher.fetch(transfer)
        return transfer.credentials is not None

    def begin(self, pool: Pool, channel: Channel, transfer: Transfer, wall: float) -> None:
        """Send the transfer's request on this idle channel."""
        assert transfer.credentials is not None
        try:
            head = transfer.request(transfer.credentials, wall)
        except Exception as error:  # noqa: BLE001 - a request that cannot be made is its own failure, not the loop's
            pool.idle.append(channel)
            if not transfer.channels:
                text = f"the request cannot be made ({type(error).__name__})"  # what it says may hold secrets
                self.outcomes.failed(transfer, Failure(Kind.FINAL, text, cause=error), self.now)
            return
        pool.active.add(channel)
        transfer.channels.append(channel)
        channel.start(transfer, head, self.now)
        self._watch(channel)

    def _watch(self, channel: Channel) -> None:
        """Ask the selector for writability while, and only while, there is something to send."""
        if channel.sending != channel.writing:
            channel.writing = channel.sending
            self._selector.modify(channel.sock, _READ | _WRITE if channel.writing else _READ, channel)

    def _adopt(self, origin: Origin, result: socket.socket | Failure) -> None:
        """A connection was opened, or could not be."""
        pool = self.pools[origin]
        pool.opening -= 1
        if isinstance(result, Failure):
            METRICS.connections_failed += 1
            self._unconnected(pool, result)
            return
        METRICS.connections_opened += 1
        pool.connected()
        channel = make_channel(result)
        channel.since = self.now
        self._pool_of[channel] = pool
        self._selector.register(result, _READ, channel)
        pool.idle.append(channel)
        self.switch_interval.connected(channel, pool)

    def _unconnected(self, pool: Pool, failure: Failure) -> None:
        failure.reached, pool.trouble = pool.reached, failure
        if pool.active or pool.idle:
            pool.not_before = self.now + 1.0  # what is connected carries on
            return
        # Where it has never worked each attempt may cost a whole timeout: then it speaks for all that wait.
        waiting = len(pool.queue)
        for _ in range(min(1, waiting) if pool.reached and failure.kind is Kind.CONNECT else waiting):
            self.outcomes.failed(pool.queue.popleft(), failure, self.now)

    # -- serving

    def _serve(self, channel: Channel, mask: int) -> None:
        pool = self._pool_of.get(channel)
        if pool is None:
            return  # discarded earlier in this turn
        if mask & _WRITE:
            channel.write()
            self._watch(channel)
        if not mask & _READ:
            return
        try:
            complete = channel.read(self._scratch)
            transfer = channel.transfer
            assert transfer is not None
            if channel.sent_at and channel.head is not None:
                self._answered(pool, channel, transfer)
            if not complete:
                if channel.pending():
                    self._again.append(channel)
                return
            transfer.finish()
        except Failure as failure:
            self.failed(pool, channel, failure)
            return
        except Exception as error:  # noqa: BLE001 - say, no memory for this answer: its own failure, not the loop's
            text = f"the answer cannot be taken ({type(error).__name__}: {error})"
            self.failed(pool, channel, Failure(Kind.FINAL, text, cause=error))
            return
        self._release(pool, channel)
        self.outcomes.succeeded(transfer)

    def _answered(self, pool: Pool, channel: Channel, transfer: Transfer) -> None:
        """The head of an answer is there: note how long it took, and stop those that raced it."""
        head = channel.head
        if transfer.hedged and head is not None and head.status < 400:  # a refusal comes faster than any object
            took = self.now - channel.sent_at
            pool.limit.answered(took, busy=bool(pool.queue))
            pool.hedge.answered(took)
        channel.sent_at = 0.0
        if len(transfer.channels) > 1:
            METRICS.hedges_won += transfer.channels[0] is not channel
            for other in list(transfer.channels):
                if other is not channel:
                    self.discard(other)

    def _release(self, pool: Pool, channel: Channel) -> None:
        """The exchange on this channel is over, and went well."""
        transfer = channel.transfer
        if transfer is not None:
            transfer.channels.remove(channel)
        channel.transfer = None
        if not channel.reusable or channel.pending():
            self.discard(channel)
            return
        channel.since = self.now
        pool.active.discard(channel)
        pool.idle.append(channel)

    def discard(self, channel: Channel) -> None:
        """Close a connection, whatever is on it."""
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
        self.switch_interval.closed(channel)

    # -- ending

    def failed(self, pool: Pool, channel: Channel, failure: Failure) -> None:
        """The exchange on this channel, or the idle connection, came to nothing."""
        transfer = channel.transfer
        if transfer is None:  # an idle connection that the service closed
            self.discard(channel)
            return
        if failure.status is not None and channel.head is not None:
            self._release(pool, channel)  # the exchange itself went well
        else:
            size = channel.stream_bytes
            transfer.progressed(size)
            if size >= _PROGRESS_BYTES and transfer.attempts is not None:
                transfer.attempts.progressed(self.now)
            self.discard(channel)
        if failure.status in (429, 503):
            METRICS.throttled += 1
            pool.limit.throttled(self.now)
        if not transfer.channels:  # else the other one of a race goes on
            self.outcomes.failed(transfer, failure, self.now)

    def _drop(self, transfer: Transfer) -> None:
        """Cancelled or abandoned: let go of it, wherever it is."""
        if not transfer.settled:
            for channel in list(transfer.channels):
                self.discard(channel)
            self.outcomes.end(transfer, transfer.cancelled_error())

    # -- the end of the loop itself

    def transfers(self) -> Iterator[Transfer]:
        """All that are not announced yet."""
        yield from self._elsewhere()
        yield from (transfer for transfer, _ in self.mail.ready)
        for pool in self.pools.values():
            yield from pool.queue
            yield from (channel.transfer for channel in pool.active if channel.transfer is not None)

    def _elsewhere(self) -> Iterator[Transfer]:
        """Those that wait for something other than a connection or an answer."""
        yield from self.outcomes.transfers()
        yield from self.refresher.transfers()

    def close(self, inherited: bool = False) -> None:
        """Close every descriptor. inherited: in a forked child, without touching what the parent goes on using."""
        self._selector.close()
        for channel in self._pool_of:
            channel.close(inherited=inherited)
        self.mail.close()
