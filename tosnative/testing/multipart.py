"""Multipart uploads: begin, parts, complete, abort, and the lists of parts and of uploads."""

from __future__ import annotations

import hashlib
import uuid
from functools import reduce
from typing import Any

from tosnative.testing import hns
from tosnative.testing.answers import json_answer, written
from tosnative.testing.conditions import check_body, check_write
from tosnative.testing.content import Content
from tosnative.testing.copying import part_content, source_of
from tosnative.testing.crc64 import combine, crc64
from tosnative.testing.entities import OWNER, Bucket, Part, Upload, json_time
from tosnative.testing.errors import ServiceError, invalid_argument, malformed_body
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.objects import parse_json
from tosnative.testing.store import Store
from tosnative.testing.templates import body_etag, multipart_etag, template

_MAX_PART_NUMBER = 10_000
_MAX_PARTS_LISTED = 1000


def begin(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """CreateMultipartUpload."""
    item = template(request.headers, key, bucket)
    hns.check_put(bucket, key)
    check_write(request.headers, key, bucket.objects.get(key), options)
    upload = Upload(uuid.uuid4().hex, store.now_ns(), item)
    store.add_upload(bucket, upload)
    answer = {"Bucket": bucket.name, "Key": key, "UploadId": upload.upload_id}
    if "encoding-type" in request.query:
        answer["EncodingType"] = request.query["encoding-type"]
    return json_answer(answer)


def put_part(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """UploadPart, and UploadPartCopy where the request names a source."""
    number = _part_number(request)
    upload = store.upload(bucket, key, request.query.get("uploadId", ""))
    if "x-tos-copy-source" in request.headers:
        return _copy_part(store, bucket, upload, number, request, options)
    check_body(request)
    crc = crc64(memoryview(request.body))
    etag = body_etag(request.body, crc, options)
    part = Part(number, store.content(request.body), etag, crc, store.now_ns())
    store.put_part(bucket, upload, part)
    return Response(200, {"ETag": f'"{etag}"', "x-tos-hash-crc64ecma": str(crc)})


def _part_number(request: Request) -> int:
    text = request.query.get("partNumber", "")
    if not text.isdigit() or not 1 <= int(text) <= _MAX_PART_NUMBER:
        raise invalid_argument(f"A part number is 1 to {_MAX_PART_NUMBER}, not {text!r}.")
    return int(text)


def _copy_part(
    store: Store, bucket: Bucket, upload: Upload, number: int, request: Request, options: ServerOptions
) -> Response:
    content = part_content(store, source_of(store, request), request, options)
    crc = reduce(lambda value, view: crc64(view, value), content.views(), 0)
    part = Part(number, content, _content_etag(content, crc, options), crc, store.now_ns())
    store.put_part(bucket, upload, part)
    return json_answer({"ETag": f'"{part.etag}"', "LastModified": json_time(part.modified_ns)})


def _content_etag(content: Content, crc: int, options: ServerOptions) -> str:
    if content.size > options.etag_md5_max_bytes:
        return f"{crc:016x}{content.size:016x}"
    return hashlib.md5(content.tobytes(), usedforsecurity=False).hexdigest()


def complete(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """CompleteMultipartUpload: the object appears under its key and the upload is gone, or neither.

    Raises: ServiceError 404 NoSuchUpload, 400 InvalidPart, InvalidPartOrder or EntityTooSmall, 409, 412.
    """
    upload = store.upload(bucket, key, request.query["uploadId"])
    parts = _chosen_parts(upload, request, options)
    if any(part.content.size < options.min_part_size_bytes for part in parts[:-1]):
        least = options.min_part_size_bytes
        raise ServiceError(400, "EntityTooSmall", f"Every part but the last must have at least {least} bytes.")
    hns.check_put(bucket, key)
    check_write(request.headers, key, bucket.objects.get(key), options)
    crc = reduce(lambda value, part: combine(value, part.crc64, part.content.size), parts, 0)
    item = upload.template.changed(
        content=Content(tuple(piece for part in parts for piece in part.content.pieces)),
        crc64=crc,
        etag=multipart_etag(parts, options),
        modified_ns=store.now_ns(),
    )
    with store.transaction():
        hns.make_parents(store, bucket, key)
        store.put(bucket, item)
        store.drop_upload(bucket, upload)
    answer = {
        "Bucket": bucket.name,
        "Key": key,
        "ETag": item.quoted_etag,
        "Location": f"{bucket.name}.{request.headers.get('host', 'localhost')}/{key}",
        "CompletedParts": [{"PartNumber": part.number, "ETag": f'"{part.etag}"'} for part in parts],
    }
    return json_answer(answer, written(item))


def _chosen_parts(upload: Upload, request: Request, options: ServerOptions) -> list[Part]:
    """The parts to make the object of, by number: all of them, or those that the body lists."""
    if request.headers.get("x-tos-complete-all", "").lower() == "yes":
        if memoryview(request.body).nbytes:
            raise malformed_body("x-tos-complete-all goes with an empty body.")
        chosen = [upload.parts[number] for number in sorted(upload.parts)]
    else:
        listed = _listed_parts(request)
        numbers = [number for number, _ in listed]
        if not options.unsorted_parts and numbers != sorted(numbers):
            raise ServiceError(400, "InvalidPartOrder", "The parts are not listed by ascending number.")
        chosen = [_checked_part(upload, number, etag) for number, etag in sorted(dict(listed).items())]
    if not chosen:
        raise ServiceError(400, "InvalidPart", "An object needs at least one part.")
    return chosen


def _listed_parts(request: Request) -> list[tuple[int, str]]:
    items = parse_json(request).get("Parts")
    if not isinstance(items, list):
        raise malformed_body("The body needs Parts, a list of {PartNumber, ETag}.")
    try:
        return [(int(item["PartNumber"]), str(item["ETag"])) for item in items]
    except (KeyError, TypeError, ValueError) as error:
        raise malformed_body("The body needs Parts, a list of {PartNumber, ETag}.") from error


def _checked_part(upload: Upload, number: int, etag: str) -> Part:
    part = upload.parts.get(number)
    if part is None or part.etag != etag.strip('"'):
        raise ServiceError(400, "InvalidPart", f"Part {number} was not uploaded, or its ETag is another one.")
    return part


def abort(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """AbortMultipartUpload."""
    store.drop_upload(bucket, store.upload(bucket, key, request.query["uploadId"]))
    return Response(204)


def list_parts(store: Store, bucket: Bucket, key: str, request: Request, options: ServerOptions) -> Response:
    """ListParts, by number; `part-number-marker` is exclusive."""
    upload = store.upload(bucket, key, request.query["uploadId"])
    limit = min(_number(request, "max-parts", _MAX_PARTS_LISTED), _MAX_PARTS_LISTED)
    marker = _number(request, "part-number-marker", 0)
    numbers = [number for number in sorted(upload.parts) if number > marker]
    page = [upload.parts[number] for number in numbers[:limit]]
    answer: dict[str, Any] = {
        "Bucket": bucket.name,
        "Key": key,
        "UploadId": upload.upload_id,
        "PartNumberMarker": marker,
        "NextPartNumberMarker": page[-1].number if page else marker,
        "MaxParts": limit,
        "IsTruncated": len(numbers) > len(page),
        "StorageClass": upload.template.storage_class,
        "Owner": OWNER,
        "Parts": [
            {
                "PartNumber": part.number,
                "LastModified": json_time(part.modified_ns),
                "ETag": f'"{part.etag}"',
                "Size": part.content.size,
            }
            for part in page
        ],
    }
    return json_answer(answer)


def _number(request: Request, name: str, default: int) -> int:
    text = request.query.get(name, "") or str(default)
    if not text.isdigit():
        raise invalid_argument(f"{name} is a number, not {text!r}.")
    return int(text)
