"""A page of a listing as columns: a list for each property instead of an object for each key, every value checked."""

from __future__ import annotations

import datetime
import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from tosnative.credential_files import parse_time
from tosnative.page_shape import read_shape

__all__ = ["PageColumns", "read_columns"]

_UNKNOWN = math.nan
_STAMP = b"0000-00-00T00:00:00.000Z"
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_MOST_MINUTES = 100_000
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


@dataclass(slots=True)
class PageColumns:
    """A page of a listing. Item i of every column belongs to object i.

    crcs: 0 where the service says none. modified: seconds since 1970, NaN where it says none.
    prefixes: what the delimiter gathered. token: for the next page, None after the last.
    """

    keys: list[str] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    etags: list[str] = field(default_factory=list)
    crcs: list[int] = field(default_factory=list)
    modified: list[float] = field(default_factory=list)
    prefixes: list[str] = field(default_factory=list)
    token: str | None = None

    def cut(self, start: int, stop: int) -> None:
        """Keep the objects [start, stop) only."""
        for column in (self.keys, self.sizes, self.etags, self.crcs, self.modified):
            del column[stop:]
            del column[:start]

    def without_markers(self) -> PageColumns:
        """The page without directory markers, which are empty objects whose key ends with a slash."""
        if 0 not in self.sizes:
            return self
        rows = [row for row, key in enumerate(self.keys) if self.sizes[row] or key[-1] != "/"]
        if len(rows) == len(self.keys):
            return self
        return PageColumns(
            [self.keys[row] for row in rows],
            [self.sizes[row] for row in rows],
            [self.etags[row] for row in rows],
            [self.crcs[row] for row in rows],
            [self.modified[row] for row in rows],
            self.prefixes,
            self.token,
        )


def read_columns(document: bytes | bytearray) -> PageColumns:
    """Read the answer of a listing request.

    Raises: ValueError, TypeError, KeyError, AttributeError, OverflowError or RecursionError where it is none.
    """
    page, fields = read_shape(document) or _read_json(document)
    if "Code" in page:
        raise ValueError(f"an error in a 200: {page['Code']}: {page.get('Message')}")
    truncated = page.get("IsTruncated")
    if truncated is not None and type(truncated) is not bool:
        raise TypeError(f"neither true nor false: {truncated!r}")
    prefixes = [item["Prefix"] for item in _items(page, "CommonPrefixes")]
    tokens = [page["NextContinuationToken"]] if truncated else []
    keys, etags = _texts(fields["Key"]), _etags(fields["ETag"])
    unknown = [None] * len(keys)
    return PageColumns(
        keys=keys,
        sizes=_sizes(fields["Size"]),
        etags=etags,
        crcs=_crcs(fields.get("HashCrc64ecma", unknown)),
        modified=_times(fields.get("LastModified", unknown)),
        prefixes=_texts(prefixes),
        token=_texts(tokens)[0] if tokens else None,
    )


def _read_json(document: bytes | bytearray) -> tuple[dict[str, Any], dict[str, list[Any]]]:
    """The page, and the values of its objects by name."""
    page = json.loads(document)
    _check_types([page], {dict})
    items = _items(page, "Contents")
    fields = {name: [item[name] for item in items] for name in ("Key", "Size", "ETag")}
    return page, fields | {name: [item.get(name) for item in items] for name in ("HashCrc64ecma", "LastModified")}


def _items(page: dict[str, Any], name: str) -> list[Any]:
    items = page.get(name)
    if items is None:
        return []
    _check_types([items], {list})
    _check_types(items, {dict})
    return items  # type: ignore[no-any-return]  # checked above


def _check_types(values: list[Any], allowed: set[type]) -> None:
    if not allowed.issuperset(map(type, values)):
        wrong = next(value for value in values if type(value) not in allowed)
        raise TypeError(f"a value of the wrong type: {str(wrong)[:100]!r}")


def _texts(values: list[Any]) -> list[str]:
    """Keys, prefixes or tokens, which go into the next request: neither empty nor impossible to write as UTF-8."""
    _check_types(values, {str})
    if "" in values:
        raise ValueError("an empty text where there must be one")
    "".join(values).encode()
    return values


def _etags(values: list[Any]) -> list[str]:
    """ETags without their quotes; they go into the header If-Match, so a line break in one would begin another header."""
    _check_types(values, {str})
    joined = "".join(values)
    if _CONTROL.search(joined):
        raise ValueError("an ETag with control characters")
    joined.encode()
    return [etag.strip('"') for etag in values] if '"' in joined else values


def _sizes(values: list[Any]) -> list[int]:
    _check_types(values, {int})
    if values and (min(values) < 0 or max(values) >= 1 << 63):
        raise ValueError(f"not a size: {min(values)} or {max(values)}")
    return values


def _crcs(values: list[Any]) -> list[int]:
    _check_types(values, {str, int, type(None)})
    try:
        crcs = list(map(int, values))
    except (TypeError, ValueError):
        crcs = [int(value or 0) for value in values]
    if crcs and (min(crcs) < 0 or max(crcs) >= 1 << 64):
        raise ValueError(f"not a CRC64: {min(crcs)} or {max(crcs)}")
    return crcs


class _Minutes(dict[str, float]):
    """Seconds since 1970 at the beginning of a minute, by its text: objects come by the thousand in a minute."""

    def __missing__(self, text: str) -> float:
        if len(self) >= _MOST_MINUTES:
            self.clear()
        found = self[text] = datetime.datetime.fromisoformat(f"{text}:00+00:00").timestamp()
        return found


_minutes = _Minutes()


def _times(values: list[Any]) -> list[float]:
    _check_types(values, {str, type(None)})
    if all(values):
        # The form that the service writes, checked for a page at once: digits where they belong, and seconds below 60.
        stamps = "".join(values).encode()
        if stamps.translate(_DIGITS) == _STAMP * len(values) and max(stamps[17::24], default=0) < ord("6"):
            return [_minutes[text[:16]] + float(text[17:23]) for text in values]
    moments = [parse_time(text or "") for text in values]
    return [_UNKNOWN if moment is None else moment for moment in moments]
