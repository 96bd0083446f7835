"""What becomes of a transfer after an attempt: it is done, it failed for good, or it goes on, at once or later.

Decides nothing itself: it asks the policies in `retry`. Belongs to the loop's thread.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable, Iterator

from tosnative.errors import TosException
from tosnative.logs import LOG
from tosnative.metrics import METRICS
from tosnative.wire.retry import Failure, Kind, RetryBudget
from tosnative.wire.transfer import Transfer

__all__ = ["Outcomes"]


class Outcomes:
    """Ends transfers: `finished` holds those that the engine has yet to announce.

    enqueue: takes a transfer that goes on now. replace: takes one whose credentials have to be replaced first.
    """

    def __init__(self, enqueue: Callable[[Transfer], None], replace: Callable[[Transfer, Failure], None]) -> None:
        self.finished: list[Transfer] = []
        self._enqueue = enqueue
        self._replace = replace
        self._timers: list[tuple[float, int, Transfer]] = []
        self._sequence = itertools.count()
        self._budget = RetryBudget()
        self._random = random.Random()

    def succeeded(self, transfer: Transfer) -> None:
        """Its answer is complete and right."""
        self._budget.succeeded()
        self.end(transfer)

    def failed(self, transfer: Transfer, failure: Failure, now: float) -> None:
        """An attempt failed: there is another, or that was the last."""
        if transfer.settled:
            return  # cancelled meanwhile
        attempts = transfer.attempts
        assert attempts is not None
        delay = attempts.decide(transfer.target.policy, failure, now, self._random.random(), self._budget)
        if delay is None:
            self.end(transfer, attempts.exception(failure, now, transfer.operation, transfer.bucket, transfer.key))
            return
        METRICS.retries += 1
        LOG.debug("%s %s/%s again in %.2f s: %s", transfer.operation, transfer.bucket, transfer.key, delay, failure)
        if failure.kind is Kind.EXPIRED:
            self._replace(transfer, failure)
        elif delay > 0:
            heapq.heappush(self._timers, (now + delay, next(self._sequence), transfer))
        else:
            self._enqueue(transfer)

    def end(self, transfer: Transfer, error: TosException | None = None) -> None:
        """There is nothing more to be done about it."""
        if error is not None:
            transfer.fail(error)
        transfer.settled = True  # queues and timers skip it when they come to it
        self.finished.append(transfer)

    def go_on(self, now: float) -> None:
        """Enqueue those whose time has come."""
        while self._timers and self._timers[0][0] <= now:
            self._enqueue(heapq.heappop(self._timers)[2])

    @property
    def next_at(self) -> float | None:
        """When the next one goes on."""
        return self._timers[0][0] if self._timers else None

    def transfers(self) -> Iterator[Transfer]:
        """All that are here: finished but not announced, or waiting for their next attempt."""
        yield from self.finished
        yield from (transfer for _, _, transfer in self._timers)
