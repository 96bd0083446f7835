"""A service that asks for patience, or is down, for a minute: simulated with the real policies and a clock of the test's own."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest

from tosnative.config import TosClientConfig
from tosnative.wire.concurrency import Limit
from tosnative.wire.retry import Attempts, Failure, Kind, RetryBudget, RetryPolicy

POLICY = RetryPolicy(TosClientConfig().deadline_s)
Answer = Callable[[float], Failure | None]


@dataclass
class Run:
    """sent: when each request left. ended: when each operation succeeded. failed: the attempts of those that were given up."""

    sent: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)
    failed: list[Attempts] = field(default_factory=list)

    def between(self, start: float, stop: float) -> int:
        return sum(start <= moment < stop for moment in self.sent)


def simulate(operations: int, answer: Answer, policy: RetryPolicy = POLICY, seed: int = 1) -> Run:
    """So many operations that begin at 0 in one process; each request is answered at once."""
    chance, budget, run, order = random.Random(seed), RetryBudget(), Run(), iter(range(10**9))
    queue = [(0.0, next(order), Attempts(0.0)) for _ in range(operations)]
    while queue:
        now, _, attempts = heapq.heappop(queue)
        run.sent.append(now)
        failure = answer(now)
        if failure is None:
            budget.succeeded()
            run.ended.append(now)
            continue
        delay = attempts.decide(policy, failure, now, chance.random(), budget)
        if delay is None:
            run.failed.append(attempts)
        else:
            heapq.heappush(queue, (now + delay, next(order), attempts))
    return run


def busy(until: float, retry_after_s: float | None = None, status: int = 503) -> Answer:
    """Refusals until that moment. retry_after_s: what each asks for."""
    return lambda now: (
        Failure(Kind.STATUS, "slow down", status, retry_after_s=retry_after_s, request_id="r") if now < until else None
    )


KINDS: dict[str, Answer] = {
    "503": busy(60),
    "429": busy(60, status=429),
    "503, at once": busy(60, 0.0),
    "503, after 10 s": busy(60, 10.0),
    "no connection": lambda now: Failure(Kind.CONNECT, "refused", reached=True) if now < 60 else None,
    "resets": lambda now: Failure(Kind.BROKEN, "reset") if now < 60 else None,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("operations", [1, 64, 1000])
def test_a_minute_of_trouble_is_ridden_out_by_default(kind: str, operations: int) -> None:
    run = simulate(operations, KINDS[kind])
    assert run.failed == []
    assert len(run.ended) == operations
    assert min(run.ended) < 60 + 13
    assert max(run.ended) < POLICY.deadline_s


@pytest.mark.parametrize("kind", KINDS)
def test_an_outage_does_not_multiply_load(kind: str) -> None:
    run = simulate(1000, KINDS[kind])
    retries = len(run.sent) - 1000
    assert retries <= 100 + 20 * max(run.sent) + 1000 * 0.2, "the budget of the process: a burst, then 20 a second"
    for second in range(10, 60):
        assert run.between(second, second + 1) <= 20 + 21 + 100


def test_one_operation_tries_now_and_then_only() -> None:
    run = simulate(1, busy(60))
    assert 10 <= len(run.sent) <= 60
    assert simulate(1, busy(60, 10.0)).between(0, 60) <= 7


def test_nobody_comes_before_he_was_told_to_and_not_all_come_together() -> None:
    run = simulate(64, busy(5, 10.0))
    again = sorted(run.sent)[64:]
    assert len(again) == 64
    assert again[0] >= 10
    assert again[-1] <= 12.5
    for start in range(20):
        window = 10 + start / 8
        assert run.between(window, window + 0.125) <= 16, "spread over a quarter of the wait"


def test_full_jitter_spreads_those_who_failed_together() -> None:
    run = simulate(90, busy(0.001))
    again = sorted(run.sent)[90:]
    assert again[0] < 0.02
    assert again[-1] > 0.08


def test_past_the_deadline_every_cause_is_told() -> None:
    run = simulate(1, busy(10_000), RetryPolicy(20.0))
    (attempts,) = run.failed
    error = attempts.exception(Failure(Kind.STATUS, "slow down", 503, request_id="last"), 20.0, "GET", "b", "k").error
    assert len(error.attempts) == len(run.sent) - 1
    assert all("slow down (503, request id r)" in cause for cause in error.attempts)
    assert (error.request_id, error.elapsed_s, error.bucket, error.key) == ("last", 20.0, "b", "k")
    assert max(run.sent) <= 20.0


def moments(limit: Limit, throttled: Callable[[float], bool]) -> Iterator[tuple[float, int]]:
    """The limit, tenth of a second by tenth, while as many answers of 20 ms come as it lets through."""
    for tenth in range(1200):
        now = tenth / 10
        for _ in range(limit.value * 5):
            if throttled(now):
                limit.throttled(now)
            else:
                limit.answered(0.02, busy=True)
        yield now, limit.value


def test_less_is_asked_of_a_service_that_complains_and_more_again_when_it_does_not() -> None:
    limit = Limit(256)
    seen = dict(moments(limit, lambda now: 20 <= now < 40))

    def most(start: float, stop: float) -> int:
        return max(value for now, value in seen.items() if start <= now < stop)

    assert most(0, 20) == 256
    assert most(30, 40) == 1, "halved each second"
    assert most(40, 60) == 256, "and there again in some seconds"
    assert min(seen.values()) == 1
