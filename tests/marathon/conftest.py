"""The proofs run by their commands, each in a process of its own, as whoever reproduces a figure runs them."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="session")
def proof() -> Callable[..., dict[str, Any]]:
    """Run a proof in its short form with every warning an error; returns its figures. Fails where it does not hold."""

    def run(*arguments: str, timeout_s: float = 100) -> dict[str, Any]:
        command = [sys.executable, "-W", "error", "-m", "tests.marathon", *arguments, "--json"]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
        assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return run
