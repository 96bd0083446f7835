"""Scripted trouble: which requests of a local server go wrong, and how. Decisions only; the server carries them out."""

from __future__ import annotations

import fnmatch
import hashlib
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from statistics import NormalDist
from typing import Any, Literal, TypeAlias

from tosnative.testing.messages import Request


@dataclass(frozen=True)
class Uniform:
    """A delay anywhere between `low_s` and `high_s`, each as likely."""

    low_s: float
    high_s: float

    def at(self, quantile: float) -> float:
        return self.low_s + (self.high_s - self.low_s) * quantile


@dataclass(frozen=True)
class LogNormal:
    """A delay with a long tail: half of all are under `median_s`, 99 % under `p99_s`, none over `max_s`."""

    median_s: float
    p99_s: float
    max_s: float = 60.0

    def at(self, quantile: float) -> float:
        sigma = math.log(self.p99_s / self.median_s) / NormalDist().inv_cdf(0.99)
        bounded = min(max(quantile, 1e-9), 1 - 1e-9)
        return min(self.max_s, self.median_s * math.exp(sigma * NormalDist().inv_cdf(bounded)))


@dataclass(frozen=True)
class Tail:
    """`usual_s`, but `slow_s` for one request in `one_in`."""

    usual_s: float
    slow_s: float
    one_in: float

    def at(self, quantile: float) -> float:
        return self.slow_s if quantile < 1 / self.one_in else self.usual_s


Delay: TypeAlias = float | Uniform | LogNormal | Tail


@dataclass(frozen=True)
class Action:
    """What happens to a request. All fields combine; a field at its default changes nothing.

    Time and rate:
        delay_s: the request waits that long before it is processed (a number or a distribution).
        bandwidth_bytes_s: its connection moves both bodies no faster.
        accept_delay_s: a new connection is not looked at before. Only for rules that match every request.
    Refusals, before the request is processed:
        status, code, message, ec, retry_after_s: answered with this error.
        expired_token: 403 ExpiredToken.
        error_in_200: status 200 and an error of this code as body, as a failing Complete or Copy answers.
    Lost connections (by RST):
        reset: "accept" a new connection at once (only for rules that match every request), "before" or "after" the
            request was processed, without an answer.
        reset_after_request_bytes: after so many bytes of the request's body have come.
        reset_after_bytes: after so many bytes of the answer's body.
    Silence:
        hang: no answer ever, "before" or "after" the request was processed.
        stall_after_bytes: so many bytes of the answer's body, then nothing; the connection stays open.
    Answers that are not right:
        truncate_after_bytes: so many bytes of the body, then the connection is closed properly.
        flip_byte_at: the byte at this offset of the body is inverted.
        crc: the CRC64 header is "wrong" or "missing".
        content_range: this text as Content-Range.
        extra_bytes: the body is longer by so many zero bytes than it should be, and says so.
        ignore_range: the whole object with status 200, though a range was asked for.
    Answers that are right but unusual:
        chunk_bytes: chunked transfer coding with chunks of this size, no Content-Length.
        interim: these 1xx answers first.
        close: "Connection: close".
        close_idle: the connection is closed after the answer without a word.
    """

    delay_s: Delay | None = None
    bandwidth_bytes_s: float | None = None
    accept_delay_s: float | None = None
    status: int | None = None
    code: str | None = None
    message: str | None = None
    ec: str = ""
    retry_after_s: float | None = None
    expired_token: bool = False
    error_in_200: str | None = None
    reset: Literal["accept", "before", "after"] | None = None
    reset_after_request_bytes: int | None = None
    reset_after_bytes: int | None = None
    hang: Literal["before", "after"] | None = None
    stall_after_bytes: int | None = None
    truncate_after_bytes: int | None = None
    flip_byte_at: int | None = None
    crc: Literal["wrong", "missing"] | None = None
    content_range: str | None = None
    extra_bytes: int = 0
    ignore_range: bool = False
    chunk_bytes: int | None = None
    interim: tuple[int, ...] = ()
    close: bool = False
    close_idle: bool = False

    def __post_init__(self) -> None:
        if self.reset not in (None, "accept", "before", "after"):
            raise ValueError(f"reset={self.reset!r}: use 'accept', 'before' or 'after'")
        if self.hang not in (None, "before", "after"):
            raise ValueError(f"hang={self.hang!r}: use 'before' or 'after'")
        if self.crc not in (None, "wrong", "missing"):
            raise ValueError(f"crc={self.crc!r}: use 'wrong' or 'missing'")
        if self.bandwidth_bytes_s is not None and self.bandwidth_bytes_s <= 0:
            raise ValueError("bandwidth_bytes_s must be positive")
        if self.chunk_bytes is not None and self.chunk_bytes < 1:
            raise ValueError("chunk_bytes must be at least 1")
        if any(not 102 <= status < 200 for status in self.interim):
            raise ValueError("interim takes statuses from 102 to 199")

    def changed(self) -> dict[str, Any]:
        """The fields that are not at their default."""
        return {f.name: value for f in fields(self) if (value := getattr(self, f.name)) != f.default}

    def over(self, other: Action) -> Action:
        """Both at once; where they disagree, this one."""
        return replace(other, **self.changed())

    @property
    def on_accept(self) -> bool:
        """Whether this happens to new connections rather than to requests."""
        return self.accept_delay_s is not None or self.reset == "accept"


