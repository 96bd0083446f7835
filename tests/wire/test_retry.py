"""Retries: pure decisions with a given clock and given random numbers."""

import email.utils
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative import errors
from tosnative.wire.retry import Attempts, Failure, Kind, RetryBudget, RetryPolicy, is_expired, seconds_to_wait

POLICY = RetryPolicy(deadline_s=300.0)


def free() -> RetryBudget:
    return RetryBudget(rate_per_s=1e9)


def decide(
    attempts: Attempts, failure: Failure, now: float = 0.0, random: float = 0.5, policy: RetryPolicy = POLICY
) -> float | None:
    return attempts.decide(policy, failure, now, random, free())


BROKEN = Failure(Kind.BROKEN, "the connection broke")


@given(st.integers(0, 40), st.floats(0, 1, exclude_max=True))
def test_full_jitter_within_a_cap(count: int, random: float) -> None:
    attempts = Attempts(0.0, vain=count)
    delay = decide(attempts, BROKEN, random=random)
    assert delay is not None
    assert 0 <= delay <= min(8.0, 0.1 * 2 ** min(count, 16))
    assert delay == pytest.approx(random * min(8.0, 0.1 * 2 ** min(count, 16)))


@given(st.floats(0, 60), st.floats(0, 1, exclude_max=True))
def test_retry_after_is_honoured_and_spread(seconds: float, random: float) -> None:
    failure = Failure(Kind.STATUS, "slow down", status=503, retry_after_s=seconds)
    delay = decide(Attempts(0.0), failure, random=random)
    assert delay is not None
    assert seconds <= delay <= seconds + max(0.25 * seconds, 0.1)


DATE = "Wed, 21 Oct 2026 07:28:00 GMT"


@pytest.mark.parametrize(
    ("retry_after", "date", "seconds"),
    [
        (None, DATE, None),
        ("", DATE, None),
        ("7", None, 7.0),
        ("007", None, 7.0),
        ("0", None, 0.0),
        ("9" * 400, None, 86400.0),
        ("99999", None, 86400.0),
        ("-1", None, None),
        ("1.5", None, None),
        ("\u0665", None, None),
        ("soon", DATE, None),
        (DATE, "Wed, 21 Oct 2026 07:27:50 GMT", 10.0),
        ("Wednesday, 21-Oct-26 07:28:00 GMT", "Wed, 21 Oct 2026 07:27:50 GMT", 10.0),
        ("Wed Oct 21 07:28:00 2026", "Wed, 21 Oct 2026 07:27:50 GMT", 10.0),
        (DATE, "Wed, 21 Oct 2026 07:28:30 GMT", 0.0),
        (DATE, "Tue, 21 Oct 2025 07:28:00 GMT", 86400.0),
        ("Wed, 21 Oct 2026 07:28:00 +99999999999999999999", DATE, None),
        ("Wed, 99 Oct 2026 07:28:00 GMT", DATE, None),
    ],
)
def test_how_long_a_service_asks_to_wait(retry_after: str | None, date: str | None, seconds: float | None) -> None:
    assert seconds_to_wait(retry_after, date) == seconds


@pytest.mark.parametrize("date", [None, "", "yesterday"])
def test_a_date_is_compared_with_this_clock_where_the_answer_has_none(date: str | None) -> None:
    found = seconds_to_wait(email.utils.formatdate(time.time() + 1000, usegmt=True), date)
    assert found is not None
    assert 900 < found <= 1000


@given(st.text(max_size=40) | st.binary(max_size=40).map(lambda raw: raw.decode("latin-1")))
def test_anything_is_a_bounded_wait_or_none(value: str) -> None:
    for pair in ((value, None), (DATE, value), (value, value)):
        found = seconds_to_wait(*pair)
        assert found is None or 0 <= found <= 86400


def test_at_once_does_not_end_the_backing_off() -> None:
    failure = Failure(Kind.STATUS, "slow down", status=503, retry_after_s=0.0)
    assert decide(Attempts(0.0, vain=10), failure, random=0.5) == pytest.approx(4.0)


def test_what_others_say_is_one_line_of_bounded_length() -> None:
    failure = Failure(Kind.STATUS, "a\nb\x1b[0m\ud800" + "x" * 9000, 503, "c\nd", "e\rf", "g\0" * 900)
    for text in (failure.text, failure.code, failure.ec, failure.request_id, str(failure)):
        assert text is not None
        assert text.isprintable()
        assert len(text) <= 1300


