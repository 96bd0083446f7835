"""The columns of an index while it grows, a page at a time."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from itertools import accumulate

from tosnative.columns import PageColumns
from tosnative.growing import GrowingBytes
from tosnative.meta import TosObjectMeta
from tosnative.uri import check_key

__all__ = ["COLUMNS", "IndexColumns"]

# Name and item format of each column. Ends are cumulative: item i of a blob is [ends[i], ends[i+1]).
COLUMNS = (
    ("key_ends", "q"),
    ("etag_ends", "q"),
    ("sizes", "q"),
    ("crcs", "Q"),
    ("modified", "d"),
    ("buckets", "i"),
    ("has_crc", "B"),
    ("keys", "B"),
    ("etags", "B"),
)
_PIECE = 1 << 16


class IndexColumns:
    """Objects in their order. Loops over one property each cost half of one loop over objects."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._columns = {name: GrowingBytes() for name, _ in COLUMNS}
        for name in ("key_ends", "etag_ends"):
            self._columns[name].append(array("q", [0]))

    def add(self, objects: list[TosObjectMeta]) -> None:
        """Append objects, of any buckets."""
        names = self._names
        self._append_texts("key", [meta.key for meta in objects])
        self._append_texts("etag", [meta.etag or "" for meta in objects])
        self._append(
            array("q", [-1 if meta.size is None else meta.size for meta in objects]),
            array("Q", [meta.crc64 or 0 for meta in objects]),
            bytes([meta.crc64 is not None for meta in objects]),
            array("d", [math.nan if meta.last_modified is None else meta.last_modified for meta in objects]),
            array("i", [names.setdefault(meta.bucket, len(names)) for meta in objects]),
        )

    def add_keys(self, bucket: str, keys: list[str]) -> None:
        """Append objects of this bucket of which nothing else is known. Raises: ValueError for a key that is no UTF-8."""
        if not "".join(keys).isascii():
            for key in keys:
                check_key(bucket, key)
        count = len(keys)
        self.add_page(bucket, PageColumns(keys, [-1] * count, [""] * count, [0] * count, [math.nan] * count))

    def add_page(self, bucket: str, page: PageColumns) -> None:
        """Append the objects of a page of this bucket's listing."""
        if not page.keys:
            return
        self._append_texts("key", page.keys)
        self._append_texts("etag", page.etags)
        self._append(
            array("q", page.sizes),
            array("Q", page.crcs),
            bytes(map(bool, page.crcs)),
            array("d", page.modified),
            array("i", [self._names.setdefault(bucket, len(self._names))]) * len(page.keys),
        )

    def extend(self, other: IndexColumns) -> None:
        """Append all objects of another one, which is used up, and of the same bucket."""
        if not self._names:
            self._names.update(other._names)
        assert not other._names or other._names == self._names
        for kind in ("key", "etag"):
            start = self._columns[f"{kind}s"].size
            ends = other._columns.pop(f"{kind}_ends")
            with ends.view("q") as view:
                for at in range(1, len(view), _PIECE):
                    piece = [start + end for end in view[at : at + _PIECE].tolist()]
                    self._columns[f"{kind}_ends"].append(array("q", piece))
            ends.close()
        for name, column in other._columns.items():
            self._columns[name].take(column)

    def finish(self) -> tuple[list[str], dict[str, memoryview]]:
        """The names of the buckets and the columns as an index has them. Nothing can be appended afterwards."""
        return list(self._names), {name: self._columns[name].view(kind) for name, kind in COLUMNS}

    def _append(
        self, sizes: array[int], crcs: array[int], has_crc: bytes, modified: array[float], buckets: array[int]
    ) -> None:
        columns = self._columns
        columns["sizes"].append(sizes)
        columns["crcs"].append(crcs)
        columns["has_crc"].append(has_crc)
        columns["modified"].append(modified)
        columns["buckets"].append(buckets)

    def _append_texts(self, kind: str, texts: list[str]) -> None:
        blob, joined = self._columns[f"{kind}s"], "".join(texts)
        start = blob.size
        lengths: Iterable[int]
        if joined.isascii():
            blob.append(joined.encode())
            lengths = map(len, texts)
        else:
            encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
            blob.append(b"".join(encoded))
            lengths = map(len, encoded)
        ends = list(accumulate(lengths, initial=start))
        self._columns[f"{kind}_ends"].append(array("q", ends[1:]))
