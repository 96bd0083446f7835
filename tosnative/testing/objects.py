"""Put, get, head, delete, metadata and status of one object, and delete of many."""

from __future__ import annotations

import json
from typing import Any

from tosnative.testing import hns
from tosnative.testing.answers import described, json_answer, written
from tosnative.testing.conditions import byte_range, check_body, check_customer_key, check_read, check_write
from tosnative.testing.content import Content
from tosnative.testing.crc64 import crc64
from tosnative.testing.entities import DIRECTORY, Bucket, StoredObject, json_time
from tosnative.testing.errors import ServiceError, malformed_body
from tosnative.testing.links import follow
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.store import Store
from tosnative.testing.templates import body_etag, stored_headers, template

_OVERRIDES = {
    f"response-{name}": name
    for name in (
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "expires",
    )
}
_MAX_DELETES = 1000


def put(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """PutObject. Nothing is stored unless every check passed."""
    check_body(request)
    item = template(request.headers, key, bucket)
    hns.check_put(bucket, key, request.body)
    check_write(request.headers, key, bucket.objects.get(key), options)
    if bucket.hierarchical and key.endswith("/"):
        item = item.changed(kind=DIRECTORY)
    crc = crc64(memoryview(request.body))
    etag = body_etag(request.body, crc, options)
    with store.transaction():
        hns.make_parents(store, bucket, key)
        content = store.content(request.body)
        item = item.changed(content=content, etag=etag, crc64=crc, modified_ns=store.now_ns())
        store.put(bucket, item)
    return Response(200, written(item))


def get(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """GetObject and HeadObject."""
    link = hns.find(bucket, key)
    item, extra = follow(store, link)
    check_customer_key(request.headers, item)
    headers = described(item) | extra
    if not check_read(request.headers, item):
        return Response(304, headers)
    for parameter, name in _OVERRIDES.items():
        if parameter in request.query:
            headers[name] = request.query[parameter]
    span = byte_range(request.headers.get("range"), item.size, options.range_error_code)
    if span is None or options.crc_on_ranges:
        headers["x-tos-hash-crc64ecma"] = str(item.crc64)
    if span is None:
        return Response(200, headers, _buffers(item.content))
    start, end = span
    headers["Content-Range"] = f"bytes {start}-{end - 1}/{item.size}"
    return Response(206, headers, _buffers(item.content.slice(start, end)))


def _buffers(content: Content) -> memoryview | list[memoryview] | bytes:
    views = content.views()
    if len(views) == 1:
        return views[0]
    return views or b""


def delete(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """DeleteObject; deleting what is not there succeeds."""
    _delete(store, bucket, key, recursive=request.query.get("recursive", "").lower() == "true")
    return Response(204)


def _delete(store: Store, bucket: Bucket, key: str, *, recursive: bool) -> None:
    if bucket.hierarchical:
        hns.delete(store, bucket, key, recursive=recursive)
    elif key in bucket.objects:
        store.remove(bucket, key)


def delete_many(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """DeleteMultiObjects: each key on its own, in the order given."""
    check_body(request)
    body = parse_json(request)
    items = body.get("Objects")
    if not isinstance(items, list) or not all(
        isinstance(item, dict) and isinstance(item.get("Key"), str) for item in items
    ):
        raise malformed_body("The body needs Objects, a list of {Key}.")
    if len(items) > _MAX_DELETES:
        raise malformed_body(f"At most {_MAX_DELETES} keys are deleted at once, not {len(items)}.")
    recursive = request.query.get("recursive", "").lower() == "true"
    deleted, failed = [], []
    for key in (item["Key"] for item in items):
        try:
            _delete(store, bucket, key, recursive=recursive)
        except ServiceError as error:
            failed.append({"Key": key, "VersionId": "", "Code": error.code, "Message": error.message})
        else:
            deleted.append({"Key": key})
    return json_answer({"Deleted": [] if body.get("Quiet") is True else deleted, "Error": failed})


def parse_json(request: Request) -> dict[str, Any]:
    """The body as a JSON object; an empty one is {}. Raises: ServiceError 400."""
    try:
        value = json.loads(bytes(request.body)) if memoryview(request.body).nbytes else {}
    except ValueError as error:
        raise malformed_body(f"The body is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise malformed_body("The body is not a JSON object.")
    return value


def set_meta(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """SetObjectMeta: the request's headers take the place of all stored ones; bytes and ETag stay."""
    item = hns.find(bucket, key)
    kept = {name: value for name, value in item.headers.items() if name.startswith("x-tos-server-side-encryption")}
    headers = stored_headers(request.headers) | kept
    store.put(bucket, item.changed(headers=headers, modified_ns=store.now_ns()))
    return Response(200)


def stat(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """GetFileStatus of a flat bucket."""
    item = hns.find(bucket, key) if bucket.hierarchical else _first(bucket, key, options)
    return json_answer(
        {
            "Key": item.key,
            "Size": item.size,
            "LastModified": json_time(item.modified_ns),
            "CRC64": str(item.crc64),
            "ETag": item.quoted_etag,
            "Type": item.kind,
        }
    )


def _first(bucket: Bucket, key: str, options: ServerOptions) -> StoredObject:
    return hns.first_below(bucket, key, bare_name=options.stat_matches_directory)