def test_the_deadline_ends_it_and_counts_the_wait() -> None:
    attempts = Attempts(100.0)
    assert decide(attempts, BROKEN, now=399.0) is not None
    assert decide(attempts, BROKEN, now=400.1) is None
    later = Failure(Kind.STATUS, "slow down", status=429, retry_after_s=250)
    assert decide(Attempts(0.0), later, now=10.0) is not None
    assert decide(Attempts(0.0), later, now=60.0) is None


def test_a_transfer_that_moves_on_is_not_given_up_for_its_age() -> None:
    attempts = Attempts(0.0, vain=9, count=9)
    attempts.progressed(1000.0)
    assert decide(attempts, BROKEN, now=1000.0, random=1.0) == pytest.approx(0.1)
    assert decide(attempts, BROKEN, now=1299.0) is not None
    assert decide(attempts, BROKEN, now=1301.0) is None


@given(st.integers(0, 5))
def test_max_retry_count_bounds_it_exactly(most: int) -> None:
    policy = RetryPolicy(max_retries=most)
    attempts = Attempts(0.0)
    delays = [decide(attempts, BROKEN, policy=policy) for _ in range(most + 1)]
    assert None not in delays[:-1]
    assert delays[-1] is None


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_answers_that_may_be_different_next_time(status: int) -> None:
    assert decide(Attempts(0.0), Failure(Kind.STATUS, "no", status=status)) is not None


@pytest.mark.parametrize("status", [301, 304, 400, 401, 403, 404, 405, 409, 411, 412, 416, 501])
def test_answers_that_will_not(status: int) -> None:
    assert decide(Attempts(0.0), Failure(Kind.STATUS, "no", status=status)) is None


def test_the_one_400_that_may_be_repeated() -> None:
    assert decide(Attempts(0.0), Failure(Kind.STATUS, "no", status=400, ec="0005-00000044")) is not None


@pytest.mark.parametrize("kind", [Kind.FINAL, Kind.CHANGED, Kind.REFUSED])
def test_what_is_final_is_final(kind: Kind) -> None:
    assert decide(Attempts(0.0), Failure(kind, "no")) is None


def test_a_stale_connection_is_replaced_at_once_and_not_counted() -> None:
    attempts = Attempts(0.0)
    stale = Failure(Kind.STALE, "closed")
    policy = RetryPolicy(max_retries=0)
    assert [decide(attempts, stale, policy=policy) for _ in range(4)] == [0.0, 0.0, 0.0, None]
    assert attempts.causes == []


def test_an_endpoint_that_never_answered_is_given_up_in_seconds() -> None:
    never = Failure(Kind.CONNECT, "refused", reached=False)
    attempts = Attempts(0.0)
    assert decide(attempts, never, now=5.9) is not None
    assert decide(attempts, never, now=6.1) is None
    assert decide(Attempts(0.0), Failure(Kind.CONNECT, "refused", reached=True), now=200.0) is not None


def test_credentials_are_refreshed_at_most_twice_and_at_once() -> None:
    expired = Failure(Kind.EXPIRED, "expired", status=403, code="ExpiredToken")
    attempts = Attempts(0.0)
    assert [decide(attempts, expired) for _ in range(3)] == [0.0, 0.0, None]
    attempts.progressed(1.0)
    assert decide(attempts, expired, now=1.0) == 0.0, "a transfer that takes hours outlives many tokens"
    assert decide(Attempts(0.0), expired, policy=RetryPolicy(max_retries=0)) == 0.0
    spent = RetryBudget(rate_per_s=0.001, burst=0)
    assert Attempts(0.0).decide(POLICY, expired, 0.0, 0.5, spent) == 0.0
    assert is_expired("ExpiredToken")
    assert not is_expired("AccessDenied")


def test_a_provider_that_fails_is_asked_again_for_some_seconds() -> None:
    no = Failure(Kind.PROVIDER, "no credentials", exception=errors.TosAccessError("no credentials"))
    attempts = Attempts(0.0)
    assert decide(attempts, no, now=100.0, random=0.999) == pytest.approx(0.0999)
    assert decide(attempts, no, now=102.9) is not None
    assert decide(attempts, no, now=103.1) is None
    spent = RetryBudget(rate_per_s=0.001, burst=0)
    assert Attempts(0.0).decide(POLICY, no, 0.0, 0.0, spent) == 0.0, "it is asked once for all"
    other = Attempts(0.0)
    decide(other, no, now=100.0)
    decide(other, BROKEN, now=101.0)
    assert decide(other, no, now=120.0) is not None, "they were there meanwhile"
    assert type(other.exception(no, 121.0, "GET", "b", "k")) is errors.TosAccessError


@pytest.mark.parametrize("kind", [Kind.CORRUPT, Kind.PROTOCOL])
def test_wrong_bytes_are_bad_luck_five_times(kind: Kind) -> None:
    attempts = Attempts(0.0)
    delays = [decide(attempts, Failure(kind, "no")) for _ in range(6)]
    assert None not in delays[:5]
    assert delays[5] is None


