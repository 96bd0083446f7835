"""Where to split a range of keys: guesses at texts in the middle, from the keys that were seen.

Only the balance of a split depends on a guess, never what is listed: a range is cut at a text, whether there is such a
key or not. Keys are in the order of their UTF-8 bytes, which is that of their code points, and so of str.
"""

from __future__ import annotations

import string
from bisect import bisect_right

__all__ = ["KeySpace"]

_DIGITS, _LOWER, _UPPER = set(string.digits), set(string.ascii_lowercase), set(string.ascii_uppercase)
_HEX = _DIGITS | set("abcdef")
# How many characters behind what two keys share are told apart; enough for long numbers and hashes.
_DEPTH = 24
_MOST_DEPTH = 96
_MOST_BYTES = 1024  # a key has no more
_MANY = 1 << 40


class KeySpace:
    """What is known of the keys under a prefix: the characters at each place, completed to the kinds that they are of.

    A text is read as the digits of a number, in a base of its own at each place; 0 is the end of the text.
    """

    def __init__(self, prefix: str) -> None:
        self._prefix = prefix
        self._seen: list[set[str]] = []  # by place behind the prefix
        self._alphabets: list[list[str]] = []

    def learn(self, key: str) -> None:
        """Take note of a key that begins with the prefix."""
        tail = key[len(self._prefix) :]
        while len(self._seen) < len(tail):
            self._seen.append(set())
            self._alphabets.append([])
        for place, char in enumerate(tail):
            if char not in self._seen[place]:
                self._seen[place].add(char)
                self._alphabets[place] = _completed(self._seen[place])

    def pages_left(self, first: str, last: str, stop: str | None) -> int:
        """How many pages of keys as dense as one from `first` to `last` would fill what follows, up to `stop`.

        None for `stop` is the end of the prefix.
        """
        shared = _shared(first, last)
        start = min(shared, _shared(first, stop or self._prefix))
        depth = min(_DEPTH + shared - start, _MOST_DEPTH)
        a, b, c = (self._number(key, start, depth) for key in (first, last, stop))
        return min(_MANY, (c - b) // (b - a)) if b > a else _MANY

    def between(self, low: str, high: str | None) -> str | None:
        """A text with low < text < high about halfway, None where there is none to be guessed.

        Begins with the prefix, as both do; None for `high` is the end of the prefix. Can be written as UTF-8 if they can.
        """
        start = _shared(low, high or self._prefix)
        middle = (self._number(low, start, _DEPTH) + self._number(high, start, _DEPTH)) // 2
        text = low[:start] + self._text(middle, start)
        # A short one says the same, and one character more than it takes keeps the balance.
        for stop in range(start + 1, len(text) + 1):
            if text[:stop] > low:
                text = text[: stop + 1]
                break
        inside = low < text and (high is None or text < high)
        return text if inside and len(text.encode()) <= _MOST_BYTES else None

    def _alphabet(self, place: int) -> list[str]:
        """The characters at a place of a whole key, in order."""
        place -= len(self._prefix)
        return self._alphabets[place] if place < len(self._alphabets) else []

    def _number(self, key: str | None, start: int, depth: int) -> int:
        """Monotone: no text has a greater number than one that follows it."""
        number, whole, beyond = 0, 1, False
        for place in range(start, start + depth):
            alphabet = self._alphabet(place)
            base = len(alphabet) + 1
            number *= base
            whole *= base
            if beyond:  # an unknown character stands behind all that begins with the known one before it
                number += base - 1
            elif key is not None and place < len(key):
                digit = bisect_right(alphabet, key[place])
                number += digit
                beyond = digit == 0 or alphabet[digit - 1] != key[place]
        return whole if key is None else number

    def _text(self, number: int, start: int) -> str:
        """The text of a number, of _DEPTH places from `start`."""
        digits = []
        for place in range(start + _DEPTH - 1, start - 1, -1):
            number, digit = divmod(number, len(self._alphabet(place)) + 1)
            digits.append((place, digit))
        text = ""
        for place, digit in reversed(digits):
            if digit == 0:
                break
            text += self._alphabet(place)[digit - 1]
        return text


def _shared(one: str, other: str) -> int:
    """How many characters both begin with."""
    for place, (a, b) in enumerate(zip(one, other, strict=False)):
        if a != b:
            return place
    return min(len(one), len(other))


def _completed(seen: set[str]) -> list[str]:
    """All characters of the kinds that were seen, in order."""
    found = set(seen)
    if seen & _DIGITS:
        found |= _DIGITS
    if seen & _LOWER:
        found |= _HEX if seen <= _HEX and seen & _DIGITS else _LOWER
    if seen & _UPPER:
        found |= _UPPER
    return sorted(found)
