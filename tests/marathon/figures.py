"""Figures of a run: percentiles, what this process holds, and how they are printed."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def percentile(values: Sequence[float], share: float) -> float:
    """The smallest value that at least `share` (0 to 1) of all do not exceed; NaN of nothing."""
    if not values:
        return math.nan
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, max(0, math.ceil(share * len(ordered)) - 1))]


def summary(seconds: Sequence[float]) -> dict[str, float]:
    """Count, median and tail of durations, in milliseconds."""
    if not seconds:
        return {"count": 0}
    marks = {"p50_ms": 0.5, "p99_ms": 0.99, "p999_ms": 0.999, "max_ms": 1.0}
    found = {name: round(percentile(seconds, share) * 1000, 3) for name, share in marks.items()}
    return {"count": len(seconds), **found}


def held() -> dict[str, int]:
    """What this process holds now: descriptors, of which sockets, threads, children, and resident memory in KiB."""
    status = Path("/proc/self/status").read_text()
    facts = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    return {
        "fds": len(os.listdir("/proc/self/fd")) - 1,  # one of them is the listing itself
        "sockets": _sockets(),
        "threads": int(facts["Threads"]),
        "children": len(_children()),
        "rss_kib": int(facts["VmRSS"].split()[0]),
    }


def _sockets() -> int:
    found = 0
    for number in os.listdir("/proc/self/fd"):
        try:
            found += os.readlink(f"/proc/self/fd/{number}").startswith("socket:")
        except FileNotFoundError:
            continue  # the listing itself, or one that was closed meanwhile
    return found


def _children() -> list[str]:
    found: list[str] = []
    for task in os.listdir("/proc/self/task"):
        try:
            found += Path(f"/proc/self/task/{task}/children").read_text().split()
        except FileNotFoundError:
            continue  # the thread has ended meanwhile
    return found


class Progress:
    """Prints a line on standard error now and then: at most one every `every_s`."""

    def __init__(self, proof: str, every_s: float = 5.0) -> None:
        self._proof = proof
        self._every = every_s
        self._began = self._last = time.monotonic()

    def say(self, text: str, now: bool = False) -> None:
        moment = time.monotonic()
        if now or moment - self._last >= self._every:
            self._last = moment
            print(f"{self._proof} {moment - self._began:6.1f} s  {text}", file=sys.stderr, flush=True)


def line(figures: dict[str, Any], as_json: bool) -> str:
    """All figures in one line: as JSON, or as name=value with nested names joined by dots."""
    return json.dumps(figures) if as_json else " ".join(_flat(figures, ""))


def _flat(figures: dict[str, Any], prefix: str) -> list[str]:
    shown: list[str] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            shown += _flat(value, f"{prefix}{name}.")
        else:
            shown.append(f"{prefix}{name}={value:.4g}" if isinstance(value, float) else f"{prefix}{name}={value}")
    return shown
