"""What the headers of a put, of the start of an upload and of a copy with REPLACE say about the object to be."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from urllib.parse import parse_qsl

from tosnative.testing.conditions import customer_key
from tosnative.testing.content import Content
from tosnative.testing.entities import STORAGE_CLASSES, Bucket, Part, StoredObject
from tosnative.testing.errors import invalid_argument
from tosnative.testing.messages import Buffer, ServerOptions

_HTTP_HEADERS = frozenset(
    {
        "cache-control",
        "content-disposition",
        "content-encoding",
        "content-language",
        "content-type",
        "expires",
        "x-tos-website-redirect-location",
    }
)
_ENCRYPTION_HEADERS = (
    "x-tos-server-side-encryption",
    "x-tos-server-side-encryption-customer-algorithm",
    "x-tos-server-side-encryption-customer-key-md5",
)


def template(headers: Mapping[str, str], key: str, bucket: Bucket) -> StoredObject:
    """An object without bytes as the headers ask for it. Raises: ServiceError 400 InvalidArgument."""
    customer_key(headers)
    encryption = {name: headers[name] for name in _ENCRYPTION_HEADERS if name in headers}
    return StoredObject(
        key=key,
        content=Content(),
        etag="",
        crc64=0,
        modified_ns=0,
        headers=stored_headers(headers) | encryption,
        storage_class=storage_class(headers, bucket.storage_class),
        tags=parse_tags(headers.get("x-tos-tagging", "")),
        expires_days=expires_days(headers),
        acl=headers.get("x-tos-acl"),
    )


def stored_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """The headers that an object keeps and gives back: HTTP's own and the user's metadata, as they came."""
    return {name: value for name, value in headers.items() if name in _HTTP_HEADERS or name.startswith("x-tos-meta-")}


def storage_class(headers: Mapping[str, str], default: str) -> str:
    """Raises: ServiceError 400 for a class that does not exist."""
    name = headers.get("x-tos-storage-class", default)
    if name not in STORAGE_CLASSES:
        raise invalid_argument(f"There is no storage class {name}.")
    return name


def parse_tags(text: str) -> tuple[tuple[str, str], ...]:
    """Tags as headers carry them: k=v&k2=v2, percent-encoded."""
    return tuple(parse_qsl(text, keep_blank_values=True))


def expires_days(headers: Mapping[str, str]) -> int | None:
    """The life time asked for; 0 and no header mean none. Raises: ServiceError 400."""
    text = headers.get("x-tos-object-expires", "0")
    if not text.isdigit():
        raise invalid_argument(f"x-tos-object-expires is a number of days, not {text}.")
    return int(text) or None


def body_etag(body: Buffer, crc: int, options: ServerOptions) -> str:
    """The ETag of bytes put in one request: their MD5, or for large ones a text made of their CRC64 and size.

    Clients treat ETags as opaque; only that equal bytes have equal ETags matters.
    """
    size = memoryview(body).nbytes
    if size > options.etag_md5_max_bytes:
        return f"{crc:016x}{size:016x}"
    return hashlib.md5(body, usedforsecurity=False).hexdigest()


def multipart_etag(parts: list[Part], options: ServerOptions) -> str:
    """The ETag of an object made of parts: a digest of their ETags, by option with the number of parts."""
    digest = hashlib.md5(b"".join(part.etag.encode() for part in parts), usedforsecurity=False).hexdigest()
    return f"{digest}-{len(parts)}" if options.multipart_etag_dashed else digest
