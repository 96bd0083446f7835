"""The program that saves, as a process that can be asked for one save after another."""

from __future__ import annotations

import json
import select
import subprocess
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tests.marathon.connectors import Place

ROOT = Path(__file__).resolve().parent.parent.parent


class Saver:
    """The program that saves some shapes, at the other end of two pipes."""

    def __init__(self, place: Place, python: str, shapes: Iterable[str]) -> None:
        spec = {"place": place.as_dict(), "shapes": list(shapes)}
        command = [python, "-m", "tests.marathon.writing", json.dumps(spec)]
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.known: dict[str, list[str]] = self._said(60.0)["known"]

    def start(self, **asked: Any) -> int:
        """Start a save; returns its process id."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asked) + "\n")
        self._process.stdin.flush()
        return int(self._said(30.0)["pid"])

    def ended(self, within_s: float) -> int | None:
        """How the save ended, or None where it has not in this time."""
        return int(self._said(0)["ended"]) if self.ready(within_s) else None

    def ready(self, within_s: float) -> bool:
        assert self._process.stdout is not None
        return bool(select.select([self._process.stdout], [], [], within_s)[0])

    def _said(self, within_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        if not self.ready(within_s):
            raise TimeoutError("the saving program says nothing")
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the saving program ended: {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
