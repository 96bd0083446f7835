"""Checks every request's TOS4-HMAC-SHA256 signature, in its headers or in its query."""

from __future__ import annotations

import hashlib
import hmac
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from urllib.parse import quote

from tosnative.testing.errors import ServiceError, not_implemented
from tosnative.testing.messages import Request, ServerOptions

ALGORITHM = "TOS4-HMAC-SHA256"
EMPTY_SHA256 = hashlib.sha256().hexdigest()
UNSIGNED = "UNSIGNED-PAYLOAD"
MAX_EXPIRES_S = 604_800
DAY_KEYS = 1000

_authorization = re.compile(
    rf"{ALGORITHM}\s+Credential=(?P<credential>[^,\s]+)\s*,\s*SignedHeaders=(?P<names>[^,\s]+)\s*,"
    r"\s*Signature=(?P<signature>[0-9a-f]{64})"
)
_credential = re.compile(r"(?P<ak>[^/]+)/(?P<day>\d{8})/(?P<region>[^/]*)/(?P<service>[^/]*)/request")
_date = re.compile(r"\d{8}T\d{6}Z")
_plain = re.compile(r"[A-Za-z0-9\-._~]*")
_plain_path = re.compile(r"[A-Za-z0-9\-._~/]*")


@dataclass(frozen=True, slots=True)
class Claim:
    """What a request says about itself: who signed it, when, over which headers, and the proof."""

    ak: str
    scope: str
    day: str
    region: str
    date: str
    names: tuple[str, ...]
    signature: str
    token: str | None
    in_query: bool
    expires_s: int | None = None


class Verifier:
    """Verifies requests against the credentials and the region of the options, and the clock.

    `is_public` says of a request that is not signed at all whether it may pass.
    """

    def __init__(
        self,
        options: ServerOptions,
        clock: Callable[[], float] = time.time,
        is_public: Callable[[Request], bool] = lambda request: False,
    ) -> None:
        self._is_public = is_public
        self._options = options
        self._clock = clock
        self._day_keys: dict[tuple[str, str, str], bytes] = {}

    def verify(self, request: Request) -> None:
        """Return if the request is signed by someone known, recently, for this region and with the right token.

        Raises:
            ServiceError: 403, with the code that says which of these is not so.
        """
        claim = _claim_of(request)
        if claim is None:
            if self._is_public(request):
                return
            raise ServiceError(403, "AccessDenied", "The request is not signed, and this is not open to everybody.")
        secret, token = self._secret_of(claim)
        if self._options.check_dates:
            self._check_date(claim)
        self._check_scope(claim, request)
        self._check_signature(claim, request, secret)
        if token != claim.token:
            raise ServiceError(403, "InvalidSecurityToken", "The security token does not belong to this access key.")

    def _secret_of(self, claim: Claim) -> tuple[str, str | None]:
        known = self._options.credentials.get(claim.ak)
        if known is None:
            raise ServiceError(403, "InvalidAccessKeyId", "The access key id does not exist.")
        return known

    def _check_date(self, claim: Claim) -> None:
        signed, now = _seconds(claim.date), self._clock()
        if claim.expires_s is None:
            if abs(now - signed) > self._options.max_clock_skew_s:
                raise ServiceError(403, "RequestTimeTooSkewed", f"The request is dated {claim.date}.")
            return
        if signed - now > self._options.max_clock_skew_s:
            raise ServiceError(403, "RequestTimeTooSkewed", f"The request is dated {claim.date}, in the future.")
        if now > signed + claim.expires_s:
            raise ServiceError(403, "AccessDenied", "The request has expired.")

    def _check_scope(self, claim: Claim, request: Request) -> None:
        if claim.day != claim.date[:8]:
            raise _malformed("the credential's day is not the request's")
        if claim.scope != f"{claim.day}/{self._options.region}/tos/request":
            expected = f"this is region {self._options.region}, service tos"
            raise _malformed(f"the credential's scope is {claim.scope}, but {expected}")
        missing = [name for name in claim.names if name not in request.headers]
        if missing:
            raise _malformed(f"signed headers are missing: {', '.join(missing)}")
        needed = {"host"} if claim.in_query else {"host", "x-tos-date"}
        if claim.token is not None and not claim.in_query:
            needed.add("x-tos-security-token")
        if not needed.issubset(claim.names):
            raise _malformed(f"must be signed but is not: {', '.join(sorted(needed.difference(claim.names)))}")

    def _check_signature(self, claim: Claim, request: Request, secret: str) -> None:
        key = self._day_key(secret, claim)
        told: tuple[str, str] | None = None
        for canonical in canonical_requests(request, claim):
            digest = hashlib.sha256(canonical.encode("latin-1", "replace")).hexdigest()
            text = f"{ALGORITHM}\n{claim.date}\n{claim.scope}\n{digest}"
            proof = hmac.digest(key, text.encode("latin-1", "replace"), "sha256").hex()
            if hmac.compare_digest(proof, claim.signature):
                return
            told = told or (canonical, text)
        assert told is not None
        raise ServiceError(
            403,
            "SignatureDoesNotMatch",
            "The signature is not the one that the server computes. Check the secret key and the signing method.",
            extra={"canonical_request": told[0], "StringToSign": told[1], "SignatureProvided": claim.signature},
        )

    def _day_key(self, secret: str, claim: Claim) -> bytes:
        found = self._day_keys.get((secret, claim.day, claim.region))
        if found is None:
            if len(self._day_keys) > DAY_KEYS:
                self._day_keys.clear()
            found = secret.encode()
            for step in (claim.day, claim.region, "tos", "request"):
                found = hmac.digest(found, step.encode(), "sha256")
            self._day_keys[secret, claim.day, claim.region] = found
        return found


