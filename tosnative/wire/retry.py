"""Whether a failed attempt is worth another, and when. Pure decisions, given a clock and a random number.

Every request that goes through here may be repeated: GETs, PUTs of whole objects and parts with the same bytes, and control
calls that say so themselves.
"""

from __future__ import annotations

import datetime
import email.utils
import enum
import time
from dataclasses import dataclass, field

from tosnative.errors import (
    TosConnectionError,
    TosError,
    TosException,
    TosIntegrityError,
    TosTimeoutError,
    from_service,
)
from tosnative.quoting import one_line

__all__ = ["Attempts", "Failure", "Kind", "RetryBudget", "RetryPolicy", "is_expired", "seconds_to_wait"]

# Answers that may be different next time; 400 with this EC is documented as retryable in the official Go and Java SDKs.
_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
_RETRYABLE_EC = "0005-00000044"
_EXPIRED_CODES = frozenset({"ExpiredToken", "InvalidSecurityToken"})
# An endpoint that has never answered is more likely wrong than down.
_NEVER_REACHED_S = 6.0
# A provider of credentials that fails for so long will not come round; for less, whatever it asks may have been busy.
_NO_CREDENTIALS_S = 3.0
_NO_CREDENTIALS_CAP_S = 0.5
# Refreshed credentials that are rejected again are not going to become right.
_MOST_REFRESHES = 2
# So many times wrong bytes are bad luck.
_MOST_WRONG = 5
# A service that asks for more is not understood: a day is past every deadline.
_MOST_WAIT_S = 86400.0


class Kind(enum.Enum):
    """What happened to an attempt; decides whether and how soon it is repeated."""

    STALE = "the idle connection had been closed"
    CONNECT = "no connection"
    REFUSED = "no trusted connection"
    BROKEN = "the connection broke"
    SLOW = "no answer in time"
    STATUS = "the service refused"
    EXPIRED = "the credentials expired"
    PROVIDER = "no credentials"
    CORRUPT = "the bytes do not match"
    PROTOCOL = "not a proper answer"
    CHANGED = "the object changed"
    FINAL = "final"


# All who wait for credentials wait for one answer of their provider.
_WITHOUT_LOAD = (Kind.EXPIRED, Kind.PROVIDER)


@dataclass(slots=True, eq=False)
class Failure(Exception):
    """Why one attempt failed. reached: whether this endpoint has ever been connected to."""

    kind: Kind
    text: str
    status: int | None = None
    code: str | None = None
    ec: str | None = None
    request_id: str | None = None
    retry_after_s: float | None = None
    reached: bool = True
    exception: TosException | None = None
    cause: BaseException | None = None

    def __post_init__(self) -> None:
        # Much of it is what others said.
        self.text = one_line(self.text)
        self.code = self.code and one_line(self.code, 100)
        self.ec = self.ec and one_line(self.ec, 100)
        self.request_id = self.request_id and one_line(self.request_id, 200)

    def __str__(self) -> str:
        status = " ".join(str(part) for part in (self.status, self.code) if part)
        facts = ", ".join(filter(None, (status, self.request_id and f"request id {self.request_id}")))
        return f"{self.text} ({facts})" if facts else self.text


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """deadline_s: from the first attempt. max_retries: None for no limit but the deadline. Full jitter up to cap_s."""

    deadline_s: float = 300.0
    max_retries: int | None = None
    base_s: float = 0.1
    cap_s: float = 8.0


class RetryBudget:
    """Spaces out the retries of a process, so that an outage does not multiply load.

    A burst is free; beyond it retries leave at `rate_per_s`, and each success earns a fraction of another.
    """

    def __init__(self, rate_per_s: float = 20.0, burst: int = 100, earned_by_success: float = 0.2) -> None:
        self._rate = rate_per_s
        self._burst = burst
        self._earned = earned_by_success
        self._tokens = float(burst)
        self._at: float | None = None

    def succeeded(self) -> None:
        if self._tokens < self._burst:
            self._tokens += self._earned

    def delay(self, now: float) -> float:
        """Take one retry out of the budget; returns the seconds to wait until it is covered."""
        if self._at is not None:
            self._tokens = min(self._burst, self._tokens + (now - self._at) * self._rate)
        self._at = now
        self._tokens -= 1
        return max(0.0, -self._tokens / self._rate)

    def give_back(self) -> None:
        """The retry that was taken last is not made after all."""
        self._tokens += 1


