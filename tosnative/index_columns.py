"""The columns of an index while it grows: arrays that are extended in place, a page at a time."""

from __future__ import annotations

import math
from array import array
from itertools import accumulate

from tosnative.columns import PageColumns
from tosnative.meta import TosObjectMeta

__all__ = ["IndexColumns"]


class IndexColumns:
    """Objects in their order. Loops over one property each cost half of one loop over objects."""

    def __init__(self) -> None:
        self._names: dict[str, int] = {}
        self._keys, self._etags = bytearray(), bytearray()
        self._key_sizes, self._etag_sizes = array("I"), array("I")
        self._sizes, self._crcs, self._modified = array("q"), array("Q"), array("d")
        self._buckets, self._has_crc = array("i"), array("B")

    def __len__(self) -> int:
        return len(self._sizes)

    def add(self, objects: list[TosObjectMeta]) -> None:
        """Append objects, of any buckets."""
        keys = [meta.key.encode("utf-8", "surrogatepass") for meta in objects]
        etags = [meta.etag.encode("utf-8", "surrogatepass") if meta.etag else b"" for meta in objects]
        self._keys += b"".join(keys)
        self._etags += b"".join(etags)
        self._key_sizes.extend(map(len, keys))
        self._etag_sizes.extend(map(len, etags))
        self._sizes.extend([-1 if meta.size is None else meta.size for meta in objects])
        self._crcs.extend([meta.crc64 or 0 for meta in objects])
        self._has_crc.extend([meta.crc64 is not None for meta in objects])
        self._modified.extend([math.nan if meta.last_modified is None else meta.last_modified for meta in objects])
        names = self._names
        self._buckets.extend([names.setdefault(meta.bucket, len(names)) for meta in objects])

    def add_page(self, bucket: str, page: PageColumns) -> None:
        """Append the objects of a page of this bucket's listing."""
        if not page.keys:
            return
        _append(self._keys, self._key_sizes, page.keys)
        _append(self._etags, self._etag_sizes, page.etags)
        self._sizes.extend(array("q", page.sizes))
        self._crcs.extend(array("Q", page.crcs))
        self._has_crc.extend(array("B", bytes(map(bool, page.crcs))))
        self._modified.extend(array("d", page.modified))
        self._buckets.extend(array("i", [self._names.setdefault(bucket, len(self._names))]) * len(page.keys))

    def extend(self, other: IndexColumns) -> None:
        """Append all objects of another one, which is of the same bucket."""
        if not self._names:
            self._names.update(other._names)
        assert not other._names or other._names == self._names
        self._keys += other._keys
        self._etags += other._etags
        self._key_sizes.extend(other._key_sizes)
        self._etag_sizes.extend(other._etag_sizes)
        self._sizes.extend(other._sizes)
        self._crcs.extend(other._crcs)
        self._modified.extend(other._modified)
        self._buckets.extend(other._buckets)
        self._has_crc.extend(other._has_crc)

    def finish(self) -> tuple[list[str], dict[str, memoryview]]:
        """The names of the buckets and the columns as an index has them. Nothing can be appended afterwards."""
        columns: dict[str, array[int] | array[float] | bytearray] = {
            "key_ends": array("q", accumulate(self._key_sizes, initial=0)),
            "etag_ends": array("q", accumulate(self._etag_sizes, initial=0)),
            "sizes": self._sizes,
            "crcs": self._crcs,
            "modified": self._modified,
            "buckets": self._buckets,
            "has_crc": self._has_crc,
            "keys": self._keys,
            "etags": self._etags,
        }
        return list(self._names), {name: memoryview(column) for name, column in columns.items()}


def _append(blob: bytearray, sizes: array[int], texts: list[str]) -> None:
    joined = "".join(texts)
    if joined.isascii():
        blob += joined.encode()
        sizes.extend(array("I", list(map(len, texts))))
        return
    encoded = [text.encode("utf-8", "surrogatepass") for text in texts]
    blob += b"".join(encoded)
    sizes.extend(array("I", list(map(len, encoded))))
