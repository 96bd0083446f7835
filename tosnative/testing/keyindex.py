"""The keys of a bucket in the order in which TOS lists them: by their UTF-8 bytes."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator

_BLOCK_KEYS = 1024


class KeyIndex:
    """A sorted set of keys in blocks of bounded size.

    Adding and removing a key costs two bisections and moves at most one block; stepping to the next key is constant, so
    a bucket of a million keys lists in one pass. Python orders strings by code point, which for valid text is the order
    of their UTF-8 bytes, so keys stay strings.

    Invariant: no block is empty, every block is sorted, and each block's last key sorts before the next one's first.
    """

    def __init__(self, keys: Iterable[str] = ()) -> None:
        ordered = sorted(set(keys))
        self._blocks = [ordered[start : start + _BLOCK_KEYS] for start in range(0, len(ordered), _BLOCK_KEYS)]
        self._lasts = [block[-1] for block in self._blocks]

    def __len__(self) -> int:
        return sum(map(len, self._blocks))

    def __iter__(self) -> Iterator[str]:
        return self.from_key("")

    def add(self, key: str) -> None:
        """Adds a key; nothing happens when it is there already."""
        if not self._blocks:
            self._blocks.append([key])
            self._lasts.append(key)
            return
        number = min(bisect_left(self._lasts, key), len(self._blocks) - 1)
        block = self._blocks[number]
        place = bisect_left(block, key)
        if place < len(block) and block[place] == key:
            return
        insort(block, key)
        self._lasts[number] = block[-1]
        if len(block) > 2 * _BLOCK_KEYS:
            self._split(number)

    def _split(self, number: int) -> None:
        block = self._blocks[number]
        # Keys often arrive in order: a last block is cut near its end so that full blocks stay full.
        cut = _BLOCK_KEYS if number < len(self._blocks) - 1 else 2 * _BLOCK_KEYS
        self._blocks[number : number + 1] = [block[:cut], block[cut:]]
        self._lasts[number : number + 1] = [block[cut - 1], block[-1]]

    def remove(self, key: str) -> None:
        """Removes a key; nothing happens when it is not there."""
        number = bisect_left(self._lasts, key)
        if number == len(self._blocks):
            return
        block = self._blocks[number]
        place = bisect_left(block, key)
        if block[place] != key:
            return
        del block[place]
        if block:
            self._lasts[number] = block[-1]
        else:
            del self._blocks[number], self._lasts[number]

    def from_key(self, start: str, *, inclusive: bool = True) -> Iterator[str]:
        """The keys from `start` on, in order; without `start` itself when not inclusive.

        The index must not change while the iterator is in use.
        """
        bisect = bisect_left if inclusive else bisect_right
        first = bisect(self._lasts, start)
        if first == len(self._blocks):
            return
        block = self._blocks[first]
        yield from block[bisect(block, start) :]
        for number in range(first + 1, len(self._blocks)):
            yield from self._blocks[number]


def after_prefix(prefix: str) -> str:
    """The smallest text that sorts after every key with the prefix; only good as a start for `from_key`."""
    trimmed = prefix.rstrip("\U0010ffff")
    return trimmed[:-1] + chr(ord(trimmed[-1]) + 1) if trimmed else "\U0010ffff" * 2000
