"""The five proofs in their short form. None judges a time; the long forms, by command, do where that is what they prove."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent


def proof(name: str) -> dict[str, Any]:
    """Run a proof by its command with every warning an error; returns its figures. Fails where it does not hold."""
    command = [sys.executable, "-W", "error", "-m", "tests.marathon", name, "--json"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, f"{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_reads_meet_every_kind_of_fault_and_come_right() -> None:
    found = proof("read")
    struck = found["faults"]["struck"]
    assert sum(not hits for hits in struck.values()) <= 3, struck  # chance may leave out a kind
    assert struck["outage"]
    assert struck["restarts"] == 1
    assert found["faults"]["counters"]["retries"]
    assert found["faults"]["reads"] >= 2_900


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_interrupted_saves_leave_the_old_object_or_the_new_one_and_no_upload() -> None:
    found = proof("write")["ours"]
    assert found["done"] == 24
    assert found["struck"] >= 22
    assert {"old", "new"} <= found["states"].keys()
    assert found["left_by_kill"] + found["orphans"] == found["aborted_by_janitor"] > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_late_answers_cost_few_requests() -> None:
    found = proof("tail")
    assert found["late"]["count"] == found["calm"]["count"] == 40


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_epochs_broken_off_leave_nothing_behind() -> None:
    assert proof("leak")["epochs"] == 6


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_mixed_load_goes_on_through_outages_and_restarts() -> None:
    found = proof("soak")
    assert found["outages"]
    assert found["restarts"]
    assert found["counters"]["bytes_sent"]