def test_patience_with_throttling_does_not_count_as_bad_luck() -> None:
    attempts = Attempts(0.0)
    for _ in range(20):
        assert decide(attempts, Failure(Kind.STATUS, "no", status=503)) is not None
    assert decide(attempts, Failure(Kind.CORRUPT, "no")) is not None


def test_an_attempt_that_was_not_made_can_be_taken_back() -> None:
    attempts = Attempts(0.0)
    decide(attempts, BROKEN)
    decide(attempts, BROKEN)
    attempts.take_back()
    assert (attempts.count, attempts.vain, len(attempts.causes)) == (1, 1, 1)


@pytest.mark.parametrize(
    ("failure", "kind"),
    [
        (Failure(Kind.CONNECT, "no"), errors.TosConnectionError),
        (Failure(Kind.REFUSED, "no"), errors.TosConnectionError),
        (Failure(Kind.BROKEN, "no"), errors.TosConnectionError),
        (Failure(Kind.STALE, "no"), errors.TosConnectionError),
        (Failure(Kind.SLOW, "no"), errors.TosTimeoutError),
        (Failure(Kind.CORRUPT, "no"), errors.TosIntegrityError),
        (Failure(Kind.PROTOCOL, "no"), errors.TosIntegrityError),
        (Failure(Kind.STATUS, "no", status=503), errors.TosUnavailableError),
        (Failure(Kind.EXPIRED, "no", status=403, code="ExpiredToken"), errors.TosAccessError),
        (Failure(Kind.CHANGED, "no", exception=errors.TosChangedError("no")), errors.TosChangedError),
        (Failure(Kind.FINAL, "no"), errors.TosException),
    ],
)
def test_every_kind_ends_in_its_error(failure: Failure, kind: type[errors.TosException]) -> None:
    attempts = Attempts(10.0, causes=["first", "second"])
    error = attempts.exception(failure, 12.5, "GET", "bkt", "key")
    assert type(error) is kind
    assert (error.error.bucket, error.error.key, error.error.elapsed_s) == ("bkt", "key", 2.5)
    assert "gave up after 3 attempts in 2.5 s, earlier: first; second" in str(error)
    assert error.error.hint or failure.kind in (Kind.STALE, Kind.FINAL, Kind.CHANGED), "it says what to do"


def test_every_kind_of_failure_has_been_thought_of() -> None:
    assert {kind.name for kind in Kind} == {
        *(
            "STALE",
            "CONNECT",
            "REFUSED",
            "BROKEN",
            "SLOW",
            "STATUS",
            "EXPIRED",
            "PROVIDER",
            "CORRUPT",
            "PROTOCOL",
            "CHANGED",
            "FINAL",
        )
    }


# -- the retry budget of a process


def test_a_burst_is_free_and_the_rest_is_spaced() -> None:
    budget = RetryBudget(rate_per_s=10, burst=5, earned_by_success=0.5)
    assert [budget.delay(0.0) for _ in range(5)] == [0.0] * 5
    assert [budget.delay(0.0) for _ in range(3)] == pytest.approx([0.1, 0.2, 0.3])
    assert budget.delay(0.4) == 0.0, "time pays"
    budget.delay(0.4)
    for _ in range(6):
        budget.succeeded()
    assert budget.delay(0.4) == 0.0, "success pays"


def test_what_is_given_up_takes_nothing_from_the_others() -> None:
    budget = RetryBudget(rate_per_s=10, burst=1)
    for _ in range(1000):
        assert Attempts(0.0).decide(RetryPolicy(5.0), BROKEN, 6.0, 0.5, budget) is None
        assert Attempts(0.0).decide(RetryPolicy(5.0), BROKEN, 5.0, 0.5, budget) is None
    assert budget.delay(6.0) == 0.0
    assert [Attempts(0.0).decide(RetryPolicy(6.15), BROKEN, 6.0, 0.0, budget) for _ in range(3)] == [
        pytest.approx(0.1),
        None,
        None,
    ]
    assert budget.delay(6.0) == pytest.approx(0.2)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=300))
def test_retries_leave_no_faster_than_the_rate(pauses: list[float]) -> None:
    budget = RetryBudget(rate_per_s=10, burst=5)
    now, leaves = 0.0, []
    for pause in pauses:
        now += pause
        leaves.append(now + budget.delay(now))
    for at, moment in enumerate(leaves):
        recent = sum(1 for other in leaves[: at + 1] if moment - 1.0 < other <= moment)
        assert recent <= 5 + 10 + 1
