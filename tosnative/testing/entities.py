"""What the local server knows about buckets, objects and uploads: plain values, as the store keeps them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from email.utils import formatdate
from functools import lru_cache
from typing import Any

from tosnative.testing.content import Content
from tosnative.testing.keyindex import KeyIndex

STORAGE_CLASSES = frozenset(
    {"STANDARD", "IA", "ARCHIVE_FR", "INTELLIGENT_TIERING", "COLD_ARCHIVE", "ARCHIVE", "DEEP_COLD_ARCHIVE"}
)
OWNER = {"ID": "local", "DisplayName": "local"}

NORMAL, APPENDABLE, SYMLINK, DIRECTORY = "Normal", "Appendable", "Symlink", "Directory"


@dataclass(frozen=True, slots=True)
class StoredObject:
    """One version of an object; a change of anything makes a new one.

    `etag` has no quotes. `headers` are echoed by HEAD and GET as they were stored, names in lower case, user metadata
    among them. `tags` are (key, value) pairs in the order given, `expires_days` the life time asked for, `acl` the
    canned ACL, `grants` an access list as JSON. A symlink's content is empty and `target` is its (bucket, key).
    """

    key: str
    content: Content
    etag: str
    crc64: int
    modified_ns: int
    headers: Mapping[str, str] = field(default_factory=dict)
    storage_class: str = "STANDARD"
    kind: str = NORMAL
    tags: tuple[tuple[str, str], ...] = ()
    expires_days: int | None = None
    acl: str | None = None
    grants: str | None = None
    target: tuple[str, str] | None = None

    @property
    def size(self) -> int:
        return self.content.size

    @property
    def quoted_etag(self) -> str:
        return f'"{self.etag}"'

    @property
    def meta(self) -> dict[str, str]:
        """The user metadata, by name without the headers' prefix."""
        prefix = "x-tos-meta-"
        return {name[len(prefix) :]: value for name, value in self.headers.items() if name.startswith(prefix)}

    def changed(self, **changes: Any) -> StoredObject:
        """A copy with some fields replaced."""
        return replace(self, **changes)


@dataclass(frozen=True, slots=True)
class Part:
    """One uploaded part; a later one with the same number takes its place."""

    number: int
    content: Content
    etag: str
    crc64: int
    modified_ns: int


@dataclass(slots=True)
class Upload:
    """A multipart upload in progress. `template` is the object that completing it makes, without content."""

    upload_id: str
    initiated_ns: int
    template: StoredObject
    parts: dict[int, Part] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return self.template.key


@dataclass(slots=True)
class Bucket:
    """A bucket and what is in it. `keys` holds exactly the keys of `objects`, sorted."""

    name: str
    created_ns: int
    hierarchical: bool = False
    storage_class: str = "STANDARD"
    az_redundancy: str = "single-az"
    project_name: str = "default"
    acl: str = "private"
    tags: tuple[tuple[str, str], ...] = ()
    rename_enabled: bool = False
    objects: dict[str, StoredObject] = field(default_factory=dict)
    keys: KeyIndex = field(default_factory=KeyIndex)
    uploads: dict[str, Upload] = field(default_factory=dict)

    @property
    def type_name(self) -> str:
        return "hns" if self.hierarchical else "fns"


def json_time(at_ns: int) -> str:
    """A time as the JSON answers spell it: RFC 3339 with milliseconds."""
    seconds, rest = divmod(at_ns, 1_000_000_000)
    return f"{_json_second(seconds)}.{rest // 1_000_000:03d}Z"


@lru_cache(maxsize=4096)
def _json_second(seconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(seconds))


def header_time(at_ns: int) -> str:
    """A time as headers spell it: RFC 1123."""
    return _header_second(at_ns // 1_000_000_000)


@lru_cache(maxsize=4096)
def _header_second(seconds: int) -> str:
    return formatdate(seconds, usegmt=True)