@dataclass(slots=True)
class Attempts:
    """The history of one operation, which decides whether there is another attempt."""

    began: float
    count: int = 0
    stale: int = 0
    refreshes: int = 0
    without: float | None = None  # since when the provider fails
    wrong: int = 0  # answers with wrong bytes
    causes: list[str] = field(default_factory=list)
    since: float | None = None  # when it last moved on; the deadline counts from here
    vain: int = 0  # attempts since then

    def overdue(self, policy: RetryPolicy, moment: float) -> bool:
        """Whether `moment` lies past the deadline."""
        return moment - (self.began if self.since is None else self.since) > policy.deadline_s

    def progressed(self, now: float) -> None:
        """The attempt that failed now had moved a good piece: a long transfer is not given up for a short trouble."""
        self.since, self.vain, self.refreshes = now, 0, 0

    def take_back(self) -> None:
        """The further attempt that was decided last is not made."""
        self.count, self.vain = self.count - 1, self.vain - 1
        self.causes.pop()

    def decide(
        self, policy: RetryPolicy, failure: Failure, now: float, random: float, budget: RetryBudget
    ) -> float | None:
        """Seconds to wait before the next attempt, or None to give up. random: uniform in [0, 1)."""
        if failure.kind is Kind.STALE and self.stale < 3:
            self.stale += 1
            return 0.0
        delay = self._delay(policy, failure, now, random)
        if delay is None:
            return None
        # The request with other credentials is another one.
        counts = failure.kind is not Kind.EXPIRED
        if counts and policy.max_retries is not None and self.count >= policy.max_retries:
            return None
        if self.overdue(policy, now + delay):
            return None
        if failure.kind not in _WITHOUT_LOAD:
            delay = max(delay, budget.delay(now))
        if self.overdue(policy, now + delay):
            budget.give_back()
            return None
        self.count += 1
        self.vain += 1
        self.causes.append(str(failure))
        return delay

    def _delay(self, policy: RetryPolicy, failure: Failure, now: float, random: float) -> float | None:
        kind = failure.kind
        if kind in (Kind.FINAL, Kind.CHANGED, Kind.REFUSED):
            return None
        if kind is Kind.STATUS and failure.status not in _STATUSES and failure.ec != _RETRYABLE_EC:
            return None
        if kind is Kind.CONNECT and not failure.reached and now - self.began > _NEVER_REACHED_S:
            return None
        self.without = (now if self.without is None else self.without) if kind is Kind.PROVIDER else None
        if self.without is not None and now - self.without > _NO_CREDENTIALS_S:
            return None
        if kind is Kind.EXPIRED:
            self.refreshes += 1
            return 0.0 if self.refreshes <= _MOST_REFRESHES else None
        if kind in (Kind.CORRUPT, Kind.PROTOCOL):
            self.wrong += 1
            if self.wrong > _MOST_WRONG:
                return None
        cap_s = _NO_CREDENTIALS_CAP_S if kind is Kind.PROVIDER else policy.cap_s
        jittered = random * min(cap_s, policy.base_s * 2.0 ** min(self.vain, 16))
        if failure.retry_after_s is not None and failure.retry_after_s < policy.base_s:
            return max(failure.retry_after_s, jittered)  # "at once" tells nothing of when there is a point
        if failure.retry_after_s is not None:
            # Spread over a quarter more, so that those who were told the same do not come back together.
            return failure.retry_after_s + random * max(0.25 * failure.retry_after_s, policy.base_s)
        return jittered

    def exception(self, failure: Failure, now: float, operation: str, bucket: str, key: str) -> TosException:
        """The error to raise after giving up: the last failure, with every earlier cause, ids and the time it took."""
        facts = {
            "operation": operation,
            "bucket": bucket,
            "key": key,
            "attempts": tuple(self.causes),
            "elapsed_s": now - self.began,
            "request_id": failure.request_id,
            "status_code": failure.status,
            "code": failure.code,
            "ec": failure.ec,
        }
        if failure.exception is not None:
            error = failure.exception.with_context(**facts)
        else:
            error = _by_kind(failure).with_context(**facts)
        error.__cause__ = failure.cause
        return error


_HINTS = {
    Kind.BROKEN: "check the network between this machine and the endpoint",
    Kind.CORRUPT: "the bytes were damaged on the way or at the service; if it stays so, ask its support with the request id",
    Kind.PROTOCOL: "is there something other than TOS at this endpoint, or a proxy that changes answers?",
    Kind.SLOW: "check the network; first_byte_timeout_s and stall_timeout_s say how long to wait",
}
_HINT_UNREACHED = "check the endpoint, the network and the proxy settings"


def _by_kind(failure: Failure) -> TosException:
    kind = failure.kind
    hint = _HINTS.get(kind)
    if kind in (Kind.CONNECT, Kind.REFUSED):
        hint = _HINTS[Kind.BROKEN] if failure.reached else _HINT_UNREACHED
    error = TosError(failure.text, failure.status, failure.ec, failure.request_id, failure.code, hint=hint)
    if failure.status is not None:
        return from_service(error)
    if kind in (Kind.CORRUPT, Kind.PROTOCOL):
        return TosIntegrityError(error)
    if kind is Kind.SLOW:
        return TosTimeoutError(error)
    if kind in (Kind.CONNECT, Kind.REFUSED, Kind.BROKEN, Kind.STALE):
        return TosConnectionError(error)
    return TosException(error)


def is_expired(code: str | None) -> bool:
    """Whether this error code asks for newer credentials."""
    return code in _EXPIRED_CODES


def seconds_to_wait(retry_after: str | None, date: str | None) -> float | None:
    """What a Retry-After header asks for: seconds, or a date; at most a day. None where it says neither.

    date: of the same answer. A date is compared with that rather than with the clock of this machine, which may be wrong.
    """
    if not retry_after:
        return None
    if retry_after.isascii() and retry_after.isdigit():
        return float(retry_after) if len(retry_after) < 6 and float(retry_after) <= _MOST_WAIT_S else _MOST_WAIT_S
    until = _moment(retry_after)
    if until is None:
        return None
    now = _moment(date or "")
    return min(max(0.0, until - (time.time() if now is None else now)), _MOST_WAIT_S)


def _moment(date: str) -> float | None:
    """An HTTP date as seconds since 1970, None where it is none."""
    try:
        found = email.utils.parsedate_to_datetime(date)
        return (found if found.tzinfo else found.replace(tzinfo=datetime.timezone.utc)).timestamp()
    except (ValueError, TypeError, IndexError, OverflowError):
        return None
