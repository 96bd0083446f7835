"""Directories: what a bucket with a hierarchical namespace (HNS) does beyond a flat one.

A directory is an object of its own kind whose key ends in a slash. Putting `a/b/c` makes `a/` and `a/b/`; they stay
when they become empty. Codes that public sources do not name are ours; their EC values are the service's.
"""

from __future__ import annotations

from collections.abc import Iterator

from tosnative.testing.content import Content
from tosnative.testing.entities import DIRECTORY, Bucket, StoredObject
from tosnative.testing.errors import ServiceError, no_such_key
from tosnative.testing.keyindex import after_prefix
from tosnative.testing.messages import Buffer
from tosnative.testing.store import Store


def find(bucket: Bucket, key: str) -> StoredObject:
    """The object of a key; in a bucket with directories `d` finds `d/` too. Raises: ServiceError 404 NoSuchKey."""
    item = bucket.objects.get(key)
    if item is None and bucket.hierarchical:
        item = bucket.objects.get(key + "/")
    if item is None:
        raise no_such_key(key)
    return item


def children(bucket: Bucket, directory: str) -> Iterator[str]:
    """The keys below a directory, whose own key ends in a slash."""
    for key in bucket.keys.from_key(directory, inclusive=False):
        if not key.startswith(directory):
            return
        yield key


def parents(key: str) -> list[str]:
    """The directories above a key, outermost first: a/, a/b/ for a/b/c and for a/b/c/."""
    names = key.rstrip("/").split("/")[:-1]
    return ["/".join(names[: depth + 1]) + "/" for depth in range(len(names))]


def check_put(bucket: Bucket, key: str, body: Buffer = b"") -> None:
    """Whether `key` may become a file, or a directory where it ends in a slash. Raises: ServiceError 400 or 409."""
    if not bucket.hierarchical:
        return
    for directory in parents(key):
        if directory[:-1] in bucket.objects:
            raise ServiceError(409, "PathConflict", f"{key} lies under the file {directory[:-1]}.", "0026-00000020")
    if key.endswith("/"):
        if memoryview(body).nbytes:
            raise ServiceError(400, "ContentLengthMustBeZero", "A directory has no content.")
        if key[:-1] in bucket.objects:
            raise ServiceError(409, "DuplicateObject", f"{key[:-1]} is a file.", "0017-00000004")
    elif key + "/" in bucket.objects:
        raise ServiceError(409, "PathConflict", f"{key} is a directory.", "0026-00000021")


def make_parents(store: Store, bucket: Bucket, key: str) -> None:
    """Makes the directories above a key of a bucket that has directories, where they are missing."""
    if not bucket.hierarchical:
        return
    for directory in parents(key):
        if directory not in bucket.objects:
            store.put(bucket, new_directory(store, directory))


def new_directory(store: Store, key: str) -> StoredObject:
    """A directory; `key` ends in a slash."""
    return StoredObject(key, Content(), "d41d8cd98f00b204e9800998ecf8427e", 0, store.now_ns(), kind=DIRECTORY)


def delete(store: Store, bucket: Bucket, key: str, *, recursive: bool) -> None:
    """Deletes a file or a directory; a missing one is no error.

    Raises: ServiceError 409 CannotDelete for a directory that is not empty, unless `recursive`.
    """
    item = bucket.objects.get(key) or bucket.objects.get(key + "/")
    if item is None:
        return
    below = list(children(bucket, item.key)) if item.kind == DIRECTORY else []
    if below and not recursive:
        raise ServiceError(409, "CannotDelete", f"The directory {item.key} is not empty.", "0026-00000013")
    with store.transaction():
        for name in (*below, item.key):
            store.remove(bucket, name)


def rename(store: Store, bucket: Bucket, item: StoredObject, new_key: str, *, make_missing: bool) -> None:
    """Moves a file or a directory with all below it.

    Raises: ServiceError 404 for a missing parent unless `make_missing`, 409 where the target is a directory, lies
        inside the source, or is of the other kind.
    """
    is_directory = item.kind == DIRECTORY
    if is_directory and not new_key.endswith("/"):
        new_key += "/"
    _check_rename(bucket, item, new_key, is_directory)
    if not make_missing and (missing := [name for name in parents(new_key) if name not in bucket.objects]):
        raise no_such_key(missing[0])
    moved = [item.key, *children(bucket, item.key)] if is_directory else [item.key]
    with store.transaction():
        make_parents(store, bucket, new_key)
        for key in moved:
            old = bucket.objects[key]
            store.put(bucket, old.changed(key=new_key + key[len(item.key) :]))
            store.remove(bucket, key)


def _check_rename(bucket: Bucket, item: StoredObject, new_key: str, is_directory: bool) -> None:
    if is_directory and new_key.startswith(item.key):
        raise ServiceError(409, "RenameConflict", f"{new_key} lies inside {item.key}.", "0026-00000026")
    plain = new_key.rstrip("/")
    if is_directory and plain in bucket.objects:
        raise ServiceError(409, "RenameConflict", f"{plain} is a file.", "0026-00000027")
    if plain + "/" in bucket.objects:
        ec = "0026-00000025" if is_directory else "0026-00000027"
        raise ServiceError(409, "RenameConflict", f"The directory {plain}/ exists.", ec)
    check_put(bucket, new_key)


def first_below(bucket: Bucket, key: str, *, bare_name: bool) -> StoredObject:
    """What `?stat` finds in a flat bucket: the key itself, else the first key under it as a directory.

    `bare_name` lets `d` stand for `d/`. Raises: ServiceError 404 NoSuchKey.
    """
    item = bucket.objects.get(key)
    if item is not None:
        return item
    if key.endswith("/") or bare_name:
        directory = key if key.endswith("/") else key + "/"
        for found in bucket.keys.from_key(directory):
            if found < after_prefix(directory):
                return bucket.objects[found]
            break
    raise no_such_key(key)
