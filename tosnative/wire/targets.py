"""What all requests of one client to one bucket have in common."""

from __future__ import annotations

import importlib.metadata
import platform
import sys
from dataclasses import dataclass

from tosnative.config import TosClientConfig
from tosnative.credentials import CredentialProvider
from tosnative.endpoint import Endpoint
from tosnative.wire.connections import Origin, proxy_authorization
from tosnative.wire.retry import RetryPolicy
from tosnative.wire.signing import Signer

__all__ = ["Target", "make_target"]


@dataclass(slots=True, eq=False)
class Target:
    """request_prefix: what precedes the path in the request line (scheme and host, when a plain proxy is asked).

    constant_headers: header lines that are the same in every request, each ended by CR LF.
    """

    origin: Origin
    host: str
    signer: Signer
    provider: CredentialProvider
    policy: RetryPolicy
    request_prefix: str
    constant_headers: str
    most_in_flight: int | None
    hedge_percent: float
    shorten_switch_interval: bool


def _user_agent() -> str:
    try:
        version = importlib.metadata.version("tosnative")
    except importlib.metadata.PackageNotFoundError:
        version = "0"
    return f"tosnative/{version} ({sys.platform}/{platform.machine()}; python {platform.python_version()})"


def make_target(
    endpoint: Endpoint,
    provider: CredentialProvider,
    signer: Signer,
    config: TosClientConfig,
    proxy: str | None,
    bucket: str,
) -> Target:
    """The target of a bucket at an endpoint, through a proxy if one is given."""
    host, port = endpoint.address_of(bucket)
    lines = f"User-Agent: {_user_agent()}\r\n"
    prefix = ""
    if proxy is not None and endpoint.scheme == "http":
        host = endpoint.host  # one proxy connection serves all buckets
        prefix = f"http://{endpoint.host_header(bucket)}"
        authorization = proxy_authorization(proxy)
        if authorization:
            lines += f"Proxy-Authorization: {authorization}\r\n"
    return Target(
        origin=Origin(endpoint.scheme, host, port, proxy, config.connection),
        host=endpoint.host_header(bucket),
        signer=signer,
        provider=provider,
        policy=RetryPolicy(config.deadline_s, config.max_retry_count),
        request_prefix=prefix,
        constant_headers=lines,
        most_in_flight=config.shared_prefetch_tasks,
        hedge_percent=config.hedge_percent,
        shorten_switch_interval=config.shorten_switch_interval,
    )
