"""TOS4-HMAC-SHA256 in request headers, equal to the official SDK's signature, with the day's key cached.

Signed are `host`, `content-type`, and every header that begins with `x-tos`; the payload is UNSIGNED-PAYLOAD, as the official
Python SDK has it.
"""

from __future__ import annotations

import hashlib
import importlib
import time
from typing import Any
from urllib.parse import quote

from tosnative.credentials import Credentials

__all__ = ["Signer", "canonical_query", "quote_key"]

_ALGORITHM = "TOS4-HMAC-SHA256"
_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/")


def _sha256() -> Any:
    """Python's own SHA-256: OpenSSL's takes locks, and a child that was forked while some thread held one waits for ever.

    Seen once in 3,000 forks beside threads that made TLS contexts. For texts as short as these it is as fast.
    """
    for module in ("_sha2", "_sha256"):  # its name since Python 3.12, and before; some builds have neither
        try:
            return importlib.import_module(module).sha256
        except ImportError:
            continue
    return hashlib.sha256


sha256 = _sha256()
_BLOCK = 64
_INNER, _OUTER = bytes(byte ^ 0x36 for byte in range(256)), bytes(byte ^ 0x5C for byte in range(256))


class _Hmac:
    """HMAC-SHA256 (RFC 2104) with one key, what does not depend on the message computed once."""

    def __init__(self, key: bytes) -> None:
        if len(key) > _BLOCK:
            key = sha256(key).digest()
        padded = key.ljust(_BLOCK, b"\0")
        self._inner, self._outer = sha256(padded.translate(_INNER)), sha256(padded.translate(_OUTER))

    def of(self, message: bytes) -> Any:
        """As a hash object that has taken everything in."""
        inner, outer = self._inner.copy(), self._outer.copy()
        inner.update(message)
        outer.update(inner.digest())
        return outer


def quote_key(key: str) -> str:
    """The path of a key: '/' and every byte of its UTF-8 but A-Z a-z 0-9 - _ . ~ / percent-encoded."""
    try:
        plain = _PLAIN.issuperset(key.encode())
    except UnicodeEncodeError:
        raise ValueError(f"the key {key!r} cannot be written as UTF-8") from None
    if plain:
        return "/" + key
    return "/" + quote(key, safe="/~")


def canonical_query(query: dict[str, str]) -> str:
    """The query as it is signed, which is also a way to send it."""
    return "&".join(f"{quote(name, safe='~')}={quote(query[name], safe='~')}" for name in sorted(query))


class Signer:
    """Signs for one region and service. Used by one thread at a time (the engine's)."""

    def __init__(self, region: str) -> None:
        self._region = region
        self._second = -1
        self._date = ""
        self._key_of: tuple[str, str] | None = None
        self._key = _Hmac(b"")

    def _stamp(self, now: float) -> str:
        second = int(now)
        if second != self._second:
            self._second, self._date = second, time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(second))
        return self._date

    def _day_key(self, sk: str, day: str) -> _Hmac:
        if self._key_of != (sk, day):
            key = sk.encode()
            for part in (day, self._region, "tos", "request"):
                key = _Hmac(key).of(part.encode()).digest()
            self._key, self._key_of = _Hmac(key), (sk, day)
        return self._key

    def headers(
        self,
        method: str,
        path: str,
        query: str,
        host: str,
        credentials: Credentials,
        now: float,
        signed: dict[str, str] | None = None,
    ) -> str:
        """The header lines from Host to Authorization, each ended by CR LF.

        path, query: as `quote_key` and `canonical_query` give them. signed: more headers to send and sign, lower-case
        names that begin with x-tos, or content-type. now: seconds since 1970.
        """
        date = self._stamp(now)
        scope = f"{date[:8]}/{self._region}/tos/request"
        if signed is None and credentials.token is None:
            names = "host;x-tos-content-sha256;x-tos-date"
            lines = f"host:{host}\nx-tos-content-sha256:UNSIGNED-PAYLOAD\nx-tos-date:{date}\n"
            sent = f"Host: {host}\r\nx-tos-content-sha256: UNSIGNED-PAYLOAD\r\nx-tos-date: {date}\r\n"
        else:
            all_headers = {
                "host": host,
                "x-tos-content-sha256": "UNSIGNED-PAYLOAD",
                "x-tos-date": date,
                **(signed or {}),
            }
            if credentials.token is not None:
                all_headers["x-tos-security-token"] = credentials.token
            ordered = sorted(all_headers.items())
            names = ";".join(name for name, _ in ordered)
            lines = "".join(f"{name}:{value}\n" for name, value in ordered)
            sent = "".join(f"{name}: {value}\r\n" for name, value in ordered)
        canonical = f"{method}\n{path}\n{query}\n{lines}\n{names}\nUNSIGNED-PAYLOAD"
        text = f"{_ALGORITHM}\n{date}\n{scope}\n{sha256(canonical.encode()).hexdigest()}"
        signature = self._day_key(credentials.sk, date[:8]).of(text.encode()).hexdigest()
        return (
            f"{sent}Authorization: {_ALGORITHM} Credential={credentials.ak}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}\r\n"
        )
