"""From a request to the operation it asks for.

An operation is named by the method and by a sub-resource, a parameter of the query such as `uploads`. What a query
names and the local server does not have is answered with 501, so that it is never taken for something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tosnative.testing import appending, attributes, buckets, copying, links, listing, multipart, objects, renaming
from tosnative.testing.entities import Bucket
from tosnative.testing.errors import ServiceError, method_not_allowed, not_implemented
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.store import Store

_BUCKET_OPERATIONS: dict[tuple[str, str], Callable[[Store, Bucket, Request, ServerOptions], Response]] = {
    ("HEAD", ""): buckets.head,
    ("DELETE", ""): buckets.delete,
    ("GET", ""): listing.list_objects,
    ("GET", "list-type"): listing.list_objects_v2,
    ("GET", "versions"): listing.list_versions,
    ("GET", "uploads"): listing.list_uploads,
    ("GET", "location"): buckets.location,
    ("GET", "bucketInfo"): buckets.info,
    ("GET", "rename"): buckets.get_rename,
    ("PUT", "rename"): buckets.set_rename,
    ("DELETE", "rename"): buckets.set_rename,
    ("PUT", "storageClass"): buckets.set_storage_class,
    ("GET", "tagging"): attributes.bucket_tagging,
    ("PUT", "tagging"): attributes.bucket_tagging,
    ("DELETE", "tagging"): attributes.bucket_tagging,
    ("POST", "delete"): objects.delete_many,
}

_OBJECT_OPERATIONS: dict[tuple[str, str], Callable[[Store, Bucket, str, Request, ServerOptions], Response]] = {
    ("GET", ""): objects.get,
    ("HEAD", ""): objects.get,
    ("PUT", ""): objects.put,
    ("PUT", "copy"): copying.copy,
    ("DELETE", ""): objects.delete,
    ("GET", "stat"): objects.stat,
    ("POST", "metadata"): objects.set_meta,
    ("POST", "append"): appending.append,
    ("POST", "modify"): appending.modify,
    ("PUT", "rename"): renaming.rename,
    ("POST", "uploads"): multipart.begin,
    ("PUT", "uploadId"): multipart.put_part,
    ("POST", "uploadId"): multipart.complete,
    ("DELETE", "uploadId"): multipart.abort,
    ("GET", "uploadId"): multipart.list_parts,
    ("PUT", "symlink"): links.put,
    ("GET", "symlink"): links.get,
    ("GET", "tagging"): attributes.object_tagging,
    ("PUT", "tagging"): attributes.object_tagging,
    ("DELETE", "tagging"): attributes.object_tagging,
    ("GET", "acl"): attributes.object_acl,
    ("PUT", "acl"): attributes.object_acl,
    ("POST", "objectExpires"): attributes.set_expires,
    ("POST", "time"): attributes.set_time,
}

# Parameters that stand beside a sub-resource or modify the plain operation; any other without a value is taken for a
# sub-resource that the local server does not have.
_PARAMETERS = frozenset(
    {
        "prefix", "delimiter", "marker", "start-after", "continuation-token", "max-keys", "max-uploads", "max-parts",
        "key-marker", "upload-id-marker", "version-id-marker", "part-number-marker", "encoding-type", "reverse",
        "fetch-owner", "fetch-meta", "versionId", "partNumber", "offset", "name", "recursive", "skipTrash",
    }
)  # fmt: skip
_UNSUPPORTED_WITH_VALUE = ("x-tos-process", "x-tos-save-object", "x-tos-save-bucket")


def handle(store: Store, request: Request, options: ServerOptions) -> Response:
    """Carries out one request, which was already authenticated.

    Raises: ServiceError, and then nothing was changed.
    """
    if request.bucket is None:
        if request.method != "GET":
            raise method_not_allowed(f"The service itself takes GET only, not {request.method}.")
        return buckets.list_buckets(store, request, options)
    if "x-tos-callback" in request.headers:
        raise not_implemented("x-tos-callback")
    if request.key is None:
        return _on_bucket(store, request.bucket, request, options)
    return _on_object(store, store.bucket(request.bucket), request.key, request, options)


def _on_bucket(store: Store, name: str, request: Request, options: ServerOptions) -> Response:
    subresource = _subresource(request, (known for _, known in _BUCKET_OPERATIONS))
    if (request.method, subresource) == ("PUT", ""):
        return buckets.create(store, name, request, options)
    operation = _BUCKET_OPERATIONS.get((request.method, subresource))
    if operation is None:
        raise _not_there(request.method, subresource)
    return operation(store, store.bucket(name), request, options)


def _on_object(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    subresource = _subresource(request, (known for _, known in _OBJECT_OPERATIONS))
    if (request.method, subresource) == ("PUT", "") and "x-tos-copy-source" in request.headers:
        subresource = "copy"
    operation = _OBJECT_OPERATIONS.get((request.method, subresource))
    if operation is None:
        raise _not_there(request.method, subresource)
    _check_version(bucket, request)
    return operation(store, bucket, key, request, options)


def _subresource(request: Request, known: Iterable[str]) -> str:
    """The sub-resource that the query names, "" where it names none. Raises: ServiceError 501 for an unknown one."""
    for name in known:
        if name and name in request.query:
            return name
    for name, value in request.query.items():
        if name in _UNSUPPORTED_WITH_VALUE or (not value and name not in _PARAMETERS and _is_bare(name)):
            raise not_implemented(f"?{name}")
    return ""


def _is_bare(name: str) -> bool:
    return not name.lower().startswith(("x-tos-", "response-"))


def _not_there(method: str, subresource: str) -> ServiceError:
    if subresource in ("", "copy"):
        return method_not_allowed(f"{method} is no method of this resource.")
    return not_implemented(f"{method} ?{subresource}")


def _check_version(bucket: Bucket, request: Request) -> None:
    """Requires that a version, where one is named, is the only one there is. Raises: ServiceError 400 or 404."""
    version = request.query.get("versionId")
    if version is None:
        return
    if bucket.hierarchical:
        raise ServiceError(400, "InvalidArgument", "A bucket with directories has no versions.")
    if version not in ("", "null"):
        raise ServiceError(404, "NoSuchVersion", f"There is no version {version}.")
