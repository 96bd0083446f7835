"""Lists of objects, versions and unfinished uploads, page by page."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any
from urllib.parse import quote_plus

from tosnative.testing.answers import json_answer
from tosnative.testing.entities import DIRECTORY, OWNER, Bucket, StoredObject, Upload, json_time
from tosnative.testing.errors import ServiceError, invalid_argument
from tosnative.testing.keyindex import KeyIndex, after_prefix
from tosnative.testing.messages import Request, Response, ServerOptions
from tosnative.testing.store import Store

_MAX_KEYS = 1000


@dataclass(frozen=True, slots=True)
class Ask:
    """What a list request asks for. `after` is exclusive; "" means from the beginning."""

    prefix: str
    delimiter: str
    after: str
    limit: int
    reverse: bool
    encode: Callable[[str], str]


@dataclass(slots=True)
class Page:
    """One page: keys, rolled-up prefixes, and, where there is more, the last of either (else "")."""

    keys: list[str] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    next_marker: str = ""


def page_of(index: KeyIndex, ask: Ask) -> Page:
    """The page that `ask` describes; a rolled-up prefix counts as one entry.

    The search for the delimiter starts behind the prefix. A marker that is a rolled-up prefix skips all below it.
    """
    page = Page()
    walk = _backward(index, ask) if ask.reverse else _forward(index, ask)
    last = ""
    for name, is_prefix in walk:
        if len(page.keys) + len(page.prefixes) == ask.limit:
            page.next_marker = last
            break
        (page.prefixes if is_prefix else page.keys).append(name)
        last = name
    return page


def rolled_up(key: str, prefix: str, delimiter: str) -> str | None:
    """The common prefix that stands for a key, or None where the key stands for itself."""
    if not delimiter:
        return None
    found = key.find(delimiter, len(prefix))
    return None if found < 0 else key[: found + len(delimiter)]


def _forward(index: KeyIndex, ask: Ask) -> Iterator[tuple[str, bool]]:
    """The entries after the marker; jumps over what a prefix stands for instead of walking through it."""
    start, inclusive = ask.prefix, True
    if ask.after and rolled_up(ask.after, ask.prefix, ask.delimiter) == ask.after:
        start = max(after_prefix(ask.after), ask.prefix)
    elif ask.after and ask.after >= ask.prefix:
        start, inclusive = ask.after, False
    while True:
        jump = None
        for key in index.from_key(start, inclusive=inclusive):
            if not key.startswith(ask.prefix):
                return
            common = rolled_up(key, ask.prefix, ask.delimiter)
            if common is None:
                yield key, False
                continue
            yield common, True
            jump = after_prefix(common)
            break
        if jump is None:
            return
        start, inclusive = jump, True


def _backward(index: KeyIndex, ask: Ask) -> Iterator[tuple[str, bool]]:
    keys = list(takewhile(lambda key: key.startswith(ask.prefix), index.from_key(ask.prefix)))
    seen = None
    for key in reversed(keys):
        name = rolled_up(key, ask.prefix, ask.delimiter)
        entry = name or key
        if (ask.after and entry >= ask.after) or entry == seen:
            continue
        seen = entry
        yield entry, name is not None


def ask_of(request: Request, after: str, limit_name: str = "max-keys") -> Ask:
    """The common parameters of list requests. Raises: ServiceError 400 InvalidArgument."""
    query = request.query
    limit = query.get(limit_name, "") or str(_MAX_KEYS)
    if not limit.isdigit():
        raise invalid_argument(f"{limit_name} is a number, not {limit!r}.")
    encoding = query.get("encoding-type", "")
    if encoding not in ("", "url"):
        raise invalid_argument(f"encoding-type is url, not {encoding!r}.")
    return Ask(
        prefix=query.get("prefix", ""),
        delimiter=query.get("delimiter", ""),
        after=after,
        limit=min(int(limit), _MAX_KEYS),
        reverse=query.get("reverse", "").lower() == "true",
        encode=quote_plus if encoding else str,
    )


def list_objects(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """ListObjects, the first version: pages by marker."""
    ask = ask_of(request, request.query.get("marker", ""))
    _check_hns(bucket, ask, options)
    page = page_of(bucket.keys, ask)
    answer = _common(bucket, request, ask, page) | {"Marker": ask.encode(ask.after)}
    if page.next_marker:
        answer["NextMarker"] = ask.encode(page.next_marker)
    return json_answer(answer)


def list_objects_v2(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """ListObjectsType2: pages by token, which wins over start-after."""
    token, start_after = request.query.get("continuation-token", ""), request.query.get("start-after", "")
    ask = ask_of(request, _read_token(token) if token else start_after)
    _check_hns(bucket, ask, options)
    page = page_of(bucket.keys, ask)
    answer = _common(bucket, request, ask, page)
    answer["KeyCount"] = len(answer["Contents"]) + len(answer["CommonPrefixes"])
    if start_after:
        answer["StartAfter"] = ask.encode(start_after)
    if token:
        answer["ContinuationToken"] = token
    if page.next_marker:
        answer["NextContinuationToken"] = _make_token(page.next_marker)
    return json_answer(answer)


def _make_token(marker: str) -> str:
    return base64.urlsafe_b64encode(marker.encode()).decode()


def _read_token(token: str) -> str:
    try:
        return base64.b64decode(token, altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeDecodeError) as error:
        raise invalid_argument("The continuation token is none that this server gave.") from error


def _check_hns(bucket: Bucket, ask: Ask, options: ServerOptions) -> None:
    if not bucket.hierarchical:
        return
    if ask.delimiter not in ("", "/"):
        raise ServiceError(400, "InvalidDelimiter", "A bucket with directories is listed with the delimiter / only.")
    if not ask.delimiter and not options.flat_list_on_hns:
        raise invalid_argument("A bucket with directories is listed with the delimiter /.")


def _common(bucket: Bucket, request: Request, ask: Ask, page: Page) -> dict[str, Any]:
    with_meta = request.query.get("fetch-meta", "").lower() == "true"
    items = (bucket.objects[key] for key in page.keys)
    contents = [_entry(item, ask, with_meta) for item in items if not _is_itself(item, ask)]
    answer: dict[str, Any] = {
        "Name": bucket.name,
        "Prefix": ask.encode(ask.prefix),
        "MaxKeys": ask.limit,
        "Delimiter": ask.encode(ask.delimiter),
        "IsTruncated": bool(page.next_marker),
        "CommonPrefixes": [_prefix_entry(bucket, prefix, ask) for prefix in page.prefixes],
        "Contents": contents,
    }
    if request.query.get("encoding-type"):
        answer["EncodingType"] = request.query["encoding-type"]
    return answer


def _is_itself(item: StoredObject, ask: Ask) -> bool:
    """Whether this is the directory that is listed, which is not among its own contents."""
    return item.kind == DIRECTORY and bool(ask.delimiter) and item.key == ask.prefix


def _prefix_entry(bucket: Bucket, prefix: str, ask: Ask) -> dict[str, str]:
    entry = {"Prefix": ask.encode(prefix)}
    directory = bucket.objects.get(prefix) if bucket.hierarchical else None
    if directory:
        entry["LastModified"] = json_time(directory.modified_ns)
    return entry


def _entry(item: StoredObject, ask: Ask, with_meta: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "Key": ask.encode(item.key),
        "LastModified": json_time(item.modified_ns),
        "ETag": item.quoted_etag,
        "Size": item.size,
        "Owner": OWNER,
        "StorageClass": item.storage_class,
        "HashCrc64ecma": str(item.crc64),
        "Type": item.kind,
    }
    if with_meta and item.meta:
        entry["UserMeta"] = [{"Key": name, "Value": value} for name, value in item.meta.items()]
    return entry


def list_versions(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """ListObjectVersions of a bucket without versioning: every object is its only version, `null`."""
    ask = ask_of(request, request.query.get("key-marker", ""))
    page = page_of(bucket.keys, ask)
    answer = _common(bucket, request, ask, page)
    versions = [entry | {"VersionId": "null", "IsLatest": True} for entry in answer.pop("Contents")]
    answer |= {"Versions": versions, "DeleteMarkers": [], "KeyMarker": ask.encode(ask.after), "VersionIdMarker": ""}
    if page.next_marker:
        answer |= {"NextKeyMarker": ask.encode(page.next_marker), "NextVersionIdMarker": "null"}
    return json_answer(answer)


def list_uploads(store: Store, bucket: Bucket, request: Request, options: ServerOptions) -> Response:
    """ListMultipartUploads, by key, then by upload id.

    With both markers the page starts after that upload, with the key marker alone after that key.
    """
    ask = ask_of(request, request.query.get("key-marker", ""), "max-uploads")
    id_marker = request.query.get("upload-id-marker", "") if ask.after else ""
    entries = _upload_entries(bucket.uploads.values(), ask, id_marker)
    page, more = entries[: ask.limit], len(entries) > ask.limit
    answer: dict[str, Any] = {
        "Bucket": bucket.name,
        "Prefix": ask.encode(ask.prefix),
        "KeyMarker": ask.encode(ask.after),
        "UploadIdMarker": id_marker,
        "MaxUploads": ask.limit,
        "Delimiter": ask.encode(ask.delimiter),
        "IsTruncated": more,
        "CommonPrefixes": [{"Prefix": ask.encode(name)} for name, upload in page if upload is None],
        "Uploads": [_upload_entry(upload, ask) for _, upload in page if upload is not None],
    }
    if request.query.get("encoding-type"):
        answer["EncodingType"] = request.query["encoding-type"]
    if more and page:
        name, upload = page[-1]
        answer |= {"NextKeyMarker": ask.encode(name), "NextUploadIdMarker": upload.upload_id if upload else ""}
    return json_answer(answer)


def _upload_entries(uploads: Iterable[Upload], ask: Ask, id_marker: str) -> list[tuple[str, Upload | None]]:
    """The uploads after the markers as (key, upload), and what the delimiter rolled up as (prefix, None)."""
    entries: list[tuple[str, Upload | None]] = []
    for upload in sorted(uploads, key=lambda upload: (upload.key, upload.upload_id)):
        if not upload.key.startswith(ask.prefix) or not _after_markers(upload, ask.after, id_marker):
            continue
        common = rolled_up(upload.key, ask.prefix, ask.delimiter)
        if common is None:
            entries.append((upload.key, upload))
        elif common != ask.after and (not entries or entries[-1][0] != common):
            entries.append((common, None))
    return entries


def _after_markers(upload: Upload, key_marker: str, id_marker: str) -> bool:
    if id_marker:
        return (upload.key, upload.upload_id) > (key_marker, id_marker)
    return upload.key > key_marker


def _upload_entry(upload: Upload, ask: Ask) -> dict[str, Any]:
    return {
        "Key": ask.encode(upload.key),
        "UploadId": upload.upload_id,
        "Owner": OWNER,
        "StorageClass": upload.template.storage_class,
        "Initiated": json_time(upload.initiated_ns),
    }
