"""Read marathon: objects whose bytes are known are read in every way while requests meet faults of every kind.

In the middle the service answers 503 to everything for a while, and later it is away and comes back.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from tests.marathon.connectors import OURS, PEER, Place
from tests.marathon.corpus import Corpus
from tests.marathon.faults_mix import FaultsMix
from tests.marathon.figures import Progress
from tosnative.testing import LocalTos

# How long a process that has read everything may take to end.
_EXIT_S = 30.0
ROOT = Path(__file__).resolve().parent.parent.parent


@dataclass(frozen=True)
class Plan:
    """reads: of all kinds together. share: of requests that meet a fault. outage_s: of 503. away_s: without a server.

    silent: faults of all kinds; False leaves out those after which nothing comes any more.

    bound_s: a run that takes longer has hung; peer_bound_s: the same for the peer, which waits long for what never comes.
    """

    seed: int = 1
    reads: int = 3_000
    share: float = 0.05
    outage_s: float = 2.0
    away_s: float = 0.5
    silent: bool = True
    first_byte_s: float = 1.0
    stall_s: float = 1.0
    bound_s: float = 45.0
    peer_bound_s: float = 45.0


LONG = Plan(reads=200_000, outage_s=20.0, away_s=3.0, first_byte_s=5.0, stall_s=5.0, bound_s=1500.0, peer_bound_s=600.0)


def run(plan: Plan, peer_python: str | None = None, quiet: bool = True) -> dict[str, Any]:
    """The figures of a run with faults, and of the same run without; with `peer_python`, the peer's beside ours."""
    with LocalTos(bucket="marathon", process=True, seed=plan.seed, record=False) as tos:
        for key, data in Corpus(plan.seed).items():
            tos.put("marathon", key, data)
        found: dict[str, Any] = {"proof": "read", "seed": plan.seed, "share": plan.share}
        found["calm"] = _one(tos, replace(plan, share=0.0), OURS, sys.executable, quiet)
        found["faults"] = _one(tos, plan, OURS, sys.executable, quiet)
        if peer_python:
            theirs = replace(plan, bound_s=plan.peer_bound_s)
            found["peer_calm"] = _one(tos, replace(theirs, share=0.0), PEER, peer_python, quiet)
            found["peer_faults"] = _one(tos, theirs, PEER, peer_python, quiet)
            found["peer_answered"] = _one(tos, replace(theirs, silent=False), PEER, peer_python, quiet)
    return found


def judge(found: dict[str, Any]) -> list[str]:
    """What is not as it must be."""
    problems = []
    for name in ("calm", "faults"):
        figures = found[name]
        for count in ("wrong", "failed", "hung"):
            if figures[count]:
                problems.append(f"{name}: {count} = {figures[count]}: {figures['examples']}")
    return problems


def _one(tos: LocalTos, plan: Plan, connector: str, python: str, quiet: bool) -> dict[str, Any]:
    endpoint = tos.endpoint if connector == OURS else tos.localhost_endpoint
    place = Place(
        connector,
        endpoint,
        tos.region,
        tos.ak,
        tos.sk,
        "marathon",
        first_byte_s=plan.first_byte_s,
        stall_s=plan.stall_s,
    )
    spec = {**asdict(plan), "place": place.as_dict()}
    progress = Progress(f"read {connector} {'with' if plan.share else 'without'} faults", 1e9 if quiet else 5.0)
    command = [python, "-m", "tests.marathon.reading", json.dumps(spec)]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes) as reading:
        try:
            figures = _follow(tos, plan, reading, progress)
            tos.faults.clear()
            figures["hung"] = figures["hung"] or not _ended(reading)
            return figures
        finally:
            tos.faults.clear()
            with contextlib.suppress(ProcessLookupError):
                os.killpg(reading.pid, signal.SIGKILL)  # with its workers


def _ended(reading: subprocess.Popen[str]) -> bool:
    """Whether the program ends by itself, its workers included, once all is read."""
    try:
        return reading.wait(_EXIT_S) == 0
    except subprocess.TimeoutExpired:
        return False


def _follow(tos: LocalTos, plan: Plan, reading: subprocess.Popen[str], progress: Progress) -> dict[str, Any]:
    assert reading.stdin is not None
    assert reading.stdout is not None
    trouble = Trouble(tos, plan) if plan.share else None
    for line in reading.stdout:
        said = json.loads(line)
        if "ready" in said:
            if trouble is not None:
                trouble.begin()
            reading.stdin.write("\n")
            reading.stdin.flush()
        elif "figures" in said:
            figures: dict[str, Any] = said["figures"]
            if trouble is not None:
                figures["struck"] = trouble.struck()
            return figures
        else:
            progress.say(f"{said['done']} of {plan.reads} reads, {said['failed']} failed")
            if trouble is not None:
                trouble.at(said["done"] / plan.reads)
    raise RuntimeError(f"the reading program ended early: {reading.wait()}")


class Trouble:
    """What happens to the server while a run goes on."""

    def __init__(self, tos: LocalTos, plan: Plan) -> None:
        self._tos, self._plan = tos, plan
        self._mix: FaultsMix | None = None
        self._outage: Any = None
        self._away = False

    def begin(self) -> None:
        self._mix = FaultsMix(self._tos, self._plan.share, self._plan.silent)

    def at(self, done: float) -> None:
        """So much of the run is done, 0 to 1."""
        if done >= 0.3 and self._outage is None:
            self._outage = self._tos.faults.add(method="GET", status=503, for_s=self._plan.outage_s)
        if done >= 0.6 and not self._away:
            self._away = True
            self._tos.stop()
            time.sleep(self._plan.away_s)
            self._tos.start()

    def struck(self) -> dict[str, int]:
        assert self._mix is not None
        hits = self._mix.hits()
        outage = self._outage.hits if self._outage is not None else 0
        return {"total": sum(hits.values()), "outage": outage, "restarts": int(self._away), **hits}
