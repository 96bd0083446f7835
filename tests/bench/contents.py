"""What the servers of a run hold. Both ends know it, so that nothing has to be listed or agreed upon first."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import cycle, islice

MIB = 1 << 20
BUCKET = "bench"
LISTED_BUCKET = "listed"
REGION = "cn-test"
BLOCK_BYTES = 64 * MIB

BIG, WRITTEN, CHECKPOINT = "big.bin", "written.bin", "checkpoint.pt"
LISTED_PREFIX = "train/"
SIZES = tuple((4 << 10) << (2 * step) for step in range(8))  # 4 KiB ... 64 MiB, for the curve over object sizes


@dataclass(frozen=True)
class Contents:
    """How much there is of everything.

    small: objects of small_bytes. big_bytes: of the one large object, of what is written, and of the checkpoint.
    volumes: objects of volume_bytes. listed: keys in the bucket that is only there to be listed. sized_bytes: bytes in
    each series of the curve over object sizes, 0 for no such series. ranges: random reads in the large object.
    """

    small: int = 2000
    small_bytes: int = 100 << 10
    big_bytes: int = 1 << 30
    volumes: int = 16
    volume_bytes: int = 140 * MIB
    listed: int = 1_000_000
    ranges: int = 4096
    range_bytes: int = 64 << 10
    sized_bytes: int = 0

    def small_keys(self) -> list[str]:
        return [f"small/{number:05d}.bin" for number in range(self.small)]

    def volume_keys(self) -> list[str]:
        return [f"volume/{number:03d}.bin" for number in range(self.volumes)]

    def sized_keys(self, size: int) -> list[str]:
        """The series of objects of one size: at least 8, at most 2,000."""
        count = max(8, min(2000, self.sized_bytes // size))
        return [f"sized/{size}/{number:05d}.bin" for number in range(count)]

    def objects(self) -> Iterator[tuple[str, int]]:
        """Every object that is there from the start, with its size in bytes."""
        for key in self.small_keys():
            yield key, self.small_bytes
        yield BIG, self.big_bytes
        for key in self.volume_keys():
            yield key, self.volume_bytes
        for size in SIZES if self.sized_bytes else ():
            for key in self.sized_keys(size):
                yield key, size

    def range_offsets(self) -> list[int]:
        """Where the random reads begin: the same for every side."""
        chance = random.Random(7)
        return [chance.randrange(self.big_bytes - self.range_bytes) for _ in range(self.ranges)]


LONG = Contents()
SHORT = Contents(
    small=128, big_bytes=24 * MIB, volumes=4, volume_bytes=12 * MIB, listed=3000, ranges=64, small_bytes=100 << 10
)


def repeated(keys: list[str], count: int | None) -> list[str]:
    """The first `count` of the keys, which begin anew when they are used up; None takes each once."""
    return keys if count is None else list(islice(cycle(keys), count))


def block() -> bytes:
    """Bytes that do not compress; every object is made of pieces of them."""
    return random.Random(1).randbytes(BLOCK_BYTES)


def pieces(size: int, number: int) -> Iterator[tuple[int, int]]:
    """The pieces [start, stop) of the block that make the object with this number, of `size` bytes."""
    start = (number * 4096) % (BLOCK_BYTES // 2)
    while size:
        taken = min(size, BLOCK_BYTES - start)
        yield start, start + taken
        size -= taken
        start = 0