def _claim_of(request: Request) -> Claim | None:
    authorization = request.headers.get("authorization")
    if authorization is not None:
        return _header_claim(authorization, request.headers)
    query = {name.lower(): value for name, value in request.query.items() if name[:6].lower() == "x-tos-"}
    if "x-tos-signature" in query:
        return _query_claim(query)
    return None


def _header_claim(authorization: str, headers: Mapping[str, str]) -> Claim:
    match = _authorization.fullmatch(authorization.strip())
    if match is None:
        raise _malformed(f"expected {ALGORITHM} Credential=..., SignedHeaders=..., Signature=...")
    date, token = headers.get("x-tos-date", ""), headers.get("x-tos-security-token")
    return _claim(match["credential"], date, match["names"], match["signature"], token, None)


def _query_claim(query: Mapping[str, str]) -> Claim:
    if "x-tos-policy" in query:
        raise not_implemented("URLs that are signed with a policy")
    if query.get("x-tos-algorithm") != ALGORITHM:
        raise _malformed(f"X-Tos-Algorithm is not {ALGORITHM}")
    expires = query.get("x-tos-expires", "3600")
    if not (expires.isascii() and expires.isdigit() and 0 < int(expires) <= MAX_EXPIRES_S):
        raise _malformed(f"X-Tos-Expires is not a number of seconds from 1 to {MAX_EXPIRES_S}")
    date, names = query.get("x-tos-date", ""), query.get("x-tos-signedheaders", "")
    token, signature = query.get("x-tos-security-token"), query["x-tos-signature"]
    return _claim(query.get("x-tos-credential", ""), date, names, signature, token, int(expires))


def _claim(credential: str, date: str, names: str, signature: str, token: str | None, expires_s: int | None) -> Claim:
    match = _credential.fullmatch(credential)
    if match is None:
        raise _malformed("the credential is not <access key>/<day>/<region>/tos/request")
    if _date.fullmatch(date) is None:
        raise _malformed("the date is missing or not of the form 20260102T030405Z")
    scope = credential[len(match["ak"]) + 1 :]
    signed = tuple(names.lower().split(";"))
    in_query = expires_s is not None
    return Claim(match["ak"], scope, match["day"], match["region"], date, signed, signature, token, in_query, expires_s)


def _malformed(why: str) -> ServiceError:
    return ServiceError(403, "AccessDenied", f"The request's signature cannot be used: {why}.")


def canonical_requests(request: Request, claim: Claim) -> Iterator[str]:
    """The canonical requests that a client may have signed.

    There are several only where clients differ: with path style some sign the bucket as part of the path and some do
    not, and some squeeze the blanks inside header values.
    """
    query = canonical_query(request.query)
    names = ";".join(claim.names)
    payload = request.headers.get("x-tos-content-sha256") or (UNSIGNED if claim.in_query else EMPTY_SHA256)
    lines = "".join([f"{name}:{request.headers[name]}\n" for name in claim.names])
    squeezed = "".join([f"{name}:{' '.join(request.headers[name].split())}\n" for name in claim.names])
    for headers in dict.fromkeys((lines, squeezed)):
        for path in _canonical_paths(request):
            yield f"{request.method}\n{path}\n{query}\n{headers}\n{names}\n{payload}"


def _canonical_paths(request: Request) -> tuple[str, ...]:
    plain = "/" + percent_encoded(request.key or "", keep="/")
    if request.path_style and request.bucket is not None:
        with_bucket = f"/{request.bucket}" + (plain if request.key is not None else "")
        return (with_bucket, with_bucket + "/", plain) if request.key is None else (with_bucket, plain)
    return (plain,)


def canonical_query(query: Mapping[str, str]) -> str:
    """Sorted by decoded name, everything but unreserved characters encoded, the signature itself left out."""
    if not query:
        return ""
    pairs = sorted((name, value) for name, value in query.items() if name.lower() != "x-tos-signature")
    return "&".join([f"{percent_encoded(name)}={percent_encoded(value)}" for name, value in pairs])


def percent_encoded(text: str, keep: str = "") -> str:
    if (_plain_path if keep else _plain).fullmatch(text):
        return text
    return quote(text.encode("utf-8", "surrogateescape"), safe=keep + "-_.~")


def _seconds(date: str) -> float:
    try:
        year, month, day = int(date[:4]), int(date[4:6]), int(date[6:8])
        hour, minute, second = int(date[9:11]), int(date[11:13]), int(date[13:15])
        return datetime(year, month, day, hour, minute, second, tzinfo=timezone.utc).timestamp()
    except ValueError as error:
        raise _malformed("the date does not exist") from error
