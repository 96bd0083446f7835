"""Whom we measure, and how each is run: in processes of its own, by the Python that has it."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contents import Contents
from rows import Settings

HERE = Path(__file__).resolve().parent
PEER_VARIABLE = "TOSNATIVE_PEER_PYTHON"
PEERS = {"peer": "tostorchconnector", "tosfsspec": "tosfsspec", "tosfs": "tosfs"}
# Under another name the same driver does other work: here, what remains of torch.load without a transfer.
RENAMED = {("memory", "load"): "load_from_memory"}


@dataclass(frozen=True)
class Side:
    """A client (or the limit) and the command of its driver."""

    name: str
    command: tuple[str, ...]


@dataclass(frozen=True)
class Asked:
    """A job for a side."""

    workload: str
    endpoint: str
    settings: Settings


def find_sides() -> tuple[dict[str, Side], list[str]]:
    """The sides that can be run here, and a note for each that cannot."""
    mine = sys.executable
    sides = {
        "ours": driver("ours", mine, "torch_side.py", "tosnative"),
        "memory": driver("memory", mine, "torch_side.py", "tosnative"),
        "sdk": driver("sdk", mine, "sdk_side.py", "tos"),
        "limit": driver("limit", mine, "limit.py", "-"),
    }
    notes = []
    python = os.environ.get(PEER_VARIABLE)
    for name, module in PEERS.items():
        if not python:
            notes.append(f"{name} is left out: {PEER_VARIABLE} names no Python that has {module}")
        elif not has_module(python, module):
            notes.append(f"{name} is left out: {python} has no {module}")
        else:
            script = "torch_side.py" if name == "peer" else "fsspec_side.py"
            sides[name] = driver(name, python, script, module)
    return sides, notes


def driver(name: str, python: str, script: str, module: str) -> Side:
    return Side(name, (python, str(HERE / script), module))


def has_module(python: str, module: str) -> bool:
    code = f"import importlib.util, sys; sys.exit(importlib.util.find_spec({module!r}) is None)"
    return subprocess.run([python, "-c", code], check=False).returncode == 0


def run_side(
    side: Side, asked: list[Asked], contents: Contents, timeout_s: float
) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Do the jobs in one new process. Returns a result for each (with "error" where it failed), and the versions."""
    output, trouble = run_to_end((*side.command, as_json(side, asked, contents)), timeout_s)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    versions = lines.pop(0)["versions"] if lines else {}
    return completed(lines, len(asked), trouble), versions


def as_json(side: Side, asked: list[Asked], contents: Contents) -> str:
    jobs = [
        {
            "workload": RENAMED.get((side.name, one.workload), one.workload),
            "endpoint": one.endpoint,
            "contents": dataclasses.asdict(contents),
            "settings": one.settings,
        }
        for one in asked
    ]
    return json.dumps(jobs)


def completed(results: list[dict[str, Any]], count: int, trouble: str) -> list[dict[str, Any]]:
    missing = {"error": trouble or "the process ended without an answer"}
    return results + [missing] * (count - len(results))


def run_to_end(command: tuple[str, ...], timeout_s: float) -> tuple[str, str]:
    """What a command printed, and what went wrong: "" for nothing. A hanging one is killed with all it started."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True)
    try:
        output, _ = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
        return output, f"took longer than {timeout_s:g} s"
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return output, "" if process.returncode == 0 else f"ended with exit code {process.returncode}"


class Driver:
    """A side's driver that waits, everything imported, and forks a process for each run."""

    def __init__(self, side: Side) -> None:
        self._side = side
        self._process = subprocess.Popen(
            (*side.command, "serve"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
        )
        first = self._line()
        self.versions: dict[str, str] = {} if first is None else first["versions"]
        self.usable = first is not None

    def run(self, asked: list[Asked], contents: Contents, timeout_s: float) -> list[dict[str, Any]]:
        """As run_side. Where a run hangs, the driver is killed with all it started, and not usable any more."""
        assert self._process.stdin is not None
        self._process.stdin.write(as_json(self._side, asked, contents) + "\n")
        self._process.stdin.flush()
        timer = threading.Timer(timeout_s, self.close)
        timer.start()
        results: list[dict[str, Any]] = []
        while (line := self._line()) is not None and "ended" not in line:
            results.append(line)
        timer.cancel()
        self.usable = line is not None
        trouble = f"took longer than {timeout_s:g} s" if line is None else f"ended with exit code {line['ended']}"
        return completed(results, len(asked), trouble)

    def _line(self) -> dict[str, Any] | None:
        """What the driver says next, None at its end; what its clients print does not count."""
        assert self._process.stdout is not None
        line = next((line for line in self._process.stdout if line.startswith("{")), None)
        return None if line is None else json.loads(line)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self.usable = False
