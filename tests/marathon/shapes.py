"""What the write marathon saves: contents known from their name and generation, and the ways in which code saves them."""

from __future__ import annotations

import contextlib
import hashlib
import io
import random
from collections.abc import Callable
from typing import Any

KIB, MIB = 1 << 10, 1 << 20
Between = Callable[[], None]


def raw(size: int, piece: int) -> Callable[[int, Any, Between], None]:
    """Random bytes, written `piece` at a time."""

    def write(generation: int, file: Any, between: Between) -> None:
        data = random.Random(f"{size}/{generation}").randbytes(size)
        for at in range(0, size, piece):
            between()
            file.write(data[at : at + piece])
        between()

    return write


def saved(side: int) -> Callable[[int, Any, Between], None]:
    """torch.save of a small state with one matrix of side x side."""

    def write(generation: int, file: Any, between: Between) -> None:
        import torch  # the exit of a process that has it takes half a second: not where it is not needed

        between()
        chance = torch.Generator().manual_seed(generation)
        torch.save({"weights": torch.rand(side, side, generator=chance), "step": generation}, file)
        between()

    return write


# Up to one part of 4 MiB goes by a single PUT, more as a multipart upload.
RAW: dict[str, Callable[[int, Any, Between], None]] = {
    "empty": raw(0, 1),
    "small": raw(100 * KIB, 10 * KIB),
    "one_part": raw(4 * MIB, 256 * KIB),
    "four_parts": raw(12 * MIB + 500 * KIB, 300 * KIB),
    "one_write": raw(20 * MIB + 1, 32 * MIB),
}
TORCH: dict[str, Callable[[int, Any, Between], None]] = {
    "torch_small": saved(200),
    "torch_parts": saved(1600),
}
SHAPES = {**RAW, **TORCH}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def expected(shape: str, generation: int) -> str:
    """The digest of what a whole save leaves under the key."""
    file = io.BytesIO()
    SHAPES[shape](generation, file, lambda: None)
    return digest(file.getvalue())


def by_with(writer: Any, fill: Callable[[Any], None]) -> None:
    with writer:
        fill(writer)


def by_close(writer: Any, fill: Callable[[Any], None]) -> None:
    fill(writer)
    writer.close()


def by_finally(writer: Any, fill: Callable[[Any], None]) -> None:
    try:
        fill(writer)
    finally:
        writer.close()


def by_closing(writer: Any, fill: Callable[[Any], None]) -> None:
    with contextlib.closing(writer):
        fill(writer)


STYLES: dict[str, Callable[[Any, Callable[[Any], None]], None]] = {
    "with": by_with,
    "close": by_close,
    "finally": by_finally,
    "closing": by_closing,
}
