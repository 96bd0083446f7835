"""RenameObject, in flat buckets and in buckets with directories."""

from __future__ import annotations

from tosnative.testing import hns
from tosnative.testing.conditions import check_write
from tosnative.testing.entities import Bucket
from tosnative.testing.errors import invalid_argument, no_such_key
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.store import Store


def rename(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """Moves an object to another key of its bucket, where it replaces what was there; atomic.

    Raises: ServiceError 404 for a missing key, 409 where the request forbids to replace.
    """
    new_key = request.query.get("name", "")
    if not new_key:
        raise invalid_argument("A rename needs the new key in the parameter name.")
    item = hns.find(bucket, key) if bucket.hierarchical else bucket.objects.get(key)
    if item is None:
        raise no_such_key(key)
    if new_key == item.key:
        raise invalid_argument("The new key is the old one.")
    check_write(request.headers, new_key, bucket.objects.get(new_key), options)
    if bucket.hierarchical:
        make_missing = request.headers.get("x-tos-recursive-mkdir", "").lower() == "true"
        hns.rename(store, bucket, item, new_key, make_missing=make_missing)
    else:
        with store.transaction():
            store.put(bucket, item.changed(key=new_key))
            store.remove(bucket, key)
    return Response(204)
