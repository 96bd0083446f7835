"""Which bucket and key a request is for: by its host name where that carries a bucket, else by its path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote_plus, unquote_to_bytes

from tosnative.testing.http import BadRequest

_port = re.compile(r":\d+$")
_ipv4 = re.compile(r"\d+\.\d+\.\d+\.\d+")
_public_endpoint = re.compile(r"tos-[a-z0-9-]+\.i?(?:volces|bytepluses)\.com")
_absolute = re.compile(r"(?i)https?://([^/?#]*)")


@dataclass(frozen=True, slots=True)
class Place:
    """What a Host header says: the bucket, or None for the service itself.

    `path_prefix` is what a client that believes in a custom domain puts before every key ("/bucket" in its endpoint).
    """

    bucket: str | None
    path_prefix: str = ""


@dataclass(frozen=True, slots=True)
class Route:
    """Where a request goes. `path_style`: the bucket was part of the path."""

    bucket: str | None
    key: str | None
    query: dict[str, str]
    path_style: bool


class Router:
    """Routes requests; remembers the host names it has seen."""

    def __init__(self, domains: tuple[str, ...]) -> None:
        self._domains = frozenset(domain.lower() for domain in domains)
        self._places: dict[str, Place] = {}

    def route(self, target: str, host: str) -> Route:
        """Take a request target (origin or absolute form) apart.

        Raises:
            BadRequest: the target is of another form, or its path is not UTF-8.
        """
        if not target.startswith("/"):
            target, authority = _origin_form(target)
            host = host or authority
        path, _, query_text = target.partition("?")
        query = parse_query(query_text) if query_text else {}
        place = self._places.get(host) or self._remember(host)
        if place.path_prefix and (path + "/").startswith(place.path_prefix + "/"):
            path = path[len(place.path_prefix) :]
        rest = decode_path(path[1:])
        if place.bucket is not None:
            return Route(place.bucket, rest or None, query, False)
        bucket, _, key = rest.partition("/")
        return Route(bucket or None, key or None, query, True)

    def _remember(self, host: str) -> Place:
        if len(self._places) > 10_000:
            self._places.clear()
        place = self._places[host] = self._place(host)
        return place

    def _place(self, host: str) -> Place:
        name, slash, prefix = host.partition("/")
        if slash and prefix:
            return Place(prefix.partition("/")[0], "/" + prefix)
        name = _port.sub("", name).lower().rstrip(".")
        if name in self._domains or "." not in name or name.startswith("["):
            return Place(None)
        if _ipv4.fullmatch(name) or _public_endpoint.fullmatch(name):
            return Place(None)
        return Place(name.partition(".")[0])


def _origin_form(target: str) -> tuple[str, str]:
    match = _absolute.match(target)
    if match is None:
        raise BadRequest("the request target is neither a path nor an http URL")
    rest = target[match.end() :]
    return (rest if rest.startswith("/") else "/" + rest), match[1]


def decode_path(path: str) -> str:
    """The key that a path spells, '+' being a plus sign.

    Raises:
        BadRequest: the bytes are not UTF-8.
    """
    if "%" not in path and path.isascii():
        return path
    try:
        return unquote_to_bytes(path.encode("latin-1")).decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadRequest("the key is not UTF-8") from error


def parse_query(text: str) -> dict[str, str]:
    """Decoded names and values; '+' is a space, a bare name has the value "", of two equal names the last counts."""
    query: dict[str, str] = {}
    for pair in text.split("&"):
        name, _, value = pair.partition("=")
        if name:
            query[unquote_plus(name)] = unquote_plus(value)
    return query
