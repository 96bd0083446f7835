"""Copies inside the service: of an object and, for multipart uploads, of a part. No bytes are copied."""

from __future__ import annotations

import re
from urllib.parse import unquote_plus

from tosnative.testing import hns
from tosnative.testing.answers import json_answer
from tosnative.testing.conditions import check_customer_key, check_read, check_write
from tosnative.testing.content import Content
from tosnative.testing.entities import DIRECTORY, NORMAL, SYMLINK, Bucket, StoredObject, json_time
from tosnative.testing.errors import ServiceError, invalid_argument, invalid_range, no_such_key, precondition_failed
from tosnative.testing.links import follow
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.store import Store
from tosnative.testing.templates import expires_days, parse_tags, storage_class, stored_headers

_RANGE = re.compile(r"bytes=(\d+)-(\d+)", re.ASCII)
_SOURCE_PREFIX = "x-tos-copy-source-"


def source_of(store: Store, request: Request) -> StoredObject:
    """The object that x-tos-copy-source names, as bucket/key or /bucket/key, percent-encoded.

    Raises: ServiceError 400, 404, or 412 where a condition on the source does not hold.
    """
    name = request.headers["x-tos-copy-source"].removeprefix("/").partition("?")[0]
    bucket_name, slash, key = unquote_plus(name).partition("/")
    if not slash or not key:
        raise invalid_argument("x-tos-copy-source is bucket/key.")
    source = store.bucket(bucket_name).objects.get(key)
    if source is None:
        if store.bucket(bucket_name).hierarchical and key + "/" in store.bucket(bucket_name).objects:
            raise _wrong_kind()
        raise no_such_key(key)
    if source.kind == DIRECTORY:
        raise _wrong_kind()
    check_customer_key(_customer_headers(request), source)
    if not check_read(request.headers, source, prefix=_SOURCE_PREFIX):
        raise precondition_failed(f"{_SOURCE_PREFIX}if-none-match or if-modified-since")
    return source


def _wrong_kind() -> ServiceError:
    return ServiceError(
        409, "InvalidSourceOrDestinationResourceType", "A directory cannot be copied as an object.", "0026-00000021"
    )


def _customer_headers(request: Request) -> dict[str, str]:
    """The headers that bring the source's key, under the names that bring a key elsewhere."""
    prefix = _SOURCE_PREFIX + "server-side-encryption-customer-"
    return {
        "x-tos-" + name.removeprefix(_SOURCE_PREFIX): value
        for name, value in request.headers.items()
        if name.startswith(prefix)
    }


def copy(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """CopyObject: the metadata goes along, or with REPLACE comes from the request; the ETag stays.

    The copy of a symlink is a symlink to the same target.

    Raises: ServiceError; then nothing was changed.
    """
    source = source_of(store, request)
    hns.check_put(bucket, key)
    if key.endswith("/") and bucket.hierarchical:
        raise _wrong_kind()
    check_write(request.headers, key, bucket.objects.get(key), options)
    item = _copied(source, key, bucket, request).changed(modified_ns=store.now_ns())
    with store.transaction():
        hns.make_parents(store, bucket, key)
        store.put(bucket, item)
    return json_answer({"ETag": item.quoted_etag, "LastModified": json_time(item.modified_ns)})


def _copied(source: StoredObject, key: str, bucket: Bucket, request: Request) -> StoredObject:
    headers = request.headers
    directive = headers.get("x-tos-metadata-directive", "COPY").upper()
    tagging = headers.get("x-tos-tagging-directive", "Copy").upper()
    if directive not in ("COPY", "REPLACE") or tagging not in ("COPY", "REPLACE"):
        raise invalid_argument("A directive is COPY or REPLACE.")
    return source.changed(
        key=key,
        kind=SYMLINK if source.kind == SYMLINK else NORMAL,
        headers=stored_headers(headers) if directive == "REPLACE" else source.headers,
        storage_class=storage_class(headers, bucket.storage_class),
        tags=parse_tags(headers.get("x-tos-tagging", "")) if tagging == "REPLACE" else source.tags,
        expires_days=expires_days(headers),
        acl=headers.get("x-tos-acl"),
        grants=None,
    )


def part_content(store: Store, source: StoredObject, request: Request, options: ServerOptions) -> Content:
    """What UploadPartCopy takes from its source: all of it, or the range that the request names.

    Raises: ServiceError 400 for a malformed range, 416 for one that starts after the end.
    """
    source, _ = follow(store, source)
    text = request.headers.get(_SOURCE_PREFIX + "range")
    if text is None:
        return source.content
    match = _RANGE.fullmatch(text)
    if match is None:
        raise invalid_argument(f"x-tos-copy-source-range is bytes=first-last, not {text}.")
    start, end = int(match[1]), int(match[2]) + 1
    if start >= min(end, source.size):
        raise invalid_range(text, source.size, options.range_error_code)
    return source.content.slice(start, end)
