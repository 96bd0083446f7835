"""The five proofs in their short form. None judges a time; the long forms, by command, do where that is what they prove."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.marathon.faults_mix import KINDS, WHOLE_KINDS

Proof = Callable[..., dict[str, Any]]


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_reads_meet_every_kind_of_fault_and_come_right(proof: Proof) -> None:
    found = proof("read")
    struck = found["faults"]["struck"]
    assert all(struck[kind] for kind in (*KINDS, *WHOLE_KINDS)), struck
    assert struck["outage"]
    assert struck["restarts"] == 1
    assert found["faults"]["counters"]["retries"]
    assert found["faults"]["reads"] >= 2_900


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_interrupted_saves_leave_the_old_object_or_the_new_one_and_no_upload(proof: Proof) -> None:
    found = proof("write")["ours"]
    assert found["done"] == 40
    assert found["struck"] >= 38
    assert {"old", "new"} <= found["states"].keys()
    assert found["left_by_kill"] + found["orphans"] == found["aborted_by_janitor"] > 0


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_late_answers_cost_few_requests(proof: Proof) -> None:
    found = proof("tail")
    assert found["late"]["count"] == found["calm"]["count"] == 40


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_epochs_broken_off_leave_nothing_behind(proof: Proof) -> None:
    assert proof("leak")["epochs"] == 6


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_mixed_load_goes_on_through_outages_and_restarts(proof: Proof) -> None:
    found = proof("soak")
    assert found["outages"]
    assert found["restarts"]
    assert found["counters"]["bytes_sent"]
