"""What the loop does now and then, at no exact moment: exchanges that are too slow, answers to race, idle connections."""

from __future__ import annotations

import time

from tosnative.config import ConnectionOptions
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
        for channel in pool.stale(now):
            loop.discard(channel)
    loop.next_tick = now + step
    loop.switch_interval.settle(any(pool.active for pool in loop.pools.values()))


def too_slow(channel: Channel, now: float, options: ConnectionOptions) -> Failure | None:
    """Whether this exchange makes too little progress; the channel keeps what was seen at the last look."""
    head = channel.head
    if head is None and not channel.sending:
        return _no_answer(channel, now, options.first_byte_timeout_s)
    progress = channel.got if head is not None else channel.body_at
    if channel.mark < 0 or progress - channel.mark >= _PROGRESS_BYTES:
        channel.mark, channel.deadline = progress, now + options.stall_timeout_s
    elif now > channel.deadline:
        limit = f"fewer than {_PROGRESS_BYTES} bytes in {options.stall_timeout_s:g} s"
        return Failure(Kind.SLOW, f"stalled{channel.where()}: {limit}")
    return None


def _no_answer(channel: Channel, now: float, timeout_s: float) -> Failure | None:
    if channel.mark != _AWAITING:
        channel.mark, channel.deadline, channel.warned = _AWAITING, now + timeout_s, False
    elif now > channel.deadline:
        return Failure(Kind.SLOW, f"no answer in {timeout_s:g} s")
    elif not channel.warned and now > channel.deadline - timeout_s + _WARN_AFTER_S:
        channel.warned = True
        _warn(channel)
    return None


def _warn(channel: Channel) -> None:
    transfer = channel.transfer
    if transfer is not None and transfer.attempts is not None:
        LOG.warning(
            "%s tos://%s/%s: no answer for %g s (attempt %d, from %s)",
            transfer.operation,
            transfer.bucket,
            transfer.key,
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
        if not late or transfer is None or not transfer.hedged or len(transfer.channels) != 1:
            continue
        if not pool.idle:
            if pool.opening == 0 and len(pool.active) < pool.origin.options.max_connections:
                pool.opening += 1
                loop.connector.open(pool.origin)
            continue
        if not pool.hedge.allow():
            break
        METRICS.hedges += 1
        loop.begin(pool, pool.idle.pop(), transfer, time.time())
    return min(TICK_S, max(delay / 2, 0.005))
