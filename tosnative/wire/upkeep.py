"""What the loop does now and then, at no exact moment: exchanges that are too slow, answers to race, idle connections."""

from __future__ import annotations

import time
from itertools import chain

from tosnative.config import ConnectionOptions
from tosnative.errors import TosError, TosTimeoutError
from tosnative.logs import LOG
from tosnative.metrics import METRICS
from tosnative.wire.channel import Channel
from tosnative.wire.loop import TICK_S, Loop
from tosnative.wire.pool import Pool
from tosnative.wire.retry import Failure, Kind

__all__ = ["tick"]

_IDLE_TICK_S = 5.0
# A body below this many bytes in a whole stall interval counts as no progress.
_PROGRESS_BYTES = 4096
_AWAITING = -2  # as a channel's mark: all was sent, nothing has come
_WARN_AFTER_S = 10.0
# Two that are late happen (1 % of 1 % is one batch of 64 in 160); three do not.
_MOST_RUNNERS = 3


def tick(loop: Loop) -> None:
    """Look after every pool, and set when to look again."""
    now = loop.now
    step = _IDLE_TICK_S
    for pool in loop.pools.values():
        options = pool.origin.options
        for channel in list(pool.active):
            failure = too_slow(channel, now, options)
            if failure is not None:
                loop.failed(pool, channel, failure)
        if pool.active or pool.queue or pool.opening:
            step = min(step, _race(loop, pool))
        give_up_unconnected(loop, pool)
        for channel in pool.stale(now):
            loop.discard(channel)
    if overdue(loop):
        step = TICK_S
    loop.next_tick = now + step
    loop.switch_interval.settle(chain.from_iterable(pool.active for pool in loop.pools.values()))


def give_up_unconnected(loop: Loop, pool: Pool) -> None:
    """Where each attempt to connect takes its whole timeout, what waits for one must not wait past its own deadline."""
    if pool.trouble is None or pool.active or pool.idle:
        return
    for transfer in list(pool.queue):
        if (
            not transfer.settled
            and transfer.attempts is not None
            and transfer.attempts.overdue(transfer.target.policy, loop.now)
        ):
            loop.outcomes.failed(transfer, pool.trouble, loop.now)


def overdue(loop: Loop) -> bool:
    """Give up what waits for credentials past its deadline; returns whether anything waits for them."""
    waits = False
    for transfer in loop.refresher.transfers():
        attempts = transfer.attempts
        if transfer.settled or attempts is None:
            continue
        waits = True
        if attempts.overdue(transfer.target.policy, loop.now):
            told = TosError("the credential provider does not answer", hint="see its own log")
            failure = Failure(Kind.FINAL, told.message, exception=TosTimeoutError(told))
            loop.outcomes.failed(transfer, failure, loop.now)
    return waits


def too_slow(channel: Channel, now: float, options: ConnectionOptions) -> Failure | None:
    """Whether this exchange makes too little progress; the channel keeps what was seen at the last look."""
    head = channel.head
    if head is None and not channel.sending:
        return _no_answer(channel, now, options.first_byte_timeout_s)
    progress = channel.got if head is not None else channel.body_at
    if channel.mark < 0 or progress - channel.mark >= _PROGRESS_BYTES:
        channel.mark, channel.deadline, channel.warned = progress, now + options.stall_timeout_s, False
    elif now > channel.deadline:
        limit = f"fewer than {_PROGRESS_BYTES} bytes in {options.stall_timeout_s:g} s"
        return Failure(Kind.SLOW, f"stalled{channel.where()}: {limit}")
    else:
        _warn_once(channel, now, options.stall_timeout_s)
    return None


def _no_answer(channel: Channel, now: float, timeout_s: float) -> Failure | None:
    if channel.mark != _AWAITING:
        channel.mark, channel.deadline, channel.warned = _AWAITING, now + timeout_s, False
    elif now > channel.deadline:
        return Failure(Kind.SLOW, f"no answer in {timeout_s:g} s")
    else:
        _warn_once(channel, now, timeout_s)
    return None


def _warn_once(channel: Channel, now: float, timeout_s: float) -> None:
    transfer = channel.transfer
    if channel.warned or now <= channel.deadline - timeout_s + _WARN_AFTER_S:
        return
    channel.warned = True
    if transfer is not None and transfer.attempts is not None:
        LOG.warning(
            "%s tos://%s/%s: nothing comes%s for %g s (attempt %d, from %s)",
            transfer.operation,
            transfer.bucket,
            transfer.key,
            channel.where(),
            _WARN_AFTER_S,
            transfer.attempts.count + 1,
            channel.peer(),
        )


def _race(loop: Loop, pool: Pool) -> float:
    """Race the answers that are unusually late; returns the seconds until the next look."""
    delay = pool.hedge.delay
    if delay is None:
        return TICK_S
    for channel in list(pool.active):
        transfer = channel.transfer
        late = channel.sent_at and channel.awaiting_head and loop.now - channel.sent_at > delay
        if not late or transfer is None or not transfer.hedged:
            continue
        if transfer.channels[-1] is not channel or len(transfer.channels) >= _MOST_RUNNERS:
            continue  # the one that was asked last is not late yet, or there are enough
        if not pool.idle:
            if pool.opening == 0 and len(pool.active) < pool.origin.options.max_connections:
                pool.opening += 1
                loop.connector.open(pool.origin)
            continue
        if not pool.hedge.allow():
            break
        METRICS.hedges += 1
        loop.begin(pool, pool.idle.pop(), transfer, time.time())
    return min(TICK_S, pool.hedge.look_s)
