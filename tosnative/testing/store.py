"""What a local server holds: buckets, their objects and their uploads, in memory or under a directory."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tosnative.testing.content import Content, MemorySource, Piece
from tosnative.testing.disk import Disk
from tosnative.testing.entities import DIRECTORY, Bucket, Part, StoredObject, Upload
from tosnative.testing.errors import ServiceError, no_such_bucket, no_such_upload
from tosnative.testing.messages import Buffer


class Store:
    """Buckets by name.

    Without `root` everything is in memory. With it, buckets, objects and uploads are kept under that directory, which
    one process may use at a time, and are there again after a restart; every change is atomic against the death of the
    process. The bytes of an object never change: a view taken before an overwrite or a delete keeps the old version.

    Not locked: the server calls it under its one lock, and so must everybody else who shares a store with a server.
    """

    def __init__(self, root: Path | str | None = None) -> None:
        self._disk = Disk(Path(root)) if root is not None else None
        self.buckets: dict[str, Bucket] = {bucket.name: bucket for bucket in self._disk.load()} if self._disk else {}
        self._last_ns = 0

    def close(self) -> None:
        """Lets another process use the root. The store must not be used afterwards."""
        if self._disk:
            self._disk.close()

    def now_ns(self) -> int:
        """The time for a new object, in nanoseconds since the epoch; later than any that this store gave before."""
        self._last_ns = max(time.time_ns(), self._last_ns + 1)
        return self._last_ns

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Makes the changes inside durable as one. Memory is not rolled back: check before the first change."""
        if self._disk is None:
            yield
        else:
            with self._disk.transaction():
                yield

    def bucket(self, name: str) -> Bucket:
        """Raises: ServiceError 404 NoSuchBucket."""
        try:
            return self.buckets[name]
        except KeyError:
            raise no_such_bucket(name) from None

    def create_bucket(self, bucket: Bucket) -> None:
        """Adds an empty bucket. Raises: ServiceError 409 when the name is taken."""
        if bucket.name in self.buckets:
            raise ServiceError(409, "BucketAlreadyOwnedByYou", f"The bucket {bucket.name} exists and is yours.")
        self.buckets[bucket.name] = bucket
        self.save_bucket(bucket)

    def save_bucket(self, bucket: Bucket) -> None:
        """Keeps what was changed in the bucket's own fields."""
        if self._disk:
            with self._disk.transaction():
                self._disk.save_bucket(bucket)

    def delete_bucket(self, name: str) -> None:
        """Removes a bucket that holds no object and no upload; empty directories go with it.

        Raises: ServiceError 404, or 409 BucketNotEmpty.
        """
        bucket = self.bucket(name)
        if bucket.uploads or any(item.kind != DIRECTORY for item in bucket.objects.values()):
            raise ServiceError(409, "BucketNotEmpty", f"The bucket {name} holds objects or unfinished uploads.")
        if self._disk:
            with self._disk.transaction():
                self._disk.drop_bucket(name)
        del self.buckets[name]

    def content(self, data: Buffer) -> Content:
        """Content with these bytes. In memory the buffer itself is kept and must not be written to any more."""
        view = memoryview(data).cast("B").toreadonly()
        if not view:
            return Content()
        if self._disk:
            return self._disk.write(view)
        return Content((Piece(MemorySource(view), 0, len(view)),))

    def put(self, bucket: Bucket, item: StoredObject) -> None:
        """Makes `item` the object of its key."""
        old = bucket.objects.get(item.key)
        if self._disk:
            with self._disk.transaction():
                self._disk.save_object(bucket.name, item)
                self._disk.retain(item.content)
                if old:
                    self._disk.release(old.content)
        bucket.objects[item.key] = item
        if old is None:
            bucket.keys.add(item.key)

    def remove(self, bucket: Bucket, key: str) -> None:
        """Removes the object of a key that exists."""
        old = bucket.objects[key]
        if self._disk:
            with self._disk.transaction():
                self._disk.drop_object(bucket.name, key)
                self._disk.release(old.content)
        del bucket.objects[key]
        bucket.keys.remove(key)

    def upload(self, bucket: Bucket, key: str, upload_id: str) -> Upload:
        """Raises: ServiceError 404 NoSuchUpload, also when the upload is for another key."""
        upload = bucket.uploads.get(upload_id)
        if upload is None or upload.key != key:
            raise no_such_upload(upload_id)
        return upload

    def add_upload(self, bucket: Bucket, upload: Upload) -> None:
        """Begins an upload."""
        if self._disk:
            with self._disk.transaction():
                self._disk.save_upload(bucket.name, upload)
        bucket.uploads[upload.upload_id] = upload

    def put_part(self, bucket: Bucket, upload: Upload, part: Part) -> None:
        """Adds a part, in place of an earlier one with the same number."""
        old = upload.parts.get(part.number)
        if self._disk:
            with self._disk.transaction():
                self._disk.save_part(bucket.name, upload.upload_id, part)
                self._disk.retain(part.content)
                if old:
                    self._disk.release(old.content)
        upload.parts[part.number] = part

    def drop_upload(self, bucket: Bucket, upload: Upload) -> None:
        """Forgets an upload and its parts."""
        if self._disk:
            with self._disk.transaction():
                self._disk.drop_upload(bucket.name, upload.upload_id)
                for part in upload.parts.values():
                    self._disk.release(part.content)
        del bucket.uploads[upload.upload_id]
