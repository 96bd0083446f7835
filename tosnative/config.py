"""Configuration as frozen values that check themselves, and the only reader of the environment."""

from __future__ import annotations

import enum
import importlib.util
import ipaddress
import os
import ssl
import sys
import urllib.parse
import urllib.request
from dataclasses import dataclass, replace

from tosnative.endpoint import Endpoint, endpoint_of_region, parse_endpoint, region_in

__all__ = [
    "ConnectionOptions",
    "ReaderType",
    "TosClientConfig",
    "environment_credentials",
    "proxy_for",
    "resolve_endpoint",
    "with_environment",
]

MIB = 1 << 20
# The service takes parts of 4 MiB to 5 GiB (public documentation, volcengine.com/docs/6349/156120).
MIN_PART_SIZE, MAX_PART_SIZE = 4 * MIB, 5 << 30


class ReaderType(enum.Enum):
    """How a TosObjectReader gets its bytes.

    SEQUENTIAL reads ahead in parallel ranges, for reading from front to back (and torch.load).
    RANGED keeps one window around the position, for jumping about. DIRECT keeps nothing: each read is one request.
    """

    SEQUENTIAL = "sequential"
    RANGED = "ranged"
    DIRECT = "direct"


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How connections to the service are made and how long they may take. Times are seconds.

    ca_bundle: a file of CA certificates in PEM (or a directory of them); None takes REQUESTS_CA_BUNDLE, CURL_CA_BUNDLE or
    SSL_CERT_FILE from the environment if one is set, else the system's, else those of the package certifi.
    client_cert: (certificate, key) files. proxy: http://[user:password@]host:port; None takes HTTP(S)_PROXY and NO_PROXY
    from the environment, "" means none.
    connect_timeout_s: for each of TCP and the steps of TLS; a name's lookup takes as long as the system lets it.
    first_byte_timeout_s: from the request's last byte sent to the whole head of the answer. stall_timeout_s: the longest time
    without progress while a body is on its way. max_connections: per process and host name (each bucket has one).
    idle_timeout_s: kept-alive connections unused for longer are dropped.
    """

    verify: bool = True
    ca_bundle: str | None = None
    client_cert: tuple[str, str] | None = None
    proxy: str | None = None
    connect_timeout_s: float = 10.0
    first_byte_timeout_s: float = 30.0
    stall_timeout_s: float = 20.0
    idle_timeout_s: float = 50.0
    max_connections: int = 256

    def __post_init__(self) -> None:
        for name in ("connect_timeout_s", "first_byte_timeout_s", "stall_timeout_s", "idle_timeout_s"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be more than 0 seconds, not {getattr(self, name)!r}")
        if self.max_connections < 1:
            raise ValueError(f"max_connections must be at least 1, not {self.max_connections}")
        for path in (self.ca_bundle, *(self.client_cert or ())):
            if path is not None and not os.path.exists(path):
                raise ValueError(f"no such file: {path!r} (ca_bundle or client_cert)")

    def __repr__(self) -> str:
        proxy = self.proxy and "//" + self.proxy.rpartition("@")[2].rpartition("//")[2]
        facts = f"verify={self.verify}, ca_bundle={self.ca_bundle!r}, proxy={proxy!r}"
        return f"ConnectionOptions({facts}, max_connections={self.max_connections})"


@dataclass(frozen=True)
class TosClientConfig:
    """The settings of a client.

    part_size: bytes of one ranged GET or uploaded part (at least 4 MiB to be accepted in multipart uploads).
    max_retry_count: most retries of one request; None lets the deadline alone decide.
    shared_prefetch_tasks: most GETs in flight; None adapts to latency and bandwidth.
    shared_upload_part_tasks: most parts in flight of one writer; None chooses by part size and memory budget.
    enable_crc: compare CRC64 of what is read and written with the service's.
    deadline_s: how long one operation is retried, from its first attempt, or from when it last moved a MiB.
    memory_budget_bytes: for everything in flight or read ahead, per process. Besides, a client keeps up to a quarter of it, and
        256 MiB at most, of what large reads returned and their callers have dropped, to fill it again.
    hedge_percent: most extra requests, in percent, that race an answer which is unusually late; 0 switches it off.
    shorten_switch_interval: over TLS, let Python switch threads more often while transfers run (see sys.setswitchinterval).
    """

    part_size: int = 8 * MIB
    max_retry_count: int | None = None
    shared_prefetch_tasks: int | None = None
    shared_upload_part_tasks: int | None = None
    enable_crc: bool = True
    deadline_s: float = 300.0
    memory_budget_bytes: int = 1 << 30
    hedge_percent: float = 5.0
    shorten_switch_interval: bool = True
    connection: ConnectionOptions = ConnectionOptions()

    def __post_init__(self) -> None:
        if not MIB <= self.part_size <= MAX_PART_SIZE:
            raise ValueError(f"part_size must be 1 MiB to 5 GiB, not {self.part_size} bytes")
        for name in ("shared_prefetch_tasks", "shared_upload_part_tasks"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1, or None for automatic, not {value}")
        if self.max_retry_count is not None and self.max_retry_count < 0:
            raise ValueError(f"max_retry_count must not be negative: {self.max_retry_count}")
        if not self.deadline_s > 0:
            raise ValueError(f"deadline_s must be more than 0 seconds, not {self.deadline_s}")
        if self.memory_budget_bytes < 64 * MIB:
            raise ValueError(f"memory_budget_bytes must be at least 64 MiB, not {self.memory_budget_bytes}")
        if not 0 <= self.hedge_percent <= 100:
            raise ValueError(f"hedge_percent must be 0 to 100, not {self.hedge_percent}")

    def with_crc(self, enable_crc: bool) -> TosClientConfig:
        return self if enable_crc == self.enable_crc else replace(self, enable_crc=enable_crc)


def resolve_endpoint(endpoint: str | None, region: str | None) -> Endpoint:
    """The endpoint to use: from the arguments, else from TOS_ENDPOINT and TOS_REGION; each is inferred from the other.

    What is passed goes before the environment: TOS_REGION is not looked at where the endpoint that is passed names its region.
    Raises: ValueError where neither is given, where they contradict each other, or where the endpoint cannot be one.
    """
    passed = endpoint or None
    endpoint = passed or os.environ.get("TOS_ENDPOINT") or None
    if not region and (passed is None or region_in(passed) is None):
        region = os.environ.get("TOS_REGION") or None
    if endpoint is None and not region:
        raise ValueError("no endpoint: pass endpoint= or region=, or set TOS_ENDPOINT or TOS_REGION")
    if endpoint is None:
        assert region
        return endpoint_of_region(region)
    return parse_endpoint(endpoint, region)


def with_environment(options: ConnectionOptions) -> ConnectionOptions:
    """The options with what the environment says where they leave it open: which CAs to trust.

    Raises: ValueError where it names a file that is not there.
    """
    if options.ca_bundle is not None or not options.verify:
        return options
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        path = os.environ.get(name)
        if path:
            if not os.path.exists(path):
                raise ValueError(f"{name} names {path!r}, which does not exist")
            return replace(options, ca_bundle=path)
    return replace(options, ca_bundle=_default_cas())


def _default_cas() -> str | None:
    """The system's CAs, or certifi's where the system has none (small container images); None lets the TLS library decide.

    Named here, so that the engine and the official SDK, which would take certifi's, trust the same ones.
    """
    paths = ssl.get_default_verify_paths()
    if paths.cafile or sys.platform == "win32":
        return paths.cafile
    if paths.capath and os.listdir(paths.capath):
        return paths.capath
    found = importlib.util.find_spec("certifi")
    bundle = os.path.join(os.path.dirname(found.origin), "cacert.pem") if found and found.origin else ""
    return bundle if os.path.exists(bundle) else None


def environment_credentials() -> tuple[str, str, str | None] | None:
    """(access key, secret key, security token) from TOS_ACCESS_KEY, TOS_SECRET_KEY and TOS_SECURITY_TOKEN, if set."""
    ak, sk = os.environ.get("TOS_ACCESS_KEY", ""), os.environ.get("TOS_SECRET_KEY", "")
    if not ak and not sk:
        return None
    if not ak or not sk:
        raise ValueError(f"{'TOS_SECRET_KEY' if ak else 'TOS_ACCESS_KEY'} is not set, though its counterpart is")
    return ak, sk, os.environ.get("TOS_SECURITY_TOKEN") or None


def proxy_for(endpoint: Endpoint, options: ConnectionOptions) -> str | None:
    """The proxy's URL for this endpoint, or None: from the options, else from HTTP(S)_PROXY, ALL_PROXY and NO_PROXY.

    Raises: ValueError for a proxy that cannot be used: an https proxy before an https endpoint, or another scheme.
    """
    proxy = options.proxy
    if proxy is None:
        if _goes_direct(endpoint.host, endpoint.port):
            return None
        found = urllib.request.getproxies()
        proxy = found.get(endpoint.scheme) or found.get("all")
    if not proxy:
        return None
    if not proxy.isprintable() or " " in proxy:  # not shown: it may hold a password
        raise ValueError(
            "the proxy's address holds blanks or control characters: expected http://[user:password@]host:port"
        )
    proxy = proxy if "://" in proxy else f"http://{proxy}"
    scheme = proxy.partition("://")[0].lower()
    shown = f"{scheme}://{proxy.rpartition('@')[2].rpartition('//')[2]}"
    if scheme == "https" and endpoint.scheme == "https":
        raise ValueError(
            f"the proxy {shown} is itself https and cannot carry an https endpoint: use an http:// proxy, or NO_PROXY"
        )
    if not scheme.isalnum():  # not shown: a password may be in what stands before the first "://"
        raise ValueError("the proxy's address is none: expected http://[user:password@]host:port")
    if scheme not in ("http", "https"):
        raise ValueError(f"the proxy {shown} is of a kind that is not supported: use http://host:port, or NO_PROXY")
    _check_address(proxy, shown)
    return proxy


def _goes_direct(host: str, port: int) -> bool:
    """Whether NO_PROXY names this host: by name, by the end of its name, or as an address in a network such as 10.0.0.0/8."""
    if urllib.request.proxy_bypass(f"{host}:{port}") or urllib.request.proxy_bypass(host):
        return True
    for entry in urllib.request.getproxies().get("no", "").split(","):
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(entry.strip(), strict=False):
                return True
        except ValueError:
            continue  # a name
    return False


def _check_address(proxy: str, shown: str) -> None:
    try:
        parts = urllib.parse.urlsplit(proxy)
        right = bool(parts.hostname) and parts.port != 0 and parts.path in ("", "/")
    except ValueError:
        right = False
    if not right:
        raise ValueError(f"the proxy {shown} is no address of one: expected http://[user:password@]host:port")
