"""What listings answer, and what the SDK's batch calls take, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tosnative.credential_files import parse_time
from tosnative.errors import TosError, TosIntegrityError
from tosnative.meta import TosObjectMeta

__all__ = ["DeletedObject", "ListPage", "UploadInfo", "no_listing", "parse_page"]


@dataclass(frozen=True, slots=True)
class ListPage:
    """A page of a listing, in key order. token: for the next page, None after the last."""

    objects: list[TosObjectMeta] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    token: str | None = None


@dataclass(frozen=True, slots=True)
class UploadInfo:
    """A multipart upload that was begun and neither completed nor aborted. initiated: seconds since 1970."""

    key: str
    upload_id: str
    initiated: float | None


@dataclass(frozen=True, slots=True)
class DeletedObject:
    """What the SDK wants of an object to delete."""

    key: str
    version_id: None = None


def parse_page(bucket: str, document: bytes | bytearray, prefix: str = "") -> ListPage:
    """Read the answer of a finished listing request. Raises: TosIntegrityError where it is no listing."""
    try:
        page = json.loads(document)
        if "Code" in page:
            raise ValueError(f"an error in a 200: {page['Code']}: {page.get('Message')}")
        objects = [_object(bucket, item) for item in page.get("Contents") or ()]
        prefixes = [_text(item["Prefix"]) for item in page.get("CommonPrefixes") or ()]
        token = _text(page["NextContinuationToken"]) if page.get("IsTruncated") else None
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError) as error:
        raise no_listing(bucket, prefix, f"{type(error).__name__}: {str(error)[:200]}") from error
    return ListPage(objects, prefixes, token)


def no_listing(bucket: str, prefix: str, why: str) -> TosIntegrityError:
    """What a listing raises when its answer is none."""
    return TosIntegrityError(
        TosError(f"the service's answer is no listing ({why})", operation="LIST", bucket=bucket, key=prefix)
    )


def _object(bucket: str, item: dict[str, Any]) -> TosObjectMeta:
    size = item["Size"]
    if type(size) is not int or size < 0:
        raise ValueError(f"not a size: {size!r}")
    crc = int(item.get("HashCrc64ecma") or 0)
    if not 0 <= crc < 1 << 64:
        raise ValueError(f"not a CRC64: {crc!r}")
    etag = item["ETag"].strip('"')
    return TosObjectMeta(
        bucket, _text(item["Key"]), size, etag, crc or None, parse_time(item.get("LastModified") or "")
    )


def _text(value: object) -> str:
    """A key, prefix or token, which goes into the next request. Raises: TypeError, ValueError."""
    if not isinstance(value, str):
        raise TypeError(f"not a text: {value!r}")
    if not value:
        raise ValueError("an empty text where there must be one")
    value.encode()
    return value
