"""What a training script does with each sample, and beside reading: work that holds the GIL, work that frees it, uploads."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

from contents import BUCKET, MIB, WRITTEN

_HASHED = bytes(16 << 10)  # hashlib frees the GIL for more than 2,047 bytes
_UPLOADED = bytes(64) * (MIB // 64)


def spin(count: int) -> None:
    """Work that holds the GIL; as much of it whatever else is going on."""
    for _ in range(count):
        pass


def digest(count: int) -> None:
    """Work that frees it."""
    for _ in range(count):
        hashlib.sha256(_HASHED).digest()


def per_ms(work: Callable[[int], None], count: int) -> int:
    """How many turns of this work take a millisecond here; every side then makes the same number."""
    return round(count / shortest(work, count) / 1000)


def shortest(work: Callable[[int], None], count: int) -> float:
    """Seconds that so many turns take when nothing disturbs them."""

    def once() -> float:
        began = time.perf_counter()
        work(count)
        return time.perf_counter() - began

    return min(once() for _ in range(5))


@contextlib.contextmanager
def uploading(checkpoint: Any, wanted: bool) -> Iterator[dict[str, int]]:
    """Meanwhile one object after the other of 64 MiB is written in another thread. Yields how many MiB were, at the end."""
    done = {"uploaded_mib": 0}
    ended = threading.Event()

    def upload() -> None:
        while not ended.is_set():
            with checkpoint.writer(f"tos://{BUCKET}/{WRITTEN}") as writer:
                for _ in range(64):
                    writer.write(_UPLOADED)
            done["uploaded_mib"] += 64

    thread = threading.Thread(target=upload)
    if wanted:
        thread.start()
    try:
        yield done
    finally:
        ended.set()
        if wanted:
            thread.join()
