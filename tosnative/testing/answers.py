"""Answers that several operations give: JSON, and the headers that describe an object."""

from __future__ import annotations

import json
from typing import Any

from tosnative.testing.entities import APPENDABLE, DIRECTORY, SYMLINK, StoredObject, header_time
from tosnative.testing.messages import Response

_DAY_NS = 86_400 * 1_000_000_000


def json_answer(value: Any, headers: dict[str, str] | None = None) -> Response:
    """A 200 with a JSON body."""
    body = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    return Response(200, {"Content-Type": "application/json", **(headers or {})}, body)


def written(item: StoredObject) -> dict[str, str]:
    """The headers that answer a write of an object's bytes."""
    return {"ETag": item.quoted_etag, "x-tos-hash-crc64ecma": str(item.crc64)}


def described(item: StoredObject) -> dict[str, str]:
    """The headers by which HEAD and GET describe an object, its length and checksum not among them."""
    headers = {
        **item.headers,
        "ETag": item.quoted_etag,
        "Last-Modified": header_time(item.modified_ns),
        "x-tos-last-modified-ns": str(item.modified_ns % 1_000_000_000),
        "x-tos-storage-class": item.storage_class,
        "Accept-Ranges": "bytes",
    }
    if item.kind in (APPENDABLE, SYMLINK):
        headers["x-tos-object-type"] = item.kind
    elif item.kind == DIRECTORY:
        headers["x-tos-directory"] = "true"
    if item.tags:
        headers["x-tos-tagging-count"] = str(len(item.tags))
    if item.expires_days:
        expiry = header_time(item.modified_ns + item.expires_days * _DAY_NS)
        headers["x-tos-expiration"] = f'expiry-date="{expiry}", rule-id="object-expires"'
    return headers
