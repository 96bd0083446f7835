"""What a request demands before it is carried out: ranges, preconditions on an object, checks of the body."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

from tosnative.testing.entities import StoredObject
from tosnative.testing.errors import (
    ServiceError,
    invalid_argument,
    invalid_range,
    no_such_key,
    overwrite_forbidden,
    precondition_failed,
)
from tosnative.testing.messages import Request, ServerOptions

_TRAFFIC_LIMIT_BITS_S = (819_200, 838_860_800)


def byte_range(text: str | None, size: int, error_code: str) -> tuple[int, int] | None:
    """The half-open range that a Range header asks for, clamped to the object; None where the whole is to be sent.

    As HTTP has it, a header that is no single byte range is ignored. Raises: ServiceError 416 for a range that holds no
    byte of the object.
    """
    if text is None or not text.startswith("bytes="):
        return None
    first, dash, last = text[6:].strip().partition("-")
    if not dash or not all(part == "" or (part.isascii() and part.isdigit()) for part in (first, last)):
        return None
    if first == "":
        if last == "":
            return None
        start, end = max(size - int(last), 0), size
    else:
        start, end = int(first), int(last) + 1 if last else size
        if last and end <= start:
            return None
    if start >= size or (first == "" and int(last) == 0):
        raise invalid_range(text, size, error_code)
    return start, min(end, size)


def etag_matches(condition: str, item: StoredObject) -> bool:
    """Whether an If-Match list names the object's ETag, quoted or not, or is a star."""
    names = (name.strip().removeprefix("W/").strip('"') for name in condition.split(","))
    return any(name in ("*", item.etag) for name in names)


def check_read(headers: Mapping[str, str], item: StoredObject, *, prefix: str = "") -> bool:
    """Applies If-Match, If-Unmodified-Since, If-None-Match and If-Modified-Since; False asks for a 304.

    With the prefix `x-tos-copy-source-` these are the conditions on the source of a copy. Raises: ServiceError 412.
    """

    def condition(name: str) -> str | None:
        return headers.get(prefix + name)

    if (match := condition("if-match")) is not None:
        if not etag_matches(match, item):
            raise precondition_failed(f"{prefix}if-match")
    elif _modified(condition("if-unmodified-since"), item, later=False):
        raise precondition_failed(f"{prefix}if-unmodified-since")
    if (none_match := condition("if-none-match")) is not None:
        return not etag_matches(none_match, item)
    return not _modified(condition("if-modified-since"), item, later=True)


def _modified(text: str | None, item: StoredObject, *, later: bool) -> bool:
    """Whether the object was modified not after (later) or after (not later) the date; no or a bad date says no."""
    if text is None:
        return False
    try:
        limit = int(parsedate_to_datetime(text).timestamp())
    except ValueError:
        return False
    seconds = item.modified_ns // 1_000_000_000
    return seconds <= limit if later else seconds > limit


def forbids_overwrite(headers: Mapping[str, str]) -> bool:
    """Whether the request must not replace an object."""
    return headers.get("x-tos-forbid-overwrite", "").lower() == "true"


def check_write(headers: Mapping[str, str], key: str, existing: StoredObject | None, options: ServerOptions) -> None:
    """Applies x-tos-forbid-overwrite and x-tos-if-match to the object that is about to be replaced.

    Raises: ServiceError 409, 412, or 404 where a match is asked for and there is no object.
    """
    if existing is not None and forbids_overwrite(headers):
        raise overwrite_forbidden(key, options.forbid_overwrite_code)
    if (match := headers.get("x-tos-if-match")) is not None:
        if existing is None:
            raise no_such_key(key)
        if not etag_matches(match, existing):
            raise precondition_failed("x-tos-if-match")


def check_body(request: Request) -> None:
    """Compares the body with the digests the request states, and checks the traffic limit.

    Raises: ServiceError 400 InvalidDigest, BadDigest, ContentSHA256Mismatch or InvalidArgument.
    """
    stated_md5 = request.headers.get("content-md5")
    if stated_md5 is not None:
        try:
            digest = base64.b64decode(stated_md5, validate=True)
        except binascii.Error:
            digest = b""
        if len(digest) != 16:
            raise ServiceError(400, "InvalidDigest", "Content-MD5 is not the base64 of an MD5 digest.")
        if digest != hashlib.md5(request.body, usedforsecurity=False).digest():
            raise ServiceError(400, "BadDigest", "Content-MD5 is not the digest of the body that arrived.")
    sha256 = request.headers.get("x-tos-content-sha256", "UNSIGNED-PAYLOAD")
    signed = not sha256.startswith(("UNSIGNED-", "STREAMING-"))
    if signed and sha256 != hashlib.sha256(request.body).hexdigest():
        raise ServiceError(400, "ContentSHA256Mismatch", "x-tos-content-sha256 is not the digest of the body.")
    limit = request.headers.get("x-tos-traffic-limit") or request.query.get("x-tos-traffic-limit")
    if limit is not None:
        lowest, highest = _TRAFFIC_LIMIT_BITS_S
        if not limit.isdigit() or not lowest <= int(limit) <= highest:
            raise invalid_argument(f"x-tos-traffic-limit must be {lowest} to {highest} bit/s, not {limit}.")


_CUSTOMER = "x-tos-server-side-encryption-customer-"


def customer_key(headers: Mapping[str, str]) -> str | None:
    """The digest of the customer's key where a request brings one; the local server encrypts nothing.

    Raises: ServiceError 400 InvalidArgument for an incomplete or contradictory set of headers.
    """
    stated = [headers.get(_CUSTOMER + name) for name in ("algorithm", "key", "key-md5")]
    if not any(stated):
        return None
    algorithm, key, key_md5 = stated
    if algorithm != "AES256" or not key or not key_md5:
        raise invalid_argument("A customer's key needs the algorithm AES256, the key and its MD5.")
    try:
        raw = base64.b64decode(key, validate=True)
    except binascii.Error:
        raw = b""
    if len(raw) != 32 or base64.b64encode(hashlib.md5(raw, usedforsecurity=False).digest()).decode() != key_md5:
        raise invalid_argument("The customer's key is not 32 bytes in base64, or its MD5 is another one.")
    return key_md5


def check_customer_key(headers: Mapping[str, str], item: StoredObject) -> None:
    """Requires the key with which an object was stored. Raises: ServiceError 400 InvalidArgument, or 403."""
    stored = item.headers.get(_CUSTOMER + "key-md5")
    given = customer_key(headers)
    if stored is None:
        return
    if given is None:
        raise invalid_argument("The object was stored with a customer's key and is read without one.")
    if given != stored:
        raise ServiceError(403, "AccessDenied", "The customer's key is not the one the object was stored with.")
