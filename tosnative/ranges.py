"""Half-open byte ranges [start, stop), and the only writer and parser of Range headers (which are inclusive)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

__all__ = ["coalesce", "parse_content_range", "parse_unsatisfied", "range_header", "split"]

_CONTENT_RANGE = re.compile(r"bytes (\d{1,19})-(\d{1,19})/(\d{1,19})")
_UNSATISFIED = re.compile(r"bytes \*/(\d{1,19})")


def split(start: int, stop: int, size: int) -> Iterator[tuple[int, int]]:
    """Yield [start, stop) in order as pieces of `size` bytes; the last may be shorter."""
    if size <= 0:
        raise ValueError(f"pieces of {size} bytes cannot cover a range")
    for at in range(start, stop, size):
        yield at, min(at + size, stop)


def coalesce(ranges: Iterable[tuple[int, int]], gap: int = 0) -> list[tuple[int, int]]:
    """Sort ranges and merge those that overlap, touch, or lie at most `gap` bytes apart; empty ones vanish."""
    merged: list[tuple[int, int]] = []
    for start, stop in sorted(r for r in ranges if r[0] < r[1]):
        if merged and start <= merged[-1][1] + gap:
            merged[-1] = (merged[-1][0], max(merged[-1][1], stop))
        else:
            merged.append((start, stop))
    return merged


def range_header(start: int, stop: int | None) -> str:
    """The value of a Range header for [start, stop), or from start to the object's end where stop is None."""
    if start < 0 or (stop is not None and stop <= start):
        raise ValueError(f"[{start}, {stop}) is no range of bytes")
    return f"bytes={start}-" if stop is None else f"bytes={start}-{stop - 1}"


def parse_content_range(value: str) -> tuple[int, int, int]:
    """Return (start, stop, size of the object) of a Content-Range. Raises: ValueError where it is not one."""
    found = _CONTENT_RANGE.fullmatch(value)
    if not found:
        raise ValueError(f"not a Content-Range: {value[:100]!r}")
    first, last, size = int(found[1]), int(found[2]), int(found[3])
    if first > last or last >= size:
        raise ValueError(f"impossible Content-Range: {value!r}")
    return first, last + 1, size


def parse_unsatisfied(value: str) -> int | None:
    """The object's size from the Content-Range of a 416, None where it does not tell."""
    found = _UNSATISFIED.fullmatch(value)
    return int(found.group(1)) if found else None
