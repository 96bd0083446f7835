"""Writes at the end of an object: AppendObject in flat buckets, ModifyObject in buckets with directories."""

from __future__ import annotations

from tosnative.testing import hns
from tosnative.testing.conditions import check_body, check_write
from tosnative.testing.content import Content
from tosnative.testing.crc64 import combine, crc64
from tosnative.testing.entities import APPENDABLE, NORMAL, Bucket, StoredObject
from tosnative.testing.errors import (
    invalid_argument,
    method_not_allowed,
    no_such_key,
    not_appendable,
    offset_mismatch,
)
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.store import Store
from tosnative.testing.templates import body_etag, template

_MAX_PIECES = 64


def append(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """AppendObject: at offset 0 it makes an appendable object, later the offset must be the object's size."""
    if bucket.hierarchical:
        raise method_not_allowed("A bucket with directories takes ?modify, not ?append.")
    offset = _checked_offset(request)
    item = bucket.objects.get(key)
    check_write(request.headers, key, item, options)
    if item is None:
        if offset:
            raise offset_mismatch(key, offset, 0)
        item = template(request.headers, key, bucket).changed(kind=APPENDABLE)
    elif item.kind != APPENDABLE:
        raise not_appendable(key)
    return _extend(store, bucket, item, request, options, "append")


def modify(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """ModifyObject: adds to the end of any file."""
    if not bucket.hierarchical:
        raise method_not_allowed("A flat bucket takes ?append, not ?modify.")
    _checked_offset(request)
    item = bucket.objects.get(key)
    if item is None:
        raise no_such_key(key)
    if item.kind not in (NORMAL, APPENDABLE):
        raise not_appendable(key)
    check_write(request.headers, key, item, options)
    return _extend(store, bucket, item, request, options, "modify")


def _checked_offset(request: Request) -> int:
    check_body(request)
    text = request.query.get("offset", "")
    if not text.isdigit():
        raise invalid_argument(f"offset is a number of bytes, not {text!r}.")
    return int(text)


def _extend(
    store: Store, bucket: Bucket, item: StoredObject, request: Request, options: ServerOptions, name: str
) -> Response:
    offset = int(request.query["offset"])
    if offset != item.size:
        raise offset_mismatch(item.key, offset, item.size)
    size = memoryview(request.body).nbytes
    crc = combine(item.crc64, crc64(memoryview(request.body)), size)
    etag = body_etag(f"{crc} {offset + size}".encode(), crc, options)
    with store.transaction():
        hns.make_parents(store, bucket, item.key)
        content = _joined(store, item.content + store.content(request.body))
        store.put(bucket, item.changed(content=content, crc64=crc, etag=etag, modified_ns=store.now_ns()))
    headers = {
        "ETag": f'"{etag}"',
        "x-tos-hash-crc64ecma": str(crc),
        f"x-tos-next-{name}-offset": str(offset + size),
    }
    return Response(200, headers)


def _joined(store: Store, content: Content) -> Content:
    """The content in one piece where it had become many small ones."""
    return store.content(content.tobytes()) if len(content.pieces) > _MAX_PIECES else content
