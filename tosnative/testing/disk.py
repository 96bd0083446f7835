"""Where a store with a root directory keeps its state: metadata in SQLite, the bytes of objects in files.

A file is written completely before a row names it and is never changed afterwards, so a process that dies at any moment
leaves every object as it was or as it became. Nothing is forced to the medium: a power failure may lose the latest.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tosnative.testing.content import Content, FileSource, Piece
from tosnative.testing.entities import Bucket, Part, StoredObject, Upload
from tosnative.testing.keyindex import KeyIndex

_TABLES = """
create table if not exists buckets (name text primary key, record text not null);
create table if not exists objects (bucket text, key text, record text not null, primary key (bucket, key));
create table if not exists uploads (bucket text, id text, record text not null, primary key (bucket, id));
create table if not exists parts
    (bucket text, id text, number int, record text not null, primary key (bucket, id, number));
"""
_BUCKET_FIELDS = (
    "created_ns", "hierarchical", "storage_class", "az_redundancy", "project_name", "acl", "tags", "rename_enabled",
)  # fmt: skip


class Disk:
    """The durable half of a store; one process at a time.

    Raises:
        RuntimeError: another process has the root open.
    """

    def __init__(self, root: Path) -> None:
        self._data = root / "data"
        self._data.mkdir(parents=True, exist_ok=True)
        self._lock = (root / "lock").open("w")
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise RuntimeError(f"{root} is in use by another server") from error
        self._db = sqlite3.connect(root / "index.sqlite3", isolation_level=None, check_same_thread=False)
        self._db.execute("pragma journal_mode=wal")
        self._db.execute("pragma synchronous=off")
        self._db.executescript(_TABLES)
        # How many pieces of objects and parts each file serves, and the changes of that in the open transaction.
        self._uses: Counter[Path] = Counter()
        self._changes: list[tuple[Path, int]] = []
        self._depth = 0

    def close(self) -> None:
        """Closes the files; views that were handed out stay valid."""
        self._db.close()
        self._lock.close()

    def write(self, data: memoryview) -> Content:
        """The bytes in a new file, which lives until the last object or part that uses it is gone."""
        name = uuid.uuid4().hex
        path = self._data / name[:2] / name
        path.parent.mkdir(exist_ok=True)
        with path.open("xb", buffering=0) as file:
            while data:
                data = data[file.write(data) :]
            size = file.tell()
        return Content((Piece(FileSource(path), 0, size),))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All changes inside become durable together, or none does; files no longer used are deleted after that."""
        if self._depth == 0:
            self._db.execute("begin immediate")
        self._depth += 1
        try:
            yield
        except BaseException:
            if self._depth == 1:
                self._db.execute("rollback")
                for path, change in self._changes:
                    self._uses[path] -= change
                self._delete_unused()
            raise
        else:
            if self._depth == 1:
                self._db.execute("commit")
                self._delete_unused()
        finally:
            self._depth -= 1

    def retain(self, content: Content) -> None:
        """Counts one more user of the files of `content`."""
        self._count(content, 1)

    def release(self, content: Content) -> None:
        """Counts one user less; files without users are deleted when the transaction ends."""
        self._count(content, -1)

    def _count(self, content: Content, change: int) -> None:
        for path in _paths(content):
            self._uses[path] += change
            self._changes.append((path, change))

    def _delete_unused(self) -> None:
        for path in {path for path, _ in self._changes if self._uses[path] <= 0}:
            del self._uses[path]
            path.unlink(missing_ok=True)
        self._changes.clear()

    def save_bucket(self, bucket: Bucket) -> None:
        record = json.dumps({name: getattr(bucket, name) for name in _BUCKET_FIELDS})
        self._db.execute("insert or replace into buckets values (?, ?)", (bucket.name, record))

    def drop_bucket(self, name: str) -> None:
        for table in ("objects", "uploads", "parts"):
            self._db.execute(f"delete from {table} where bucket = ?", (name,))
        self._db.execute("delete from buckets where name = ?", (name,))

    def save_object(self, bucket: str, record: StoredObject) -> None:
        row = (bucket, record.key, json.dumps(self._dump(record)))
        self._db.execute("insert or replace into objects values (?, ?, ?)", row)

    def drop_object(self, bucket: str, key: str) -> None:
        self._db.execute("delete from objects where bucket = ? and key = ?", (bucket, key))

    def save_upload(self, bucket: str, upload: Upload) -> None:
        record = {"initiated_ns": upload.initiated_ns, "template": self._dump(upload.template)}
        self._db.execute(
            "insert or replace into uploads values (?, ?, ?)", (bucket, upload.upload_id, json.dumps(record))
        )

    def drop_upload(self, bucket: str, upload_id: str) -> None:
        self._db.execute("delete from parts where bucket = ? and id = ?", (bucket, upload_id))
        self._db.execute("delete from uploads where bucket = ? and id = ?", (bucket, upload_id))

    def save_part(self, bucket: str, upload_id: str, part: Part) -> None:
        row = (bucket, upload_id, part.number, json.dumps(self._dump(part)))
        self._db.execute("insert or replace into parts values (?, ?, ?, ?)", row)

    def load(self) -> Iterator[Bucket]:
        """All buckets with their contents; files that nothing uses, left by a process that died, are deleted."""
        for name, record in self._db.execute("select name, record from buckets").fetchall():
            fields = json.loads(record)
            fields["tags"] = _pairs(fields["tags"])
            bucket = Bucket(name=name, **fields)
            for (text,) in self._db.execute("select record from objects where bucket = ?", (name,)):
                item = self._object(json.loads(text))
                bucket.objects[item.key] = item
            bucket.keys = KeyIndex(bucket.objects)
            self._load_uploads(bucket)
            yield bucket
        self._changes.clear()
        for path in self._data.glob("*/*"):
            if path not in self._uses:
                path.unlink()

    def _load_uploads(self, bucket: Bucket) -> None:
        for upload_id, text in self._db.execute("select id, record from uploads where bucket = ?", (bucket.name,)):
            record = json.loads(text)
            upload = Upload(upload_id, record["initiated_ns"], self._object(record["template"]))
            bucket.uploads[upload_id] = upload
        for upload_id, text in self._db.execute("select id, record from parts where bucket = ?", (bucket.name,)):
            fields = json.loads(text)
            part = Part(**{**fields, "content": self._content(fields["content"])})
            bucket.uploads[upload_id].parts[part.number] = part

    def _dump(self, record: StoredObject | Part) -> dict[str, Any]:
        fields = {name: getattr(record, name) for name in record.__dataclass_fields__}
        if isinstance(record, StoredObject):
            fields["headers"] = dict(record.headers)
        fields["content"] = [
            (str(path.relative_to(self._data)), start, end) for path, start, end in _spans(record.content)
        ]
        return fields

    def _object(self, fields: dict[str, Any]) -> StoredObject:
        target = tuple(fields["target"]) if fields["target"] else None
        content = self._content(fields["content"])
        return StoredObject(**{**fields, "content": content, "tags": _pairs(fields["tags"]), "target": target})

    def _content(self, spans: Iterable[tuple[str, int, int]]) -> Content:
        pieces = tuple(Piece(FileSource(self._data / name), start, end) for name, start, end in spans)
        content = Content(pieces)
        self.retain(content)
        return content


def _spans(content: Content) -> Iterator[tuple[Path, int, int]]:
    for piece in content.pieces:
        assert isinstance(piece.source, FileSource), "a store on disk holds files only"
        yield piece.source.path, piece.start, piece.end


def _paths(content: Content) -> Iterator[Path]:
    return (path for path, _, _ in _spans(content))


def _pairs(items: Iterable[Iterable[str]]) -> tuple[tuple[str, str], ...]:
    return tuple((key, value) for key, value in items)
