"""The control plane: everything that is not moving bytes, through the official SDK, whose errors become ours here.

The SDK's own retries are off, so that one layer retries; its DNS cache is off, as it would patch urllib3 for the whole process.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import tos
import tos.credential
import tos.exceptions

from tosnative.config import TosClientConfig
from tosnative.credentials import CredentialProvider, Credentials
from tosnative.endpoint import Endpoint
from tosnative.errors import TosError, TosException
from tosnative.wire.process import PerProcess
from tosnative.wire.refresh import provider_failure
from tosnative.wire.retry import Attempts, Failure, Kind, RetryBudget, RetryPolicy, is_expired

__all__ = ["Control"]

T = TypeVar("T")
_budget: PerProcess[RetryBudget] = PerProcess(RetryBudget)


class _SdkClient(tos.TosClientV2):  # type: ignore[misc]  # the SDK has no types
    """The SDK's client, able to talk to an endpoint that is an address, where `bucket.address` is no host's name.

    The connection goes to the address; the Host header and the signature still name the bucket.
    """

    by_address = False

    def _make_virtual_host_url(self, bucket: str | None = None, key: str | None = None) -> str:
        url: str = super()._make_virtual_host_url(None if self.by_address else bucket, key)
        return url


def _keep_unless_signing(record: logging.LogRecord) -> bool:
    return record.module != "auth"


class _SdkCredentials(tos.credential.CredentialsProvider):  # type: ignore[misc]  # the SDK has no types
    """Our provider behind the SDK's face; remembers what it handed out last to the calling thread."""

    def __init__(self, provider: CredentialProvider) -> None:
        self._provider = provider
        self._of_thread = threading.local()

    @property
    def last(self) -> Credentials | None:
        found: Credentials | None = getattr(self._of_thread, "last", None)
        return found

    def get_credentials(self) -> Any:
        try:
            self._of_thread.last = found = self._provider.current()
        except Exception as error:
            raise provider_failure(error) from error
        return tos.credential.Credentials(found.ak, found.sk, found.token)


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
        self._sdk: PerProcess[tuple[Any, _SdkCredentials]] = PerProcess(self._make)

    def _make(self) -> tuple[Any, _SdkCredentials]:
        options = self._config.connection
        credentials = _SdkCredentials(self._provider)
        sdk = _SdkClient(
            endpoint=self._endpoint.url,
            region=self._endpoint.region,
            credentials_provider=credentials,
            max_retry_count=0,
            dns_cache_time=0,
            connection_time=options.connect_timeout_s,
            socket_timeout=options.first_byte_timeout_s,
            enable_verify_ssl=options.verify,
            enable_crc=self._config.enable_crc,
            high_latency_log_threshold=0,
            client_crt=options.client_cert[0] if options.client_cert else None,
            client_key=options.client_cert[1] if options.client_cert else None,
            ca_crt=options.ca_bundle,
        )
        sdk.by_address = self._endpoint.by_address
        # At DEBUG the SDK logs what it signs, security token and signature included.
        logging.getLogger("tos").addFilter(_keep_unless_signing)
        # The proxy was chosen once, for both planes; requests would look at the environment at each request.
        sdk.session.trust_env = False
        sdk.proxies = {"http": self._proxy, "https": self._proxy} if self._proxy else {}
        return sdk, credentials

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
            sdk, credentials = self._sdk.get()
            try:
                result = ask(sdk)
            except (TosException, KeyboardInterrupt):
                raise
            except Exception as error:  # noqa: BLE001 - whatever the SDK raises becomes ours here
                failure = _failure(error)
            else:
                self._reached = True
                _budget.get().succeeded()
                return result
            self._reached = failure.reached = self._reached or failure.reached
            unknown = unknown or _may_have_happened(failure)
            now = time.monotonic()
            delay = self._delay(attempts, failure, now, repeat, credentials)
            if delay is not None:
                time.sleep(delay)
            if look is not None and unknown:
                found = look(attempts.exception(failure, now, operation, bucket, key))
                if found is not None:
                    return found
            if delay is None:
                raise attempts.exception(failure, now, operation, bucket, key) from failure.cause

    def _delay(
        self, attempts: Attempts, failure: Failure, now: float, repeat: bool, credentials: _SdkCredentials
    ) -> float | None:
        """Seconds to wait before the call is sent again, None to give up. Expired credentials are replaced here."""
        expired = failure.kind is Kind.EXPIRED
        if not (repeat or expired):
            return None
        delay = attempts.decide(self._policy, failure, now, random.random(), _budget.get())
        if delay is None or not expired:
            return delay
        assert credentials.last is not None
        try:
            if self._provider.rejected(credentials.last):
                return delay
        except Exception as error:  # noqa: BLE001 - providers are foreign code
            failure.cause = error
        attempts.take_back()
        return None

    def close(self) -> None:
        """Close the SDK's connections of this process."""
        made = self._sdk.peek()
        if made is not None:
            made[0].close()
            self._sdk.drop()


