"""Every target of the fuzzers: its seeds, inputs that hypothesis builds, and some thousands that atheris finds."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

ROOT = Path(__file__).resolve().parent.parent.parent
if str(ROOT) not in sys.path:  # as `python -m tests.fuzz` has it
    sys.path.insert(0, str(ROOT))

from tests.fuzz.targets import TARGETS  # noqa: E402 - needs the path

RUNS = 3000


def fuzz(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, errors="replace", timeout=110, check=False)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds(name: str) -> None:
    for seed in (b"", *TARGETS[name].seeds):
        TARGETS[name].check(seed)


@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_hypothesis_builds(name: str) -> None:
    target = TARGETS[name]
    known = st.sampled_from([*target.words, *target.seeds])
    whole = st.tuples(st.binary(max_size=9), known, st.binary(max_size=9)).map(b"".join)

    @settings(deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.binary(max_size=300) | st.lists(known | st.binary(max_size=4), max_size=12).map(b"".join) | whole)
    def run(data: bytes) -> None:
        target.check(data)

    run()


@pytest.mark.timeout(120)
@pytest.mark.skipif(importlib.util.find_spec("atheris") is None, reason="atheris is not installed")
@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_coverage_finds(name: str) -> None:
    done = fuzz(name, "--runs", str(RUNS), "--seed", "7")
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert f"Done {RUNS} runs" in done.stderr


def test_inputs_that_are_mixed_without_atheris() -> None:
    done = fuzz("uri", "--plain", "--runs", "500")
    assert done.returncode == 0, done.stderr[-2000:]
    assert "uri: 500 inputs, no defect" in done.stderr
