"""Where the service is: an endpoint's scheme, host, port and region, and the host name of a bucket there."""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass

__all__ = ["Endpoint", "endpoint_of_region", "parse_endpoint", "region_in"]

_PUBLIC = re.compile(
    r"(?:(?P<bucket>[a-z0-9-]+)\.)?tos-(?P<s3>s3-)?(?P<region>[a-z0-9-]+)\.i?(?:volces|bytepluses)\.com"
)
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]*")
_ADDRESS = re.compile(r"[0-9A-Fa-f.:]+(%[A-Za-z0-9._~-]+)?")
_HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\.?")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A checked endpoint. `by_address`: an IP address or localhost, where buckets have no name of their own to connect to."""

    scheme: str
    host: str
    port: int
    region: str
    by_address: bool

    @property
    def netloc(self) -> str:
        """host or host:port, as a URL and a Host header have it; the default port is left out."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _default_port(self.scheme) else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        return f"{self.scheme}://{self.netloc}"

    def host_header(self, bucket: str) -> str:
        """What the Host header (and the signature) says for this bucket."""
        return f"{bucket}.{self.netloc}"

    def address_of(self, bucket: str) -> tuple[str, int]:
        """(host, port) to connect to for this bucket."""
        return (self.host if self.by_address else f"{bucket}.{self.host}"), self.port


def _default_port(scheme: str) -> int:
    return 443 if scheme == "https" else 80


def endpoint_of_region(region: str) -> Endpoint:
    """The public Volcengine endpoint of a region (BytePlus regions need their endpoint to be given).

    Raises: ValueError where that is no region's name.
    """
    _check_region(region)
    return parse_endpoint(f"https://tos-{region.lower()}.volces.com")


def parse_endpoint(text: str, region: str | None = None) -> Endpoint:
    """Parse `[http[s]://]host[:port][/]`; https where no scheme is given. The region is inferred from public endpoints.

    Raises: ValueError for another scheme, a path, user information, a bad port, an S3 endpoint, a bucket in the host, a
    region that the endpoint contradicts, and where no region is given and none can be inferred.
    """
    scheme, host, port = _split(text)
    by_address = _is_address(host)
    found = _PUBLIC.fullmatch(host)
    if found:
        region = _public_region(text, found, region)
    elif host.startswith("s3.") or "amazonaws.com" in host:
        raise ValueError(f"endpoint {text!r} is not a TOS endpoint; expected something like tos-cn-beijing.volces.com")
    if not region:
        raise ValueError(f"no region: it cannot be inferred from the endpoint {text!r}; pass region= or set TOS_REGION")
    _check_region(region)
    return Endpoint(scheme, host, port, region, by_address)


def _check_region(region: str) -> None:
    if not _REGION.fullmatch(region):
        shown = "this" if "@" in region else repr(region)  # it may be a URL with a password
        raise ValueError(f"{shown} is no region's name: expected something like cn-beijing")


def region_in(text: str) -> str | None:
    """The region that an endpoint's name tells, None where it tells none. Raises: ValueError where it is no endpoint."""
    found = _PUBLIC.fullmatch(_split(text)[1])
    return found["region"] if found else None


def _public_region(text: str, found: re.Match[str], region: str | None) -> str:
    if found["s3"]:
        raise ValueError(
            f"endpoint {text!r} speaks the S3 protocol; use the TOS one, {text.replace('tos-s3-', 'tos-')!r}"
        )
    if found["bucket"]:
        plain = text.replace(found["bucket"] + ".", "", 1)
        raise ValueError(f"endpoint {text!r} begins with a bucket's name; leave it out: {plain!r}")
    if region and region.lower() != found["region"]:
        raise ValueError(f"region {region!r} contradicts the endpoint {text!r}, which is in {found['region']!r}")
    return found["region"]


def _split(text: str) -> tuple[str, str, int]:
    rest = text.strip()
    if "@" in rest:  # looked for first: no message may show them
        raise ValueError("an endpoint holds no user name or password: pass credentials with cred=")
    scheme, separator, after = rest.partition("://")
    scheme, rest = (scheme.lower(), after) if separator else ("https", rest)
    if scheme not in ("http", "https"):
        raise ValueError(f"endpoint {text!r}: the scheme must be http or https, not {scheme!r}")
    rest = rest.rstrip("/")
    if any(character in rest for character in "/?#"):
        raise ValueError(
            f"endpoint {text!r} has a path; expected host[:port], buckets go into the URI tos://bucket/key"
        )
    host, port = _host_and_port(text, rest, scheme)
    return scheme, host.lower(), port


def _host_and_port(text: str, rest: str, scheme: str) -> tuple[str, int]:
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        port = tail[1:]
        if not bracket or ":" not in host or (tail and not (tail.startswith(":") and port)):
            raise ValueError(f"endpoint {text!r}: expected an IPv6 address in brackets, like http://[::1]:9000")
    elif rest.count(":") > 1:
        raise ValueError(f"endpoint {text!r}: an IPv6 address goes into brackets, like http://[::1]:9000")
    else:
        host, colon, port = rest.partition(":")
        if colon and not port:
            raise ValueError(f"endpoint {text!r}: the port is missing after ':'")
    if not (_is_ip(host) or _HOST.fullmatch(host)):
        raise ValueError(f"endpoint {text!r}: {host!r} is no host name")
    if not port:
        return host, _default_port(scheme)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ValueError(f"endpoint {text!r}: {port!r} is no port number")
    return host, int(port)


def _is_ip(host: str) -> bool:
    if not _ADDRESS.fullmatch(host):  # ipaddress takes anything for the zone of an address, line breaks too
        return False
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_address(host: str) -> bool:
    return _is_ip(host) or host.rstrip(".") == "localhost" or host.rstrip(".").endswith(".localhost")
