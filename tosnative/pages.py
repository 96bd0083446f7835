"""What listings answer, and what the SDK's batch calls take, as values."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from tosnative.credential_files import parse_time
from tosnative.errors import TosError, TosIntegrityError
from tosnative.meta import TosObjectMeta

__all__ = ["DeletedObject", "ListPage", "UploadInfo", "parse_page"]


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
        objects = [
            TosObjectMeta(
                bucket,
                item["Key"],
                int(item["Size"]),
                item["ETag"].strip('"'),
                int(item.get("HashCrc64ecma") or 0) or None,
                parse_time(item.get("LastModified") or ""),
            )
            for item in page.get("Contents") or ()
        ]
        prefixes = [str(item["Prefix"]) for item in page.get("CommonPrefixes") or ()]
        token = str(page["NextContinuationToken"]) if page.get("IsTruncated") else None
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        text = f"the service's answer is no listing ({type(error).__name__}: {error})"
        raise TosIntegrityError(TosError(text, operation="LIST", bucket=bucket, key=prefix)) from error
    return ListPage(objects, prefixes, token)
