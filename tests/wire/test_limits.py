"""Hedging, concurrency and the byte budget: pure decisions with a given clock."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.wire.budget import Budget
from tosnative.wire.concurrency import Limit
from tosnative.wire.hedge import HedgePolicy

# -- hedging


def test_nothing_is_late_before_enough_is_known() -> None:
    policy = HedgePolicy(5)
    for _ in range(31):
        policy.answered(0.1)
    assert policy.delay is None
    policy.answered(0.1)
    assert policy.delay == pytest.approx(0.15)


def test_late_is_past_the_p95_by_a_margin_and_never_below_a_floor() -> None:
    policy = HedgePolicy(5)
    for _ in range(128):
        policy.answered(0.0001)
    assert policy.delay == 0.01
    for number in range(128):
        policy.answered(1.0 if number % 10 == 0 else 0.1)  # one in ten: the p95 itself is slow
    assert policy.delay == pytest.approx(1.5)


@given(st.integers(0, 100), st.integers(0, 2000))
def test_hedges_stay_within_their_share(percent: int, answers: int) -> None:
    policy = HedgePolicy(percent)
    raced = 0
    for _ in range(answers):
        policy.answered(0.1)
        raced += policy.allow()
    assert raced <= answers * percent / 100 + 1e-6


def test_zero_percent_never_races() -> None:
    policy = HedgePolicy(0)
    for _ in range(200):
        policy.answered(0.1)
    assert policy.delay is None
    assert not policy.allow()


# -- concurrency


def settle(limit: Limit, seconds: float, answers: int = 3200, busy: bool = True) -> int:
    for _ in range(answers):
        limit.answered(seconds, busy)
    return limit.value


def test_more_in_flight_while_the_latency_stays() -> None:
    limit = Limit(256)
    assert limit.value == 48
    assert settle(limit, 0.02) == 256


def test_it_doubles_while_nothing_speaks_against_it() -> None:
    limit = Limit(256)
    assert settle(limit, 0.02, 16) > 96
    assert settle(limit, 0.02, 51) > 192


def test_queueing_alone_brings_it_down_to_what_is_cheapest() -> None:
    limit = Limit(256)
    for _ in range(12_000):  # a server that does one thing at a time: latency is what is in flight
        limit.answered(limit.value * 40e-6, True)
    assert limit.value <= 100


def test_less_when_it_grows() -> None:
    limit = Limit(256)
    settle(limit, 0.02)
    for _ in range(30):
        settle(limit, 0.2, 32)
    assert limit.value < 100


def test_no_growth_without_need() -> None:
    limit = Limit(256)
    assert settle(limit, 0.02, busy=False) == 48


def test_complaints_halve_it_at_most_once_a_second_and_it_recovers() -> None:
    limit = Limit(256)
    settle(limit, 0.02)
    for _ in range(50):
        limit.throttled(10.0)
    assert limit.value == 128
    for second in range(11, 25):
        limit.throttled(float(second))
    assert limit.value == 1
    settle(limit, 0.02, 32 * 300)
    assert max(settle(limit, 0.02, 100) for _ in range(10)) == 256  # now and then it looks at the distance anew


def test_a_fixed_limit_gives_way_to_complaints_only() -> None:
    limit = Limit(4, fixed=True)
    assert limit.value == 4
    for _ in range(20):
        settle(limit, 5.0, 32)
    assert limit.value == 4
    limit.throttled(0.0)
    assert limit.value == 2
    assert settle(limit, 0.1, 96) == 4


@given(
    st.integers(1, 300),
    st.booleans(),
    st.lists(st.tuples(st.floats(0, 100), st.booleans(), st.booleans()), max_size=400),
)
def test_the_limit_is_always_between_one_and_most(
    most: int, fixed: bool, events: list[tuple[float, bool, bool]]
) -> None:
    limit = Limit(most, fixed)
    for now, (seconds, busy, complaint) in enumerate(events):
        limit.answered(seconds, busy)
        if complaint:
            limit.throttled(float(now))
        assert 1 <= limit.value <= most


# -- the byte budget


@given(st.integers(1, 1000), st.lists(st.tuples(st.integers(0, 500), st.booleans()), max_size=40))
def test_the_budget_counts_and_admits_the_head_of_a_line(limit: int, takes: list[tuple[int, bool]]) -> None:
    budget = Budget(limit)
    taken = []
    for size, force in takes:
        fits = budget.used + size <= limit
        assert budget.take(size, force) is (force or fits)
        if force or fits:
            taken.append(size)
        assert budget.used == sum(taken)
    for size in taken:
        budget.give(size)
    assert budget.used == 0
