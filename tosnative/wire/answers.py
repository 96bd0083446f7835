"""What the head and the error body of an answer say, as our values."""

from __future__ import annotations

import json

from tosnative.meta import TosObjectMeta
from tosnative.wire.http1 import Head
from tosnative.wire.retry import Failure, Kind, is_expired, seconds_to_wait

__all__ = ["describe", "refusal"]


def refusal(head: Head, body: bytes) -> Failure:
    """What an error answer says."""
    details: dict[str, object] = {}
    try:
        parsed = json.loads(body) if body else {}
        details = parsed if isinstance(parsed, dict) else {}
    except (ValueError, RecursionError):
        details = {"Message": body[:200].decode("utf-8", "replace")}

    def text(name: str) -> str | None:
        value = details.get(name)
        return value if isinstance(value, str) and value else None

    code = text("Code")
    ec = text("EC") or head.get(b"x-tos-ec")
    request_id = head.get(b"x-tos-request-id") or text("RequestId")
    kind = Kind.EXPIRED if head.status == 403 and is_expired(code) else Kind.STATUS
    return Failure(
        kind,
        text("Message") or f"the service answered {head.status}",
        status=head.status,
        code=code,
        ec=ec,
        request_id=request_id,
        retry_after_s=seconds_to_wait(head.get(b"retry-after"), head.get(b"date")),
    )


def _unquote(etag: str | None) -> str | None:
    return etag.strip('"') if etag else None


def describe(bucket: str, key: str, head: Head, size: int | None) -> TosObjectMeta:
    """The object as an answer's head describes it. Raises: Failure where its numbers are none."""
    crc = head.value(b"x-tos-hash-crc64ecma")
    if crc is not None and not (crc.isdigit() and len(crc) <= 20):
        raise Failure(Kind.PROTOCOL, f"not a CRC64: {crc[:40]!r}")
    return TosObjectMeta(bucket, key, size, _unquote(head.get(b"etag")), int(crc) if crc else None)
