"""Read the objects of a page by their shape: what a service writes for one object it writes, in the same places, for all.

The first object is read as JSON and becomes a pattern for all others, at half the cost of a JSON parser. They are the first
one's text with other values, which hold no quote and no escape, and nothing but a comma stands between them; a page of which
that is not true (with another storage class among the objects, say) is left to the parser. Control characters in a value, which
JSON has escaped, are taken as they stand.
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
        value: Any = {2: f'"{found[2]}"', 3: found[3], 4: found[4]}[kind]
        if kind == 4 and found[1] not in _NUMBERS:
            return None
        # The name of a value inside another, or one that is there twice, is not to be told apart here.
        if first.get(found[1]) != (int(value) if kind == 4 else value) or text.count(f'"{found[1]}"', start, stop) > 1:
            return None
        names.append(found[1])
        gaps.append(text[at:left])
        pattern += re.escape(text[at:left]) + ("(0|[1-9][0-9]*)" if kind == 4 else '([^"]*)')
        at = right
    gaps.append(text[at:stop])
    present = [name for name in _NAMES if first.get(name) is not None]
    if sorted(names) != sorted(present) or not {"Key", "Size", "ETag"}.issubset(names):
        return None
    # What stands before the first object, then its values, then what stands before the next, and so on.
    parts: list[Any] = re.split(pattern + re.escape(gaps[-1]), text[start:])
    step = len(names) + 1
    between = parts[step:-1:step]
    if parts[0] or between.count(",") != len(between):
        return None
    fields = {name: parts[place::step] for place, name in enumerate(names, 1)}
    if any("\\" in "".join(column) for column in fields.values()):
        return None
    for name in _NUMBERS:
        if type(first.get(name)) is int:
            fields[name] = list(map(int, fields[name]))
    return fields, len(text) - len(parts[-1])
