"""What can be set on a bucket or an object beside its bytes: tags, access, life time, time of modification."""

from __future__ import annotations

import json
from typing import Any

from tosnative.testing import hns
from tosnative.testing.answers import json_answer
from tosnative.testing.entities import OWNER, Bucket, StoredObject
from tosnative.testing.errors import ServiceError, invalid_argument, malformed_body
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.objects import parse_json
from tosnative.testing.store import Store

Tags = tuple[tuple[str, str], ...]

_PUBLIC = {"public-read": ("GET", "HEAD"), "public-read-write": ("GET", "HEAD", "PUT", "POST", "DELETE")}


def allows_anonymous(store: Store, request: Request) -> bool:
    """Whether a canned ACL opens this request to everybody: the object's where it has one, else the bucket's."""
    bucket = store.buckets.get(request.bucket) if request.bucket else None
    if bucket is None or request.key is None:
        return bucket is not None and request.method in _PUBLIC.get(bucket.acl, ())
    item = bucket.objects.get(request.key)
    acl = item.acl if item is not None and item.acl not in (None, "default") else bucket.acl
    return request.method in _PUBLIC.get(acl or "", ())


def object_tagging(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """PutObjectTagging, GetObjectTagging and DeleteObjectTagging."""
    item = hns.find(bucket, key)
    if request.method == "GET":
        return _tag_set(item.tags)
    tags = _read_tags(request) if request.method == "PUT" else ()
    store.put(bucket, item.changed(tags=tags))
    return Response(200 if request.method == "PUT" else 204)


def bucket_tagging(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """PutBucketTagging, GetBucketTagging and DeleteBucketTagging. Raises: ServiceError 404 when there are none."""
    if request.method == "GET":
        if not bucket.tags:
            raise ServiceError(404, "NoSuchTagSet", f"The bucket {bucket.name} has no tags.")
        return _tag_set(bucket.tags)
    bucket.tags = _read_tags(request) if request.method == "PUT" else ()
    store.save_bucket(bucket)
    return Response(200 if request.method == "PUT" else 204)


def _tag_set(tags: Tags) -> Response:
    return json_answer({"TagSet": {"Tags": [{"Key": key, "Value": value} for key, value in tags]}})


def _read_tags(request: Request) -> Tags:
    try:
        return tuple((str(tag["Key"]), str(tag["Value"])) for tag in parse_json(request)["TagSet"]["Tags"])
    except (KeyError, TypeError) as error:
        raise malformed_body("The body needs TagSet, with Tags, a list of {Key, Value}.") from error


def object_acl(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """PutObjectACL and GetObjectACL. Canned ACLs count for anonymous access; grants are kept, not enforced."""
    item = hns.find(bucket, key)
    if request.method == "GET":
        return json_answer(json.loads(item.grants) if item.grants else _default_grants(item))
    stated = parse_json(request)
    if stated and not isinstance(stated.get("Owner"), dict):
        raise malformed_body("The body needs Owner and Grants.")
    grants = json.dumps(stated) if stated else None
    store.put(bucket, item.changed(acl=request.headers.get("x-tos-acl"), grants=grants))
    return Response(200)


def _default_grants(item: StoredObject) -> dict[str, Any]:
    full = {"Grantee": {**OWNER, "Type": "CanonicalUser"}, "Permission": "FULL_CONTROL"}
    everybody = {"Type": "Group", "Canned": "AllUsers"}
    granted = {"public-read": ("READ",), "public-read-write": ("READ", "WRITE")}.get(item.acl or "", ())
    return {"Owner": OWNER, "Grants": [full, *({"Grantee": everybody, "Permission": name} for name in granted)]}


def set_expires(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """SetObjectExpires: the life time is reported; the local server deletes nothing on its own."""
    item = hns.find(bucket, key)
    days = parse_json(request).get("ObjectExpires")
    if not isinstance(days, int) or days < 0:
        raise malformed_body("The body needs ObjectExpires, a number of days or 0 for no end.")
    store.put(bucket, item.changed(expires_days=days or None))
    return Response(200)


def set_time(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """SetObjectTime: the time of modification, in whole seconds plus nanoseconds."""
    item = hns.find(bucket, key)
    names = ("x-modify-timestamp", "x-modify-timestamp-ns")
    seconds, rest = (request.headers.get(name, "0") for name in names)
    if not seconds.isdigit() or not rest.isdigit():
        raise invalid_argument("The time of modification is two numbers, seconds and nanoseconds.")
    store.put(bucket, item.changed(modified_ns=int(seconds) * 1_000_000_000 + int(rest)))
    return Response(200)
