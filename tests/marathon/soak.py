"""Soak: every kind of load at once for a long time, with a little trouble all along; one line of figures a minute."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.marathon.connectors import OURS, Place
from tests.marathon.corpus import MIB, Corpus
from tests.marathon.faults_mix import FaultsMix
from tests.marathon.figures import Progress, held, summary
from tests.marathon.reading import Check, LoaderLeg, Tally, ThreadLeg
from tosnative import TosCheckpoint, TosIterableDataset, TosMapDataset
from tosnative.testing import LocalTos

BUCKET = "soak"


@dataclass(frozen=True)
class Plan:
    """seconds: of load. minute_s: between two lines. share: of the GETs that meet a fault.

    trouble_s: between two outages (503 for outage_s) and restarts, which take turns.
    """

    seed: int = 1
    seconds: float = 8.0
    minute_s: float = 2.0
    share: float = 0.01
    trouble_s: float = 3.0
    outage_s: float = 0.5
    timeout_s: float = 1.0
    rss_slack_kib: int = 64 << 10
    fd_slack: int = 64


LONG = Plan(seconds=3600.0, minute_s=60.0, trouble_s=240.0, outage_s=10.0, timeout_s=5.0)


class SaveLeg:
    """Saves and reads back, over and over: the key must hold what was written last and committed."""

    def __init__(self, seed: int, place: Place, tally: Tally) -> None:
        self._chance = random.Random(f"{seed}/saves")
        self._place, self._tally = place, tally
        self._store = TosCheckpoint(**place.keywords())
        self._committed = b""
        self._pool = self._chance.randbytes(24 * MIB)
        self._save()

    def close(self) -> None:
        self._store.close()

    def run(self, rounds: int) -> None:
        for _ in range(rounds):
            try:
                began = time.perf_counter()
                right = self._round()
                took = time.perf_counter() - began
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a save that failed
                self._tally.fail("save", error)
            else:
                self._tally.add(("save", right, took, os.getpid(), self._place.counters()))

    def _round(self) -> bool:
        if self._chance.random() < 0.2:
            with self._store.writer(self._place.url("saved/state")) as writer:
                writer.write(self._pool[: 9 * MIB])
                writer.abort()
        else:
            self._save()
        with self._store.reader(self._place.url("saved/state")) as reader:
            right: bool = reader.read() == self._committed
        return right

    def _save(self) -> None:
        size = int(2 ** self._chance.uniform(0, 24.5))
        at = self._chance.randrange(len(self._pool))
        data = (self._pool[at:] + self._pool[:at])[:size]
        with self._store.writer(self._place.url("saved/state")) as writer:
            writer.write(data)
        self._committed = data


class Trouble(threading.Thread):
    """Outages and restarts of the server, in turns, until the end."""

    def __init__(self, tos: LocalTos, plan: Plan, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._tos, self._plan, self._over = tos, plan, over
        self.outages = self.restarts = 0

    def run(self) -> None:
        while not self._over.wait(self._plan.trouble_s):
            if self.outages > self.restarts:
                self._tos.stop()
                self._over.wait(self._plan.outage_s / 4)
                self._tos.start()
                self.restarts += 1
            else:
                fault = self._tos.faults.add(status=503, for_s=self._plan.outage_s)
                self._over.wait(self._plan.outage_s)
                fault.remove()
                self.outages += 1


def run(plan: Plan, as_line: Callable[[dict[str, Any]], str], quiet: bool = True) -> dict[str, Any]:
    """The figures of the whole; those of each minute are printed as they come. as_line: figures to text."""
    progress = Progress("soak", 1e9 if quiet else 0.0)
    with LocalTos(bucket=BUCKET, process=True, seed=plan.seed, record=False) as tos:
        corpus, tally, over = Corpus(plan.seed), Tally(), threading.Event()
        for key, data in corpus.items():
            tos.put(BUCKET, key, data)
        limits: dict[str, Any] = {"first_byte_s": plan.timeout_s, "stall_s": plan.timeout_s}
        place = Place(OURS, tos.endpoint, tos.region, tos.ak, tos.sk, BUCKET, **limits)
        legs = _legs(plan, place, corpus, tally)
        mix, trouble = FaultsMix(tos, plan.share), Trouble(tos, plan, over)
        threads = [threading.Thread(target=_repeat, args=(leg, rounds, over), daemon=True) for leg, rounds in legs]
        for thread in (*threads, trouble):
            thread.start()
        minutes = _minutes(plan, tally, lambda found: progress.say(as_line(found)))
        over.set()
        for thread in (*threads, trouble):
            thread.join(120)
        hung = sum(thread.is_alive() for thread in (*threads, trouble))
        for leg, _ in legs:
            leg.close()
        struck = sum(mix.hits().values())
        uploads = len(tos.uploads(BUCKET))
    troubles = {"struck": struck, "outages": trouble.outages, "restarts": trouble.restarts}
    return {"proof": "soak", "seed": plan.seed, "hung": hung, "uploads": uploads, **troubles, **_whole(tally, minutes)}


def _legs(plan: Plan, place: Place, corpus: Corpus, tally: Tally) -> list[tuple[Any, int]]:
    """Each leg, and how many reads it does between two looks at the clock. Workers are forked here."""
    where = {**place.keywords()}
    url = place.url("whole/")
    stream = TosIterableDataset.from_prefix(url, transform=Check(place, corpus, "stream"), **where)
    mapped = TosMapDataset.from_prefix(url, transform=Check(place, corpus, "map"), **where)
    return [
        (LoaderLeg("stream", stream, tally), 150),
        (LoaderLeg("map", mapped, tally), 150),
        *((ThreadLeg(number, plan.seed, place, corpus, tally), 20) for number in range(2)),
        (SaveLeg(plan.seed, place, tally), 1),
    ]


def _repeat(leg: Any, rounds: int, over: threading.Event) -> None:
    while not over.is_set():
        leg.run(rounds)


def _minutes(plan: Plan, tally: Tally, say: Callable[[dict[str, Any]], None]) -> list[dict[str, Any]]:
    """The figures of each minute."""
    until = time.monotonic() + plan.seconds
    found: list[dict[str, Any]] = []
    done = 0
    while (left := until - time.monotonic()) > 0:
        time.sleep(min(plan.minute_s, left))
        totals = tally.totals()
        minute = {
            "reads": tally.done - done,
            "wrong": len(tally.wrong),
            "failed": len(tally.failed),
            "retries": totals.get("retries", 0),
            "hedges": totals.get("hedges", 0),
            **summary(tally.take_waits()),
            **held(),
        }
        done = tally.done
        say(minute)
        found.append(minute)
    return found


def _whole(tally: Tally, minutes: list[dict[str, Any]]) -> dict[str, Any]:
    """The sums, and the most that was held in the second and in the last quarter of the time."""
    quarter = max(1, len(minutes) // 4)
    early, late = minutes[quarter : 2 * quarter] or minutes, minutes[-quarter:]
    names = ("fds", "threads", "children", "rss_kib")
    return {
        "reads": tally.done,
        "wrong": len(tally.wrong),
        "failed": len(tally.failed),
        "examples": tally.failed[:3],
        "counters": tally.totals(),
        **{name: {"early": max(m[name] for m in early), "late": max(m[name] for m in late)} for name in names},
    }


def judge(plan: Plan, found: dict[str, Any], long: bool) -> list[str]:
    """What is not as it must be. What is held is judged in the long form only: a few seconds are all warm-up."""
    problems = [
        f"{name} = {found[name]} {found['examples']}" for name in ("wrong", "failed", "hung", "uploads") if found[name]
    ]
    slack = {"fds": plan.fd_slack, "threads": 4, "children": 0, "rss_kib": plan.rss_slack_kib} if long else {}
    for name, allowed in slack.items():
        if found[name]["late"] > found[name]["early"] + allowed:
            problems.append(f"{name} grew from {found[name]['early']} to {found[name]['late']}")
    return problems
