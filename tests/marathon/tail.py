"""Tail: one answer in a hundred comes two seconds late. Batches must hardly notice, for hardly more requests.

Batches with and without late answers take turns, so that both see the same machine.
"""

from __future__ import annotations

import random
import time
from dataclasses import dataclass
from typing import Any

from tests.marathon.figures import Progress, summary
from tosnative import CredentialProvider, TosClientConfig, TosMapDataset
from tosnative.testing import LocalTos

BUCKET = "tail"
BATCH = 64
_READ = "GET"


@dataclass(frozen=True)
class Plan:
    """batches: with late answers, and as many without. ttfb_s: what every answer takes besides.

    block: so many batches of one kind before the other's turn.
    """

    seed: int = 1
    batches: int = 40
    block: int = 20
    objects: int = 2_000
    size_bytes: int = 16 << 10
    ttfb_s: float = 0.0
    late_share: float = 0.01
    late_s: float = 2.0


LONG = Plan(batches=3_000, block=150)


class _Batches:
    """Random batches of a dataset, and how long each took. Every sample is compared."""

    def __init__(self, tos: LocalTos, plan: Plan) -> None:
        chance = random.Random(plan.seed)
        pool = chance.randbytes(plan.size_bytes + plan.objects)
        self._data = [pool[n : n + plan.size_bytes] for n in range(plan.objects)]
        for number, data in enumerate(self._data):
            tos.put(BUCKET, f"{number:06d}", data)
        self._chance = chance
        self.dataset: TosMapDataset = TosMapDataset.from_prefix(
            f"tos://{BUCKET}/",
            endpoint=tos.endpoint,
            region=tos.region,
            cred=CredentialProvider(tos.ak, tos.sk),
            client_conf=TosClientConfig(),
            transform=lambda reader: reader.read(),
        )

    def take(self, batches: int) -> list[float]:
        """Seconds of each of so many batches."""
        took = []
        for _ in range(batches):
            rows = self._chance.sample(range(len(self._data)), BATCH)
            began = time.perf_counter()
            samples = self.dataset.__getitems__(rows)
            took.append(time.perf_counter() - began)
            if samples != [self._data[row] for row in rows]:
                raise AssertionError("wrong bytes")
        return took


def run(plan: Plan, quiet: bool = True) -> dict[str, Any]:
    """The figures of both kinds of batches, and the requests that each batch with late answers took more."""
    progress = Progress("tail", 1e9 if quiet else 5.0)
    took: dict[bool, list[float]] = {False: [], True: []}
    requests = {False: 0, True: 0}
    with LocalTos(bucket=BUCKET, process=True, seed=plan.seed, record=False) as tos:
        batches = _Batches(tos, plan)
        batches.take(20)  # connections, and what is known of usual answers
        # Changes nothing: only for its count of requests.
        counter = tos.faults.add(method=_READ, key="*", delay_s=plan.ttfb_s)
        while len(took[True]) < plan.batches:
            late = len(took[False]) > len(took[True])
            fault = tos.faults.add(
                method=_READ, key="*", probability=plan.late_share if late else 0.0, delay_s=plan.late_s
            )
            before = counter.hits
            took[late] += batches.take(plan.block)
            requests[late] += counter.hits - before
            fault.remove()
            progress.say(f"{len(took[True])} of {plan.batches} batches with late answers")
        batches.dataset.close()
    return _figures(plan, took, requests)


def _figures(plan: Plan, took: dict[bool, list[float]], requests: dict[bool, int]) -> dict[str, Any]:
    calm, late = summary(took[False]), summary(took[True])
    return {
        "proof": "tail",
        "seed": plan.seed,
        "ttfb_ms": plan.ttfb_s * 1000,
        "calm": calm,
        "late": late,
        "p99_ratio": round(late["p99_ms"] / calm["p99_ms"], 2),
        "requests": requests[True],
        "requests_per_sample": round(requests[True] / (BATCH * len(took[True])), 4),
        "requests_per_sample_calm": round(requests[False] / (BATCH * len(took[False])), 4),
    }


def judge(found: dict[str, Any], long: bool) -> list[str]:
    """What is not as it must be; the ratio is judged in the long form, where chance has little say."""
    problems = []
    if found["requests_per_sample"] > 1.06:
        problems.append(f"{found['requests_per_sample']} requests for a sample")
    if long and found["p99_ratio"] > 3:
        problems.append(f"p99 is {found['p99_ratio']} times that without late answers")
    return problems
