"""What the command prints: lines for people, JSON for programs, progress on a terminal."""

from __future__ import annotations

import json
import sys
import threading
import time
from datetime import datetime, timezone
from types import TracebackType

__all__ = ["Progress", "complain", "count", "say", "say_json", "size_text", "time_text"]

_UNITS = ("KiB", "MiB", "GiB", "TiB", "PiB")
_REDRAW_S = 0.1


def say(text: str) -> None:
    """One line on standard output."""
    sys.stdout.write(text + "\n")


def say_json(value: object) -> None:
    """One JSON value on a line of its own; text that is not ASCII stays readable."""
    say(json.dumps(value, ensure_ascii=False))


def complain(text: str) -> None:
    """One line on standard error: whatever line breaks the text has become spaces."""
    sys.stderr.write(f"tosnative: {' '.join(text.split())}\n")


def size_text(size: float) -> str:
    """Bytes for people: 999 B, 1.5 KiB, 20.0 GiB."""
    if size < 1024:
        return f"{int(size)} B"
    for unit in _UNITS:
        size /= 1024
        if size < 1024 or unit == _UNITS[-1]:
            break
    return f"{size:.1f} {unit}"


def time_text(seconds: float | None) -> str:
    """Seconds since 1970 as UTC, to the second; "-" where unknown."""
    if seconds is None:
        return "-"
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def count(number: int, noun: str) -> str:
    """1 object, 1,234 objects."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


class Progress:
    """Objects and bytes done so far, drawn over itself on standard error while that is a terminal.

    Counts whether it draws or not; any thread may add. Leaving the `with` block wipes the line.
    """

    def __init__(self, total: int | None = None) -> None:
        self.objects = self.bytes = 0
        self.started = time.monotonic()
        self._total = total
        self._lock = threading.Lock()  # guards the counts and the terminal's line
        self._drawn = 0.0
        self._draws = sys.stderr.isatty()

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._drawn:
            sys.stderr.write("\r\x1b[K")
            sys.stderr.flush()

    @property
    def seconds(self) -> float:
        return max(time.monotonic() - self.started, 1e-9)

    def add(self, objects: int = 0, size: int = 0) -> None:
        with self._lock:
            self.objects += objects
            self.bytes += size
            now = time.monotonic()
            if self._draws and now - self._drawn >= _REDRAW_S:
                self._drawn = now
                sys.stderr.write("\r\x1b[K" + self._line())
                sys.stderr.flush()

    def _line(self) -> str:
        of = "" if self._total is None else f" of {self._total:,}"
        return f"{self.objects:,}{of} objects   {size_text(self.bytes)}   {size_text(self.bytes / self.seconds)}/s"
