"""What is known of an object without its bytes."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TosObjectMeta"]


@dataclass(frozen=True, slots=True)
class TosObjectMeta:
    """An object's description, from a listing, a HEAD, or the head of a GET's answer.

    size: bytes. etag: opaque, without quotes. crc64: CRC-64/XZ of the whole object (the service's crc64ecma).
    last_modified: seconds since 1970, UTC. Each is None where nobody said it.
    """

    bucket: str
    key: str
    size: int | None = None
    etag: str | None = None
    crc64: int | None = None
    last_modified: float | None = None
