"""Millions of objects in a few flat buffers, shared between processes without growing in each."""

from __future__ import annotations

import json
import math
import mmap
import os
import struct
import tempfile
from array import array
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import IO, overload

from tosnative.index_columns import COLUMNS, IndexColumns
from tosnative.meta import TosObjectMeta
from tosnative.shared import Duplicate, close_with, duplicate, is_spawning, unnamed_file

__all__ = ["ObjectIndex", "build_index", "index_of"]

_MAGIC = b"tosnative index 1\n"
_ALIGN = 16


class ObjectIndex(Sequence[TosObjectMeta]):
    """Objects as a sequence of TosObjectMeta that are made when asked for.

    About 45 bytes an object beside its key and ETag. Forked processes share the buffers without copying them, since
    they hold no Python objects; started ones map the same memory. A slice shares the buffers too. Saved with `save`,
    mapped with `load`: a listing can be made once and used by many runs.
    """

    def __init__(self, names: list[str], columns: dict[str, memoryview]) -> None:
        self._names = names
        self._columns = columns
        self._fd: int | None = None
        self._key_ends, self._etag_ends = columns["key_ends"], columns["etag_ends"]
        self._sizes, self._crcs, self._has_crc = columns["sizes"], columns["crcs"], columns["has_crc"]
        self._modified, self._buckets = columns["modified"], columns["buckets"]
        self._keys, self._etags = columns["keys"], columns["etags"]

    def __len__(self) -> int:
        return len(self._sizes)

    @overload
    def __getitem__(self, at: int) -> TosObjectMeta: ...
    @overload
    def __getitem__(self, at: slice) -> ObjectIndex: ...
    def __getitem__(self, at: int | slice) -> TosObjectMeta | ObjectIndex:
        if isinstance(at, slice):
            return self._slice(at)
        row = range(len(self))[at]
        bucket, key, size, etag, crc64 = self.row(row)
        modified = self._modified[row]
        return TosObjectMeta(bucket, key, size, etag, crc64, None if math.isnan(modified) else modified)

    def __iter__(self) -> Iterator[TosObjectMeta]:
        return map(self.__getitem__, range(len(self)))

    def __repr__(self) -> str:
        where = ", ".join(self._names[:3]) + (", ..." if len(self._names) > 3 else "")
        return f"ObjectIndex({len(self)} objects of {where or 'no bucket'})"

    def row(self, row: int) -> tuple[str, str, int | None, str | None, int | None]:
        """(bucket, key, size, etag, crc64) of one object, 0 <= row < len(self), without making an object of them."""
        ends, marks = self._key_ends, self._etag_ends
        size, mark, stop = self._sizes[row], marks[row], marks[row + 1]
        return (
            self._names[self._buckets[row]],
            str(self._keys[ends[row] : ends[row + 1]], "utf-8", "surrogatepass"),
            size if size >= 0 else None,
            str(self._etags[mark:stop], "utf-8", "surrogatepass") if mark < stop else None,
            self._crcs[row] if self._has_crc[row] else None,
        )

    def size(self, row: int) -> int:
        """Bytes of one object; -1 where the index does not know."""
        size: int = self._sizes[row]
        return size

    @property
    def nbytes(self) -> int:
        """Bytes of all buffers, keys included."""
        return sum(column.nbytes for column in self._columns.values())

    def _slice(self, at: slice) -> ObjectIndex:
        start, stop, step = at.indices(len(self))
        if step != 1:
            return build_index([[self[row] for row in range(start, stop, step)]])
        stop = max(start, stop)
        columns = dict(self._columns)
        for name in ("key_ends", "etag_ends"):
            columns[name] = columns[name][start : stop + 1]
        for name in ("sizes", "crcs", "modified", "buckets", "has_crc"):
            columns[name] = columns[name][start:stop]
        return ObjectIndex(self._names, columns)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the index to a file, which is there whole or not at all. Raises: OSError."""
        target = Path(path)
        with tempfile.NamedTemporaryFile(dir=target.parent, prefix=f".{target.name}.", delete=False) as file:
            try:
                self.write(file.file)
                file.close()
                Path(file.name).replace(target)
            except BaseException:
                Path(file.name).unlink(missing_ok=True)
                raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> ObjectIndex:
        """Map an index that `save` wrote;

        it is read as it is needed. Raises: OSError, ValueError for any other file.
        """
        with open(path, "rb") as file:
            index = cls.mapped(file.fileno())
        if index is None:
            raise ValueError(f"{os.fspath(path)!r} is no saved index, or was cut short")
        return index

    def write(self, file: IO[bytes]) -> None:
        """Write the form that `mapped` understands; a beginning of it is never mistaken for the whole."""
        columns = self._packed()
        header = {"buckets": self._names, "bytes": {name: columns[name].nbytes for name, _ in COLUMNS}}
        text = json.dumps(header).encode()
        file.write(_MAGIC + struct.pack("<Q", len(text)) + text)
        at = len(_MAGIC) + 8 + len(text)
        for name, _ in COLUMNS:
            file.write(bytes(-at % _ALIGN))
            file.write(columns[name].cast("B"))
            at += -at % _ALIGN + columns[name].nbytes
        file.write(_MAGIC)
        file.flush()

    @staticmethod
    def is_complete(fd: int) -> bool:
        """Whether an open file begins and ends as `write` lets it begin and end."""
        size = os.fstat(fd).st_size
        return (
            size >= 2 * len(_MAGIC) + 8
            and os.pread(fd, len(_MAGIC), 0) == _MAGIC
            and os.pread(fd, len(_MAGIC), size - len(_MAGIC)) == _MAGIC
        )

    @classmethod
    def mapped(cls, fd: int) -> ObjectIndex | None:
        """The index in an open file, sharing its memory with all who map it; None where the file holds no whole one."""
        if not cls.is_complete(fd):
            return None
        # A private mapping is writable as buffers must be to be cast, and nobody writes: no page is ever copied.
        whole = memoryview(mmap.mmap(fd, 0, access=mmap.ACCESS_COPY))
        start = len(_MAGIC) + 8
        at = start + struct.unpack_from("<Q", whole, len(_MAGIC))[0]
        header = json.loads(bytes(whole[start:at]))
        columns = {}
        for name, kind in COLUMNS:
            at += -at % _ALIGN
            size = header["bytes"][name]
            columns[name] = _cast(whole[at : at + size], kind)
            at += size
        return cls(header["buckets"], columns) if at + len(_MAGIC) == len(whole) else None

    def _packed(self) -> dict[str, memoryview]:
        """The columns with only those bytes of the blobs that this index uses: a slice shares those of its whole."""
        columns = dict(self._columns)
        for name, ends in (("keys", "key_ends"), ("etags", "etag_ends")):
            first, last = columns[ends][0], columns[ends][-1]
            columns[name] = columns[name][first:last]
            if first:
                columns[ends] = memoryview(array("q", (end - first for end in columns[ends])))
        return columns

    def __reduce__(self) -> tuple[object, ...]:
        if not is_spawning():
            return ObjectIndex._from_columns, (self._names, {name: bytes(c) for name, c in self._packed().items()})
        return ObjectIndex._from_duplicate, (duplicate(self._shared_fd()),)

    @staticmethod
    def _from_columns(names: list[str], columns: dict[str, bytes]) -> ObjectIndex:
        return ObjectIndex(names, {name: _cast(memoryview(columns[name]), kind) for name, kind in COLUMNS})

    @staticmethod
    def _from_duplicate(descriptor: Duplicate) -> ObjectIndex:
        fd = descriptor.detach()
        try:
            index = ObjectIndex.mapped(fd)
        finally:
            os.close(fd)
        assert index is not None, "a shared index is complete before it is handed over"
        return index

    def _shared_fd(self) -> int:
        """A file without a name that holds this index, for processes that are started; written once."""
        if self._fd is None:
            fd = unnamed_file()
            with open(fd, "wb", closefd=False) as file:
                self.write(file)
            self._fd = fd
            close_with(self, fd)
        return self._fd


def _cast(column: memoryview, kind: str) -> memoryview:
    return column.cast(kind)  # type: ignore[call-overload,no-any-return]  # typeshed wants a literal


def build_index(pages: Iterable[Iterable[TosObjectMeta]], *, markers: bool = True) -> ObjectIndex:
    """Gather objects, page by page as a listing yields them, keeping their order.

    markers: keep directory markers, which are empty objects whose key ends with a slash.
    """
    columns = IndexColumns()
    for page in pages:
        columns.add([meta for meta in page if markers or meta.size != 0 or not meta.key.endswith("/")])
    return index_of(columns)


def index_of(columns: IndexColumns) -> ObjectIndex:
    """The index of columns that are complete; takes them over."""
    return ObjectIndex(*columns.finish())
