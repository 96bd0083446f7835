"""The control plane: everything that is not moving bytes, through the official SDK, retried by our policy."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from tosnative.config import TosClientConfig
from tosnative.credentials import CredentialProvider
from tosnative.endpoint import Endpoint
from tosnative.errors import TosException
from tosnative.wire.process import PerProcess
from tosnative.wire.retry import Attempts, Failure, Kind, RetryBudget, RetryPolicy

if TYPE_CHECKING:
    from tosnative.wire.sdk import Sdk

__all__ = ["Control"]

T = TypeVar("T")
_budget: PerProcess[RetryBudget] = PerProcess(RetryBudget)


class Control:
    """Calls of the SDK, retried by policy. Thread-safe; makes the SDK's client at the first call in each process."""

    def __init__(
        self, endpoint: Endpoint, provider: CredentialProvider, config: TosClientConfig, proxy: str | None
    ) -> None:
        self._endpoint = endpoint
        self._provider = provider
        self._config = config
        self._proxy = proxy
        self._policy = RetryPolicy(config.deadline_s, config.max_retry_count)
        self._reached = False  # whether the service has ever answered
        self._sdk: PerProcess[Sdk] = PerProcess(self._make)

    def _make(self) -> Sdk:
        from tosnative.wire.sdk import Sdk  # noqa: PLC0415 - a tenth of a second that reading and listing can do without

        return Sdk(self._endpoint, self._provider, self._config, self._proxy)

    def call(
        self,
        operation: str,
        bucket: str,
        key: str,
        ask: Callable[[Any], T],
        *,
        repeat: bool = True,
        look: Callable[[TosException], T | None] | None = None,
    ) -> T:
        """Return ask(sdk client), tried again by policy unless `repeat` is off. Raises: TosException.

        repeat False: for calls that must not be sent twice blindly; credentials that expired are still replaced.
        look: for calls that must not be sent again before somebody looked: called after a failure that leaves open
        whether the call was carried out; what it returns is the result, None means that it was not.
        """
        if any(segment in (".", "..") for segment in key.split("/")):
            # The SDK's HTTP library would collapse the segment, and so address another key.
            raise ValueError(
                f"{operation} of the key {key!r} in bucket {bucket!r}: '.' and '..' segments are not supported here"
            )
        attempts = Attempts(time.monotonic())
        unknown = False  # whether it may have been carried out
        while True:
            sdk = self._sdk.get()
            try:
                result = ask(sdk.client)
            except (TosException, KeyboardInterrupt):
                raise
            except Exception as error:  # noqa: BLE001 - whatever the SDK raises becomes ours here
                failure = sdk.failure(error)
            else:
                self._reached = True
                _budget.get().succeeded()
                return result
            self._reached = failure.reached = self._reached or failure.reached
            unknown = unknown or _may_have_happened(failure)
            now = time.monotonic()
            delay = self._delay(attempts, failure, now, repeat, sdk)
            if delay is not None:
                time.sleep(delay)
            if look is not None and unknown:
                found = look(attempts.exception(failure, now, operation, bucket, key))
                if found is not None:
                    return found
            if delay is None:
                raise attempts.exception(failure, now, operation, bucket, key) from failure.cause

    def _delay(self, attempts: Attempts, failure: Failure, now: float, repeat: bool, sdk: Sdk) -> float | None:
        """Seconds to wait before the call is sent again, None to give up. Expired credentials are replaced here."""
        expired = failure.kind is Kind.EXPIRED
        if not (repeat or expired):
            return None
        delay = attempts.decide(self._policy, failure, now, random.random(), _budget.get())
        if delay is None or not expired:
            return delay
        stale = sdk.provider.last
        assert stale is not None
        try:
            if self._provider.rejected(stale):
                return delay
        except Exception as error:  # noqa: BLE001 - providers are foreign code
            failure.cause = error
        attempts.take_back()
        return None

    def close(self) -> None:
        """Close the SDK's connections of this process."""
        made = self._sdk.peek()
        if made is not None:
            made.client.close()
            self._sdk.drop()


def _may_have_happened(failure: Failure) -> bool:
    """Whether the service may have carried out a request that ended like this."""
    if failure.status is not None:
        return failure.status >= 500
    return failure.kind in (Kind.BROKEN, Kind.SLOW, Kind.PROTOCOL)
