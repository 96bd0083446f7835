"""What listings answer, and what the SDK's batch calls take, as values."""

from __future__ import annotations

from dataclasses import dataclass, field

from tosnative.columns import PageColumns, read_columns
from tosnative.errors import TosError, TosIntegrityError
from tosnative.meta import TosObjectMeta
from tosnative.quoting import one_line

__all__ = ["DeletedObject", "ListPage", "UploadInfo", "no_listing", "page_of", "parse_columns", "parse_page"]


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


def parse_columns(bucket: str, document: bytes | bytearray, prefix: str = "") -> PageColumns:
    """Read the answer of a finished listing request. Raises: TosIntegrityError where it is no listing."""
    try:
        return read_columns(document)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError) as error:
        raise no_listing(bucket, prefix, f"{type(error).__name__}: {str(error)[:200]}") from error


def parse_page(bucket: str, document: bytes | bytearray, prefix: str = "") -> ListPage:
    """The same with an object for each key. Raises: TosIntegrityError where it is no listing."""
    return page_of(bucket, parse_columns(bucket, document, prefix))


def page_of(bucket: str, page: PageColumns) -> ListPage:
    """A page with an object for each key."""
    rows = zip(page.keys, page.sizes, page.etags, page.crcs, page.modified, strict=True)
    objects = [
        TosObjectMeta(bucket, key, size, etag, crc or None, moment if moment == moment else None)  # NaN is unknown
        for key, size, etag, crc, moment in rows
    ]
    return ListPage(objects, page.prefixes, page.token)


def no_listing(bucket: str, prefix: str, why: str) -> TosIntegrityError:
    """What a listing raises when its answer is none."""
    return TosIntegrityError(
        TosError(
            f"the service's answer is no listing ({one_line(why, 300)})", operation="LIST", bucket=bucket, key=prefix
        )
    )
