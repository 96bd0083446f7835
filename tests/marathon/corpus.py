"""Objects whose every byte is known from a seed, so that any range of any of them can be checked in any process."""

from __future__ import annotations

import random
from collections.abc import Iterator

KIB, MIB = 1 << 10, 1 << 20


class Corpus:
    """Each object is a stretch of one random pool, at an offset of its own, so that no two objects agree anywhere.

    whole/: small ones, read as samples. ranged/: read at random places. large/: several parts each.
    """

    def __init__(self, seed: int, whole: int = 400, ranged: int = 48, large: int = 4) -> None:
        chance = random.Random(seed)
        self._pool = chance.randbytes(12 * MIB)
        self._at: dict[str, tuple[int, int]] = {}
        for number in range(whole):
            self._add(chance, f"whole/{number:05d}", int(KIB * 2 ** chance.uniform(0, 7.5)))
        self._add(chance, "whole/empty", 0)
        for number in range(ranged):
            self._add(chance, f"ranged/{number:05d}", int(64 * KIB * 2 ** chance.uniform(0, 4.5)))
        for number in range(large):
            self._add(chance, f"large/{number:05d}", 5 * MIB + chance.randrange(MIB))

    def _add(self, chance: random.Random, key: str, size: int) -> None:
        self._at[key] = chance.randrange(len(self._pool) - size), size

    def size(self, key: str) -> int:
        return self._at[key][1]

    def keys(self, prefix: str) -> list[str]:
        return [key for key in self._at if key.startswith(prefix)]

    def content(self, key: str, start: int = 0, stop: int | None = None) -> bytes:
        """The bytes [start, stop) of the object, clamped to its end."""
        at, size = self._at[key]
        end = size if stop is None else min(stop, size)
        return self._pool[at + min(start, size) : at + end]

    def items(self) -> Iterator[tuple[str, bytes]]:
        for key in self._at:
            yield key, self.content(key)
