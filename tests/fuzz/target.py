"""What a target of the fuzzers is, and how bytes become the several values that one needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Target", "cut", "take_text"]


@dataclass(frozen=True)
class Target:
    """check: raises for a real defect only, whatever the bytes. seeds: inputs to begin with. words: to build others from."""

    check: Callable[[bytes], None]
    seeds: tuple[bytes, ...]
    words: tuple[bytes, ...] = ()


def cut(data: bytes) -> list[bytes]:
    """The bytes in up to eight pieces: the first byte says into how many, the next ones where."""
    if not data:
        return []
    count = data[0] % 8
    places, rest = data[1 : 1 + count], data[1 + count :]
    edges = sorted(place * (len(rest) + 1) // 256 for place in places)
    return [rest[start:stop] for start, stop in zip([0, *edges], [*edges, len(rest)], strict=True)]


def take_text(data: bytes, separator: bytes = b"\0") -> list[str]:
    """The texts between zero bytes. Lone surrogates stand for bytes that are no UTF-8, as in names of files."""
    return [part.decode("utf-8", "surrogateescape") for part in data.split(separator)]
