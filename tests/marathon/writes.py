"""Write marathon: saves that are interrupted at a random request, in a random way, and what they leave behind.

After each the key must be as it was before, or hold all of what was saved; and no upload may be left open, except by a
process that was killed at once, whose upload `tosnative uploads --abort-older-than` must find and abort.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from tests.marathon.connectors import OURS, PEER, Place
from tests.marathon.figures import Progress
from tests.marathon.saver import ROOT, Saver
from tests.marathon.shapes import RAW, SHAPES, STYLES, TORCH, digest
from tests.marathon.writing import Ended
from tosnative.testing import LocalTos
from tosnative.testing.errors import ServiceError

BUCKET = "saves"
SIGNALS = {
    "exception": signal.SIGUSR1,
    "sigterm": signal.SIGTERM,
    "sigkill": signal.SIGKILL,
    "fork": signal.SIGUSR2,
    "fork_in_thread": signal.SIGUSR2,
}


@dataclass(frozen=True)
class Plan:
    """How many saves, and what decides their crash points. save_s: a save that takes longer has hung.

    first_byte_s: when ours asks again; the peer has no such setting.

    The peer's run ends after peer_s: where an answer never comes, it does not react to signals.
    """

    seed: int = 1
    saves: int = 24
    save_s: float = 40.0
    first_byte_s: float = 3.0
    peer_save_s: float = 10.0
    peer_s: float = 20.0


LONG = Plan(saves=500, first_byte_s=30.0, peer_s=600.0)


@dataclass(frozen=True)
class Case:
    """One save: of what, how, over an old object or not, and where it is struck by what.

    request: the number of the save's request at which it happens, from 1. before: the service has not processed it;
    otherwise it has, and the answer is lost. A fork happens while the request is slow.
    """

    shape: str
    style: str
    over_old: bool
    kind: str
    request: int
    before: bool

    def __str__(self) -> str:
        when = "before" if self.before else "after"
        old = "over an old object" if self.over_old else "on a new key"
        return f"{self.kind} {when} request {self.request} of {self.shape} by {self.style} {old}"


@dataclass
class Outcomes:
    """What the saves left behind. faults: each a broken promise; orphans: uploads whose id the client never learned."""

    states: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    faults: list[str] = field(default_factory=list)
    left_by_kill: int = 0
    aborted_by_janitor: int = 0
    orphans: int = 0
    struck: int = 0
    hung: int = 0
    slowest: tuple[float, str] = (0.0, "")

    def figures(self) -> dict[str, Any]:
        counts = {
            name: getattr(self, name) for name in ("struck", "hung", "left_by_kill", "aborted_by_janitor", "orphans")
        }
        return {
            "faults": len(self.faults),
            "examples": self.faults[:5],
            **counts,
            "slowest": f"{self.slowest[0]:.1f} s: {self.slowest[1]}",
            "states": dict(self.states),
            "endings": dict(self.endings),
        }


class Marathon:
    """The saves of one connector, against one server."""

    def __init__(self, tos: LocalTos, savers: Iterable[Saver], save_s: float) -> None:
        self._tos = tos
        self._save_s = save_s
        self._saver_of = {shape: saver for saver in savers for shape in saver.known}
        self._old: dict[str, bytes] = {}
        self._requests: dict[str, int] = {}
        self.outcomes = Outcomes()

    def learn(self) -> None:
        """Save everything once without trouble: that gives the old objects, and how many requests a save takes."""
        for shape, saver in self._saver_of.items():
            self._tos.clear_requests()
            saver.start(key="learn", shape=shape, style="with", generation=0, fork_in_thread=False)
            if saver.ended(self._save_s) != Ended.SAVED:
                raise RuntimeError(f"{shape} cannot be saved even without trouble")
            self._requests[shape] = sum(request.key == "learn" for request in self._tos.requests)
            self._old[shape] = self._tos.get(BUCKET, "learn")
            if digest(self._old[shape]) != saver.known[shape][0]:
                raise RuntimeError(f"{shape} was not saved as written, even without trouble")

    def case(self, chance: random.Random) -> Case:
        # Every request of every shape is as likely.
        shape = chance.choices(list(SHAPES), [self._requests[shape] for shape in SHAPES])[0]
        return Case(
            shape,
            chance.choice(list(STYLES)),
            chance.random() < 0.5,
            chance.choice(list(SIGNALS)),
            chance.randint(1, self._requests[shape]),
            chance.random() < 0.5,
        )

    def run(self, number: int, case: Case) -> None:
        key = f"save-{number:05d}"
        if case.over_old:
            self._tos.put(BUCKET, key, self._old[case.shape])
        began = time.monotonic()
        ended = self._save(key, case)
        if ended is None:
            self.outcomes.hung += 1
            self._fault(case, "hung")
        took = time.monotonic() - began
        self.outcomes.slowest = max(self.outcomes.slowest, (took, str(case)))
        self._judge(key, case, ended)
        self._tos.faults.clear()
        self._tos.delete(BUCKET, key)

    def _save(self, key: str, case: Case) -> int | None:
        """Save and strike; returns how it ended, None where it hung and had to be killed."""
        slow = {"delay_s": 0.15} if "fork" in case.kind else {"hang": "before" if case.before else "after"}
        fault = self._tos.faults.add(key=key, skip=case.request - 1, times=1, **slow)
        saver = self._saver_of[case.shape]
        pid = saver.start(
            key=key,
            shape=case.shape,
            style=case.style,
            generation=1,
            fork_in_thread=case.kind == "fork_in_thread",
        )
        until = time.monotonic() + self._save_s
        while not fault.hits and not saver.ready(0.001):
            if time.monotonic() > until:
                break
        if fault.hits and not saver.ready(0):
            self.outcomes.struck += 1
            os.kill(pid, SIGNALS[case.kind])
        ended = saver.ended(max(0.0, until - time.monotonic()))
        if ended is None:
            os.kill(pid, signal.SIGKILL)
            saver.ended(10.0)
        return ended

    def _judge(self, key: str, case: Case, ended: int | None) -> None:
        state = self._state(key, case)
        name = "hung" if ended is None else Ended(ended).name.lower() if ended >= 0 else "killed"
        self.outcomes.states[state] += 1
        self.outcomes.endings[f"{case.kind}:{name}"] += 1
        if state == "torn":
            self._fault(case, f"the key holds neither the old object nor the new one, whole ({name})")
        if state == "lost":
            self._fault(case, f"the old object is gone ({name})")
        if name == "saved" and state != "new":
            self._fault(case, f"the save succeeded, but the key is {state}")
        if "fork" in case.kind and name != "saved":
            self._fault(case, f"a fork disturbed the save: {name}")
        if name == "unknown" and case.kind != "sigterm":
            self._fault(case, "an outcome that is not known, without an interruption")
        if name == "replaced" and not (case.shape in TORCH and case.style == "close"):
            # Where torch.save replaces an error and nothing of the writer is called any more, nothing can put it right.
            self._fault(case, "the error that the application raised was replaced by another")
        if name == "other_error":
            self._fault(case, "ended in an error of its own")
        self._judge_uploads(key, case, name)

    def _state(self, key: str, case: Case) -> str:
        """absent, old, new, torn, or lost: absent though there was an old one."""
        try:
            data = self._tos.get(BUCKET, key)
        except ServiceError:
            return "lost" if case.over_old else "absent"
        if digest(data) == self._saver_of[case.shape].known[case.shape][1]:
            return "new"
        return "old" if case.over_old and data == self._old[case.shape] else "torn"

    def _judge_uploads(self, key: str, case: Case, name: str) -> None:
        left = [found for found, _ in self._tos.uploads(BUCKET)]
        if not left:
            return
        # Nobody can abort an upload whose id was in the answer that never came.
        unanswered = case.request == 1 and not case.before and "fork" not in case.kind
        if case.kind == "sigkill" or name == "killed":
            self.outcomes.left_by_kill += len(left)
        elif unanswered:
            self.outcomes.orphans += len(left)
        else:
            self._fault(case, f"left {len(left)} open uploads ({name})")
        self.outcomes.aborted_by_janitor += self._janitor(key)
        if self._tos.uploads(BUCKET):
            self._fault(case, "the janitor did not abort every upload")
            for found, upload in self._tos.uploads(BUCKET):
                raise RuntimeError(f"cannot go on with upload {upload} of {found}")

    def _janitor(self, key: str) -> int:
        """Abort what is open, by the command; returns how many it says it aborted."""
        self._tos.faults.clear()
        command = [sys.executable, "-m", "tosnative", "uploads", f"tos://{BUCKET}/{key}", "--abort-older-than", "0s"]
        done = subprocess.run(
            [*command, "--json"],
            env={**os.environ, **self._tos.environ()},
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        return sum(json.loads(line)["aborted"] for line in done.stdout.splitlines())

    def _fault(self, case: Case, what: str) -> None:
        self.outcomes.faults.append(f"{case}: {what}")


def run(plan: Plan, peer_python: str | None = None, quiet: bool = True) -> dict[str, Any]:
    """The figures of so many saves; with `peer_python`, of the peer's beside ours."""
    found: dict[str, Any] = {"proof": "write", "seed": plan.seed, "saves": plan.saves}
    found["ours"] = _one(plan, OURS, sys.executable, quiet)
    if peer_python:
        found["peer"] = _one(plan, PEER, peer_python, quiet)
    return found