def _may_have_happened(failure: Failure) -> bool:
    """Whether the service may have carried out a request that ended like this."""
    if failure.status is not None:
        return failure.status >= 500
    return failure.kind in (Kind.BROKEN, Kind.SLOW, Kind.PROTOCOL)


# Whose errors mean that the exchange failed, besides OSError.
_HTTP = frozenset({"requests", "urllib3", "http"})


def _failure(error: Exception) -> Failure:
    """What the SDK raises, as we say it. Raises: what is not the SDK's."""
    if isinstance(error, Failure):
        return error
    if isinstance(error, tos.exceptions.TosServerError):
        return _refusal(error)
    if isinstance(error, (ValueError, LookupError, TypeError, AttributeError)):
        text = f"the service's answer cannot be read ({type(error).__name__}: {str(error)[:200]})"
        return Failure(Kind.PROTOCOL, text, cause=error)
    cause = getattr(error, "cause", None) if isinstance(error, tos.exceptions.TosError) else error
    if not isinstance(cause, Exception):
        message = str(getattr(error, "message", "") or error)
        return Failure(Kind.FINAL, message, exception=TosException(TosError(message)))
    library = type(cause).__module__.partition(".")[0]
    if not isinstance(cause, (OSError, ValueError, LookupError, TypeError, AttributeError)) and library not in _HTTP:
        raise cause  # a signal's handler raised it in this thread, and the SDK took it for its own: it has to go on
    return _unanswered(cause)


def _refusal(error: Any) -> Failure:
    header = error.header if error.header is not None else {}
    retry_after = str(header.get("Retry-After") or "")
    return Failure(
        Kind.EXPIRED if error.status_code == 403 and is_expired(error.code) else Kind.STATUS,
        str(error.message or f"the service answered {error.status_code}")[:1000],
        status=error.status_code,
        code=error.code or None,
        ec=error.ec or header.get("x-tos-ec") or None,
        request_id=error.request_id or None,
        retry_after_s=float(retry_after) if retry_after.isdigit() and len(retry_after) < 6 else None,
    )


def _unanswered(cause: Exception) -> Failure:
    """No answer, or half of one: `cause` is what the SDK's HTTP library says."""
    name = type(cause).__name__
    text = f"{name}: {_innermost(cause)}"
    kind = Kind.REFUSED if "CERTIFICATE_VERIFY_FAILED" in text else Kind.CONNECT
    if kind is Kind.REFUSED:
        text += "; if its CA is your own, set ca_bundle"
    elif "Timeout" in name and "Connect" not in name:
        kind = Kind.SLOW
    elif "refused" not in text and "resol" not in text.lower():
        kind = Kind.BROKEN
    return Failure(kind, text, reached=kind is Kind.BROKEN, cause=cause)


def _innermost(error: BaseException) -> str:
    """The reason at the bottom of what requests and urllib3 wrap around it, which has no URL in it."""
    seen: set[int] = set()
    while id(error) not in seen:
        seen.add(id(error))
        inner = getattr(error, "reason", None) or next((a for a in error.args if isinstance(a, BaseException)), None)
        error = inner if isinstance(inner, BaseException) else error.__cause__ or error
    return str(error).rpartition("object at 0x")[2].partition(": ")[2] or str(error)
