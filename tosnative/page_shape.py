"""Read the objects of a page by their shape: what a service writes for one object it writes, in the same places, for all.

The first object is read as JSON and becomes a pattern for all others, which takes a third of what a JSON parser does. It is
proven that they are the first one's text with other values, without a gap; a page of which that is not true (another
storage class among them, an escape in a key) is left to the parser.
"""

from __future__ import annotations

import json
import re
from typing import Any

__all__ = ["read_shape"]

_CONTENTS = re.compile(r'"Contents"\s*:\s*\[(?=\{)')
_NAMES = ("Key", "Size", "ETag", "HashCrc64ecma", "LastModified")
_NUMBERS = ("Size", "HashCrc64ecma")
_VALUE = re.compile(rf'"({"|".join(_NAMES)})"\s*:\s*(?:"(?:\\"([^"\\]*)\\"|([^"\\]*))"|([0-9]+)(?=[,}}\s]))')
_DECODER = json.JSONDecoder()

Fields = dict[str, list[Any]]


def read_shape(document: bytes | bytearray) -> tuple[dict[str, Any], Fields] | None:
    """The page without its objects, and their values by name: strings or integers; None where it has to be parsed.

    A name that is missing among the fields is missing, or null, in every object. The quotes around an ETag may be left out.
    """
    try:
        text = document.decode()
        found = _CONTENTS.search(text)
        if found is None:
            return None
        start = found.end()
        first, stop = _DECODER.raw_decode(text, start)
        read = _read_rows(text, start, stop, first)
        if read is None:
            return None
        fields, end = read
        page = json.loads(text[:start] + text[end:])
    except (ValueError, RecursionError):
        return None
    return (page, fields) if type(page) is dict and page.get("Contents") == [] else None


def _read_rows(text: str, start: int, stop: int, first: dict[str, Any]) -> tuple[Fields, int] | None:
    """The values of the objects like the one at [start, stop), which is `first`, and where the last of them ends."""
    names, gaps, pattern = [], [], ""
    at = start
    for found in _VALUE.finditer(text, start, stop):
        kind = found.lastindex or 0
        left, right = found.span(kind)
        if kind == 4 and found[1] not in _NUMBERS:
            return None
        names.append(found[1])
        gaps.append(text[at:left])
        pattern += re.escape(text[at:left]) + ("(0|[1-9][0-9]*)" if kind == 4 else '([^"]*)')
        at = right
    gaps.append(text[at:stop])
    # A name that comes twice, or inside another value, cannot be told apart like this.
    present = [name for name in _NAMES if first.get(name) is not None]
    if sorted(names) != sorted(present) or not {"Key", "Size", "ETag"}.issubset(names):
        return None
    rows = re.compile(pattern + re.escape(gaps[-1])).findall(text, start)
    columns: list[Any] = list(zip(*rows, strict=True))
    joined = ["".join(column) for column in columns]
    # As long as the rows with commas between them, and the last row at the end of that: nothing was passed over.
    end = start + len(rows) * (1 + sum(map(len, gaps))) - 1 + sum(map(len, joined))
    last = "".join([part for pair in zip(gaps, (*rows[-1], ""), strict=True) for part in pair])
    # No quote is in a value. No escape either, and no control character, which JSON does not allow.
    if not text.endswith(last, start, end) or not all("\\" not in all_ and all_.isprintable() for all_ in joined):
        return None
    fields = {name: list(column) for name, column in zip(names, columns, strict=True)}
    for name in _NUMBERS:
        if type(first.get(name)) is int:
            fields[name] = list(map(int, fields[name]))
    return fields, end