def judge(found: dict[str, Any]) -> list[str]:
    """What is not as it must be."""
    problems = list(found["ours"]["examples"]) if found["ours"]["faults"] else []
    if found["ours"]["left_by_kill"] + found["ours"]["orphans"] != found["ours"]["aborted_by_janitor"]:
        problems.append(f"the janitor says that it aborted {found['ours']['aborted_by_janitor']}")
    return problems


def _one(plan: Plan, connector: str, python: str, quiet: bool) -> dict[str, Any]:
    progress = Progress(f"write {connector}", 1e9 if quiet else 5.0)
    chance = random.Random(plan.seed)
    with LocalTos(bucket=BUCKET, process=True, seed=plan.seed) as tos:
        ours = connector == OURS
        endpoint = tos.endpoint if ours else tos.localhost_endpoint
        place = Place(
            connector, endpoint, tos.region, tos.ak, tos.sk, BUCKET, part_size=4 << 20, first_byte_s=plan.first_byte_s
        )
        began = time.monotonic()
        savers = [Saver(place, python, shapes) for shapes in (RAW, TORCH)]
        try:
            marathon = Marathon(tos, savers, plan.save_s if ours else plan.peer_save_s)
            marathon.learn()
            for number in range(plan.saves):
                marathon.run(number, marathon.case(chance))
                if not ours and time.monotonic() - began > plan.peer_s:
                    break
                progress.say(f"{number + 1} of {plan.saves} saves, {len(marathon.outcomes.faults)} faults")
        finally:
            for saver in savers:
                saver.close()
        return {"done": number + 1, **marathon.outcomes.figures(), "seconds": round(time.monotonic() - began, 1)}