@dataclass(frozen=True)
class Rule:
    """Which requests an action happens to: all conditions that are given must hold.

    `method`, `bucket`, `key` are shell patterns (case counts; `*` matches slashes too); `key` never matches a request
    without a key. `query_has` names a query parameter. `reused=True` matches requests that are not the first on their
    connection, False those that are. Of the matching requests the first `skip` pass, the next `times` are hit (None:
    all), each with `probability`, and only within `for_s` seconds from the first hit.
    """

    action: Action
    method: str | None = None
    bucket: str | None = None
    key: str | None = None
    query_has: str | None = None
    reused: bool | None = None
    skip: int = 0
    times: int | None = None
    probability: float = 1.0
    for_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.probability <= 1:
            raise ValueError(f"probability={self.probability!r} is not between 0 and 1")
        pattern = (self.method, self.bucket, self.key, self.query_has, self.reused)
        if self.action.on_accept and any(condition is not None for condition in pattern):
            raise ValueError("accept_delay_s and reset='accept' happen to connections: give no request pattern")

    def matches(self, request: Request, reused: bool) -> bool:
        if self.method is not None and not fnmatch.fnmatchcase(request.method, self.method):
            return False
        if self.bucket is not None and not fnmatch.fnmatchcase(request.bucket or "", self.bucket):
            return False
        if self.key is not None and (request.key is None or not fnmatch.fnmatchcase(request.key, self.key)):
            return False
        if self.query_has is not None and self.query_has not in request.query:
            return False
        return self.reused is None or self.reused == reused


@dataclass(slots=True)
class _Active:
    """A rule at work. Invariant: hits <= seen, and hits <= rule.times."""

    rule: Rule
    seen: int = 0
    hits: int = 0
    since: float | None = None


Hook: TypeAlias = Callable[[Request], Action | None]


class Faults:
    """The rules of one server, the newest deciding where several say different things about one request.

    Chance depends on the seed, the rule, what is asked for (method, bucket, key, part, range) and how often it was
    asked for before; not on the order in which concurrent requests arrive. So one seed always gives the same trouble.
    Times and windows do count in the order of arrival.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self.hook: Hook | None = None
        """Called in the server's thread with every request before its body has come; may return an Action."""
        self._rules: dict[int, _Active] = {}
        self._next_number = 1
        self._asked: dict[tuple[int, str], int] = {}

    def add(self, rule: Rule) -> int:
        """Put a rule in force; returns its number."""
        number, self._next_number = self._next_number, self._next_number + 1
        self._rules = {**self._rules, number: _Active(rule)}
        return number

    def remove(self, number: int) -> None:
        self._rules = {n: active for n, active in self._rules.items() if n != number}

    def clear(self) -> None:
        """End all trouble, and forget what was asked: the same seed starts anew."""
        self._rules, self._asked, self.hook, self._next_number = {}, {}, None, 1

    def hits(self, number: int) -> int:
        """How many requests the rule was applied to; 0 for a rule that is gone."""
        active = self._rules.get(number)
        return active.hits if active is not None else 0

    @property
    def active(self) -> bool:
        return bool(self._rules) or self.hook is not None

    def for_request(self, request: Request, reused: bool) -> Action | None:
        """What is to happen to this request; None: nothing."""
        action: Action | None = None
        for number, active in self._rules.items():
            if not active.rule.action.on_accept and active.rule.matches(request, reused):
                action = self._apply(number, active, action, _identity(request))
        if self.hook is not None:
            hooked = self.hook(request)
            action = hooked.over(action) if hooked is not None and action is not None else hooked or action
        return action

    def for_connection(self) -> Action | None:
        """What is to happen to a connection that has just come."""
        action: Action | None = None
        for number, active in self._rules.items():
            if active.rule.action.on_accept:
                action = self._apply(number, active, action, "accept")
        return action

    def _apply(self, number: int, active: _Active, action: Action | None, identity: str) -> Action | None:
        rule = active.rule
        active.seen += 1
        if active.seen <= rule.skip or (rule.times is not None and active.hits >= rule.times):
            return action
        now = time.monotonic()
        if rule.for_s is not None and active.since is not None and now - active.since >= rule.for_s:
            return action
        hit, delay_quantile = self._chances(number, rule, identity)
        if hit >= rule.probability:
            return action
        active.hits += 1
        active.since = now if active.since is None else active.since
        mine = rule.action
        if mine.delay_s is not None and not isinstance(mine.delay_s, (int, float)):
            mine = replace(mine, delay_s=mine.delay_s.at(delay_quantile))
        return mine if action is None else mine.over(action)

    def _chances(self, number: int, rule: Rule, identity: str) -> tuple[float, float]:
        """Two numbers in [0, 1): whether the rule hits, and how long its delay is."""
        if rule.probability >= 1 and (rule.action.delay_s is None or isinstance(rule.action.delay_s, (int, float))):
            return 0.0, 0.0
        before = self._asked.get((number, identity), 0)
        self._asked[number, identity] = before + 1
        text = f"{self.seed}/{number}/{before}/{identity}".encode("utf-8", "surrogateescape")
        digest = hashlib.blake2b(text, digest_size=16).digest()
        return int.from_bytes(digest[:7], "big") / 2**56, int.from_bytes(digest[8:15], "big") / 2**56


def _identity(request: Request) -> str:
    part = request.query.get("partNumber", "")
    asked = (request.method, request.bucket or "", request.key or "", part, request.headers.get("range", ""))
    return "\n".join(asked)
