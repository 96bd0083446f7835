"""The control plane: everything that is not moving bytes, through the official SDK, whose errors become ours here.

The SDK's own retries are off, so that one layer retries; its DNS cache is off, as it would patch urllib3 for the whole process.
"""

from __future__ import annotations

import random
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


class _SdkCredentials(tos.credential.CredentialsProvider):  # type: ignore[misc]  # the SDK has no types
    """Our provider behind the SDK's face; remembers what it handed out last."""

    def __init__(self, provider: CredentialProvider) -> None:
        self._provider = provider
        self.last: Credentials | None = None

    def get_credentials(self) -> Any:
        self.last = found = self._provider.current()
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
        # The proxy was chosen once, for both planes; requests would look at the environment at each request.
        sdk.session.trust_env = False
        sdk.proxies = {"http": self._proxy, "https": self._proxy} if self._proxy else {}
        return sdk, credentials

    def call(self, operation: str, bucket: str, key: str, ask: Callable[[Any], T], *, repeat: bool = True) -> T:
        """Return ask(sdk client), tried again by policy unless `repeat` is off. Raises: TosException.

        repeat False: for calls that must not be sent twice blindly; credentials that expired are still replaced.
        """
        if any(segment in (".", "..") for segment in key.split("/")):
            # The SDK's HTTP library would collapse the segment, and so address another key.
            raise ValueError(
                f"{operation} of the key {key!r} in bucket {bucket!r}: '.' and '..' segments are not supported here"
            )
        attempts = Attempts(time.monotonic())
        while True:
            sdk, credentials = self._sdk.get()
            try:
                result = ask(sdk)
            except tos.exceptions.TosError as error:
                failure = _failure(error)
            else:
                _budget.get().succeeded()
                return result
            now = time.monotonic()
            delay = None
            if repeat or failure.kind is Kind.EXPIRED:
                delay = attempts.decide(self._policy, failure, now, random.random(), _budget.get())
            if failure.kind is Kind.EXPIRED and delay is not None:
                assert credentials.last is not None
                if not self._provider.rejected(credentials.last):
                    delay = None
            if delay is None:
                raise attempts.exception(failure, now, operation, bucket, key) from None
            time.sleep(delay)

    def close(self) -> None:
        """Close the SDK's connections of this process."""
        made = self._sdk.peek()
        if made is not None:
            made[0].close()
            self._sdk.drop()


def _failure(error: Any) -> Failure:
    """What the SDK says, as we say it."""
    if isinstance(error, tos.exceptions.TosServerError):
        header = error.header if error.header is not None else {}
        ec = error.ec or header.get("x-tos-ec") or None
        retry_after = str(header.get("Retry-After") or "")
        return Failure(
            Kind.EXPIRED if error.status_code == 403 and is_expired(error.code) else Kind.STATUS,
            error.message or f"the service answered {error.status_code}",
            status=error.status_code,
            code=error.code or None,
            ec=ec,
            request_id=error.request_id or None,
            retry_after_s=float(retry_after) if retry_after.isdigit() and len(retry_after) < 6 else None,
        )
    cause = getattr(error, "cause", None)
    message = str(getattr(error, "message", "") or error)
    if cause is None:
        return Failure(Kind.FINAL, message, exception=TosException(TosError(message)))
    text = f"{type(cause).__name__}: {_innermost(cause)}"
    kind = Kind.REFUSED if "CERTIFICATE_VERIFY_FAILED" in text else Kind.CONNECT
    name = type(cause).__name__
    if "Timeout" in name and "Connect" not in name:
        kind = Kind.SLOW
    elif kind is Kind.CONNECT and "refused" not in text and "resol" not in text.lower():
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
