"""Operations on buckets, and the list of them."""

from __future__ import annotations

import re

from tosnative.testing.answers import json_answer
from tosnative.testing.entities import OWNER, Bucket, json_time
from tosnative.testing.errors import ServiceError, invalid_argument
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.objects import parse_json
from tosnative.testing.store import Store
from tosnative.testing.templates import parse_tags, storage_class

_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{1,61})[a-z0-9]", re.ASCII)
_REDUNDANCIES = ("single-az", "multi-az")


def list_buckets(store: Store, request: Request, options: ServerOptions) -> Response:
    """ListBuckets, of one project or one type where the request says so."""
    project = request.headers.get("x-tos-project-name")
    kind = request.headers.get("x-tos-bucket-type")
    listed = [
        {
            "Name": bucket.name,
            "CreationDate": json_time(bucket.created_ns),
            "Location": options.region,
            "ExtranetEndpoint": _endpoint(request),
            "IntranetEndpoint": _endpoint(request),
            "ProjectName": bucket.project_name,
            "BucketType": bucket.type_name,
        }
        for _, bucket in sorted(store.buckets.items())
        if (project is None or project == bucket.project_name) and (kind is None or kind == bucket.type_name)
    ]
    return json_answer({"Buckets": listed, "Owner": {"ID": OWNER["ID"], "Name": OWNER["DisplayName"]}})


def _endpoint(request: Request) -> str:
    """The name by which the client reached the service, without the bucket."""
    host = request.headers.get("host", "localhost")
    return host.removeprefix(f"{request.bucket}.") if request.bucket else host


def create(store: Store, name: str, request: Request, options: ServerOptions) -> Response:
    """CreateBucket. Raises: ServiceError 400 for what the service refuses, 409 for a bucket that exists."""
    headers = request.headers
    if _NAME.fullmatch(name) is None:
        raise ServiceError(400, "InvalidBucketName", "A bucket's name is 3 to 63 of a-z, 0-9 and inner hyphens.")
    kind = headers.get("x-tos-bucket-type", "fns")
    redundancy = headers.get("x-tos-az-redundancy", _REDUNDANCIES[0])
    if kind not in ("fns", "hns") or redundancy not in _REDUNDANCIES:
        raise invalid_argument("A bucket is fns or hns, and single-az or multi-az.")
    bucket = Bucket(
        name=name,
        created_ns=store.now_ns(),
        hierarchical=kind == "hns",
        storage_class=storage_class(headers, "STANDARD"),
        az_redundancy=redundancy,
        project_name=headers.get("x-tos-project-name", "default"),
        acl=headers.get("x-tos-acl", "private"),
        tags=parse_tags(headers.get("x-tos-tagging", "")),
    )
    if bucket.hierarchical and (redundancy == "multi-az" or bucket.storage_class == "IA"):
        raise invalid_argument("A bucket with directories is single-az and not IA.")
    store.create_bucket(bucket)
    return Response(200, {"Location": f"/{name}", **_described(bucket, options)})


def head(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """HeadBucket."""
    return Response(200, _described(bucket, options))


def _described(bucket: Bucket, options: ServerOptions) -> dict[str, str]:
    return {
        "x-tos-bucket-region": options.region,
        "x-tos-storage-class": bucket.storage_class,
        "x-tos-az-redundancy": bucket.az_redundancy,
        "x-tos-project-name": bucket.project_name,
        "x-tos-bucket-type": bucket.type_name,
    }


def delete(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """DeleteBucket; only an empty bucket goes."""
    store.delete_bucket(bucket.name)
    return Response(204)


def location(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """GetBucketLocation."""
    endpoint = _endpoint(request)
    return json_answer({"Region": options.region, "ExtranetEndpoint": endpoint, "IntranetEndpoint": endpoint})


def info(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """GetBucketInfo."""
    endpoint = _endpoint(request)
    described = {
        "Name": bucket.name,
        "Owner": OWNER,
        "CreationDate": json_time(bucket.created_ns),
        "StorageClass": bucket.storage_class,
        "ProjectName": bucket.project_name,
        "Type": bucket.type_name,
        "Location": options.region,
        "AzRedundancy": bucket.az_redundancy,
        "ExtranetEndpoint": endpoint,
        "IntranetEndpoint": endpoint,
    }
    return json_answer({"Bucket": described})


def set_rename(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """PutBucketRename and, without a body, DeleteBucketRename. The flag is reported; renaming works either way."""
    bucket.rename_enabled = request.method == "PUT" and parse_json(request).get("RenameEnable") is True
    store.save_bucket(bucket)
    return Response(200 if request.method == "PUT" else 204)


def get_rename(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """GetBucketRename."""
    return json_answer({"RenameEnable": bucket.rename_enabled})


def set_storage_class(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """PutBucketStorageClass: the default for objects put from now on."""
    bucket.storage_class = storage_class(request.headers, "STANDARD")
    store.save_bucket(bucket)
    return Response(200)
