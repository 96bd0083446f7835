"""Where a dataset's objects come from, and how all processes of a tree share one listing of them."""

from __future__ import annotations

import fcntl
import os
import threading
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tosnative.index import ObjectIndex, build_index, index_of
from tosnative.index_columns import IndexColumns
from tosnative.meta import TosObjectMeta
from tosnative.ranged_listing import list_index
from tosnative.shared import close_with, unnamed_file
from tosnative.uri import check_key, format_uri, parse_uri

if TYPE_CHECKING:
    from tosnative.client import TosClient

__all__ = ["ObjectSource", "PrefixSource", "from_index", "from_local_files", "from_prefix", "from_urls"]

_MOST_IN_RUN = 1 << 16


class ObjectSource:
    """Objects that are known from the start."""

    def __init__(self, index: ObjectIndex, label: str) -> None:
        self._known: ObjectIndex | None = index
        self.label = label

    @property
    def known(self) -> ObjectIndex | None:
        """The index, where it can be had without asking anybody."""
        return self._known

    def index(self, client: TosClient) -> ObjectIndex:
        """All objects, in a fixed order. Raises: TosException where they have to be listed and cannot be."""
        assert self._known is not None
        return self._known

    def list_before_start(self, client: TosClient) -> None:
        """The source is being pickled for a process that is about to start: see to it that it need not list."""


class PrefixSource(ObjectSource):
    """The objects under a prefix, without directory markers, listed when they are first needed, once per process tree.

    - A process that is started (spawn, forkserver) by pickling the source gets the listing with it: it is made before.
    - Forked processes share a file without a name: the first of them that needs the listing writes it there, and the
      others, the parent too, wait for it and map it. A process that dies while listing leaves the task to the next.
    - Pickled for another purpose, the source carries the listing if there is one.
    """

    def __init__(self, bucket: str, prefix: str, delimiter: str | None) -> None:
        self._known = None
        self.label = format_uri(bucket, prefix)
        self._bucket, self._prefix, self._delimiter = bucket, prefix, delimiter
        self._prepare()

    def _prepare(self) -> None:
        self._shared: int | None = None
        # A lock that another thread holds at a fork stays locked in the child: each process has its own.
        self._lock_of: tuple[int, threading.Lock] = (os.getpid(), threading.Lock())
        _LIVING.add(self)

    def index(self, client: TosClient) -> ObjectIndex:
        if self._known is None:
            with self._lock():
                if self._known is None:
                    self._known = (
                        self._list(client) if self._shared is None else self._list_shared(client, self._shared)
                    )
        return self._known

    def _lock(self) -> threading.Lock:
        if self._lock_of[0] != os.getpid():
            self._lock_of = (os.getpid(), threading.Lock())
        return self._lock_of[1]

    def _list(self, client: TosClient) -> ObjectIndex:
        return list_index(client, self._bucket, self._prefix, delimiter=self._delimiter, markers=False)

    def _list_shared(self, client: TosClient, fd: int) -> ObjectIndex:
        # A record lock belongs to one process and ends with it. It also ends when any descriptor of the file is closed
        # in the process, so the file is not mapped before the lock is given up.
        fcntl.lockf(fd, fcntl.LOCK_EX)
        try:
            if not ObjectIndex.is_complete(fd):
                listed = self._list(client)
                os.ftruncate(fd, 0)
                os.lseek(fd, 0, os.SEEK_SET)
                with open(fd, "wb", closefd=False) as file:
                    listed.write(file)
        finally:
            fcntl.lockf(fd, fcntl.LOCK_UN)
        index = ObjectIndex.mapped(fd)
        assert index is not None, "nobody takes back what is complete"
        return index

    def share_before_fork(self) -> None:
        """Make the file through which this process and its forked children share a listing that is not there yet."""
        if self._known is None and self._shared is None:
            self._shared = unnamed_file()
            close_with(self, self._shared)

    def list_before_start(self, client: TosClient) -> None:
        self.index(client)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_shared", "_lock_of")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._prepare()


_LIVING: weakref.WeakSet[PrefixSource] = weakref.WeakSet()


def _before_fork() -> None:
    for source in list(_LIVING):
        source.share_before_fork()


os.register_at_fork(before=_before_fork)


def from_urls(urls: str | Iterable[str]) -> ObjectSource:
    """The objects named by URLs, in their order, read to the end now.

    Raises: ValueError for a URL that names no object.
    """
    columns = IndexColumns()
    for bucket, keys in _runs([urls] if isinstance(urls, str) else urls):
        columns.add_keys(bucket, keys)
    index = index_of(columns)
    return ObjectSource(index, f"{len(index)} URLs")


def _runs(urls: Iterable[str]) -> Iterator[tuple[str, list[str]]]:
    """The bucket and keys of URLs that follow one another and begin alike: each costs a fraction of one that is parsed."""
    bucket, start, keys = "", "", list[str]()
    for url in urls:
        if start and isinstance(url, str) and url.startswith(start) and len(url) > len(start):
            keys.append(url[len(start) :])
            if len(keys) == _MOST_IN_RUN:
                yield bucket, keys
                keys = []
            continue
        if keys:
            yield bucket, keys
        bucket, key = parse_uri(url)
        start, keys = format_uri(bucket), [check_key(bucket, key)]
    if keys:
        yield bucket, keys


def from_prefix(prefix: str, delimiter: str | None = None) -> PrefixSource:
    """The objects whose keys begin with the prefix. Raises: ValueError where it is no TOS URI."""
    bucket, key = parse_uri(prefix)
    return PrefixSource(bucket, key, delimiter or None)


def from_index(index: ObjectIndex | str | os.PathLike[str]) -> ObjectSource:
    """The objects of an index, or of the file that one was saved to. Raises: OSError, ValueError for another file."""
    if not isinstance(index, ObjectIndex):
        index = ObjectIndex.load(index)
    return ObjectSource(index, f"an index of {len(index)} objects")


def from_local_files(files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> ObjectSource:
    """The objects named in text files (UTF-8), one URL a line, read now; empty lines are passed over.

    Raises: OSError, and ValueError with file and line for a line that names no object.
    """
    paths = [files] if isinstance(files, (str, os.PathLike)) else list(files)
    index = build_index([_objects_in(Path(path)) for path in paths])
    return ObjectSource(index, f"{len(index)} URLs of {len(paths)} files")


def _objects_in(path: Path) -> Iterable[TosObjectMeta]:
    with open(path, encoding="utf-8-sig", newline="\n") as file:
        for number, line in enumerate(file, 1):
            url = line.rstrip("\r\n")
            if not url.strip():
                continue
            try:
                yield _object(url)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None


def _object(url: str) -> TosObjectMeta:
    bucket, key = parse_uri(url)
    return TosObjectMeta(bucket, check_key(bucket, key))
