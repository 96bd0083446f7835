"""Symbolic links between objects."""

from __future__ import annotations

from urllib.parse import quote, unquote

from tosnative.testing import hns
from tosnative.testing.answers import described
from tosnative.testing.conditions import check_write
from tosnative.testing.entities import SYMLINK, Bucket, StoredObject, header_time
from tosnative.testing.errors import ServiceError, invalid_argument
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.store import Store
from tosnative.testing.templates import body_etag, template


def put(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """PutSymlink; the target need not exist."""
    text = request.headers.get("x-tos-symlink-target")
    if not text:
        raise invalid_argument("A symlink needs the header x-tos-symlink-target.")
    check_write(request.headers, key, bucket.objects.get(key), options)
    hns.check_put(bucket, key)
    target = (request.headers.get("x-tos-symlink-bucket", bucket.name), unquote(text))
    etag = body_etag("\0".join(target).encode(), 0, options)
    item = template(request.headers, key, bucket).changed(
        kind=SYMLINK, target=target, etag=etag, modified_ns=store.now_ns()
    )
    with store.transaction():
        hns.make_parents(store, bucket, key)
        store.put(bucket, item)
    return Response(200, {"ETag": item.quoted_etag})


def get(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """GetSymlink."""
    item = hns.find(bucket, key)
    if item.target is None:
        raise invalid_argument(f"The object {key} is not a symlink.")
    target_bucket, target_key = item.target
    headers = {
        "x-tos-symlink-target": quote(target_key, safe="/"),
        "ETag": item.quoted_etag,
        "Last-Modified": header_time(item.modified_ns),
    }
    if target_bucket != bucket.name:
        headers["x-tos-symlink-bucket"] = target_bucket
    return Response(200, headers)


def follow(store: Store, item: StoredObject) -> tuple[StoredObject, dict[str, str]]:
    """The object to read for a key, and the headers that say it was reached by a link. One step only.

    Raises: ServiceError 400 when a link leads nowhere.
    """
    if item.target is None:
        return item, {}
    target_bucket, target_key = item.target
    bucket = store.buckets.get(target_bucket)
    target = bucket.objects.get(target_key) if bucket else None
    if target is None or target.target is not None:
        raise ServiceError(400, "InvalidSymlink", f"The target {target_key} is no object.", "0015-00000008")
    return target, {
        "x-tos-object-type": SYMLINK,
        "x-tos-symlink-target-size": str(target.size),
        "Last-Modified": described(item)["Last-Modified"],
    }
