"""The official SDK, and its errors as ours. Imported at the first call of the control plane: it takes a tenth of a second, and
what only reads and writes bytes needs none of it.

Its own retries are off, so that one layer retries; its DNS cache is off, as it would patch urllib3 for the whole process.
"""

from __future__ import annotations

import logging
import threading
from typing import Any

import tos
import tos.credential
import tos.exceptions

from tosnative.config import TosClientConfig
from tosnative.credentials import CredentialProvider, Credentials
from tosnative.endpoint import Endpoint
from tosnative.errors import TosError, TosException
from tosnative.wire.refresh import provider_failure
from tosnative.wire.retry import Failure, Kind, is_expired, seconds_to_wait
from tosnative.wire.sdk_session import bound_session

__all__ = ["Sdk"]


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


class _Provider(tos.credential.CredentialsProvider):  # type: ignore[misc]  # the SDK has no types
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


class Sdk:
    """The SDK's client for an endpoint. `provider.last` is what the calling thread signed with last."""

    def __init__(
        self, endpoint: Endpoint, provider: CredentialProvider, config: TosClientConfig, proxy: str | None
    ) -> None:
        options = config.connection
        self.provider = _Provider(provider)
        self.client = client = _SdkClient(
            endpoint=endpoint.url,
            region=endpoint.region,
            credentials_provider=self.provider,
            max_retry_count=0,
            dns_cache_time=0,
            connection_time=options.connect_timeout_s,
            socket_timeout=options.first_byte_timeout_s,
            enable_verify_ssl=options.verify,
            enable_crc=config.enable_crc,
            high_latency_log_threshold=0,
            client_crt=options.client_cert[0] if options.client_cert else None,
            client_key=options.client_cert[1] if options.client_cert else None,
            ca_crt=options.ca_bundle,
        )
        client.by_address = endpoint.by_address
        # At DEBUG the SDK logs what it signs, security token and signature included.
        logging.getLogger("tos").addFilter(_keep_unless_signing)
        # The proxy was chosen once, for both planes; requests would look at the environment at each request.
        client.session.trust_env = False
        bound_session(client.session, options)
        client.proxies = {"http": proxy, "https": proxy} if proxy else {}

    def failure(self, error: Exception) -> Failure:
        """What a call of the client raised, as we say it. Raises: what is not the SDK's."""
        return _failure(error)


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
    return Failure(
        Kind.EXPIRED if error.status_code == 403 and is_expired(error.code) else Kind.STATUS,
        str(error.message or f"the service answered {error.status_code}")[:1000],
        status=error.status_code,
        code=error.code or None,
        ec=error.ec or header.get("x-tos-ec") or None,
        request_id=error.request_id or None,
        retry_after_s=seconds_to_wait(header.get("Retry-After"), header.get("Date")),
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
