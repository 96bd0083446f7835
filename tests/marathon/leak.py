"""Leak: epochs that are broken off early, and what the process holds after each: descriptors, threads, children, memory."""

from __future__ import annotations

import contextlib
import gc
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch.utils.data import DataLoader

from tests.marathon.figures import Progress, held
from tosnative import (
    ConnectionOptions,
    CredentialProvider,
    TosCheckpoint,
    TosClientConfig,
    TosIterableDataset,
    TosMapDataset,
)
from tosnative.testing import LocalTos

BUCKET = "leak"
# How long workers may take to go after their loader has gone.
_SETTLE_S = 10.0


@dataclass(frozen=True)
class Plan:
    """epochs: of each kind of loader in turn, one epoch a turn. The first `warm_up` epochs may still grow."""

    seed: int = 1
    epochs: int = 6
    warm_up: int = 3
    objects: int = 300
    rss_slack_kib: int = 24 << 10
    max_connections: int = 16


LONG = Plan(epochs=50, warm_up=10)


def _first_byte(reader: Any) -> int:
    return len(reader.read())


def run(plan: Plan, quiet: bool = True) -> dict[str, Any]:
    """What this process held after each epoch."""
    progress = Progress("leak", 1e9 if quiet else 5.0)
    chance = random.Random(plan.seed)
    with LocalTos(bucket=BUCKET, process=True, seed=plan.seed, record=False) as tos:
        for number in range(plan.objects):
            tos.put(BUCKET, f"samples/{number:05d}", chance.randbytes(chance.randrange(200_000)))
        loads = _Loads(tos, chance, plan.max_connections)
        seen = []
        for epoch in range(plan.epochs):
            loads.run()
            seen.append(_settled())
            progress.say(f"epoch {epoch + 1} of {plan.epochs}: {seen[-1]}")
        loads.close()
        connections = tos.connections
    return {
        "proof": "leak",
        "seed": plan.seed,
        "epochs": plan.epochs,
        "open_connections": connections,
        **_trend(plan, seen),
    }


class _Loads:
    """One epoch of every kind of loader, each broken off somewhere; and what is begun beside them and never finished."""

    def __init__(self, tos: LocalTos, chance: random.Random, max_connections: int) -> None:
        self._chance = chance
        cred = CredentialProvider(tos.ak, tos.sk)
        config = TosClientConfig(connection=ConnectionOptions(max_connections=max_connections))
        where: dict[str, Any] = {"endpoint": tos.endpoint, "region": tos.region, "cred": cred, "client_conf": config}
        self._store = TosCheckpoint(**where)
        options = {**where, "transform": _first_byte}
        self._stream = TosIterableDataset.from_prefix(f"tos://{BUCKET}/samples/", shuffle=True, **options)
        self._map = TosMapDataset.from_prefix(f"tos://{BUCKET}/samples/", **options)
        self._lasting = DataLoader(self._stream, batch_size=8, num_workers=2, persistent_workers=True)
        self._kinds: list[Callable[[], Any]] = [
            lambda: iter(self._stream),
            lambda: iter(DataLoader(self._stream, batch_size=8)),
            lambda: iter(DataLoader(self._stream, batch_size=8, num_workers=2)),
            lambda: iter(DataLoader(self._map, batch_size=8, num_workers=2, shuffle=True)),
            lambda: iter(self._lasting),
        ]

    def run(self) -> None:
        for kind in self._kinds:
            batches = kind()
            for _ in range(self._chance.randrange(6)):
                next(batches)
            del batches
        self._unfinished()

    def _unfinished(self) -> None:
        key = f"tos://{BUCKET}/samples/{self._chance.randrange(100):05d}"
        self._store.reader(key).read(10)  # neither read to the end nor closed
        writer = self._store.writer(f"tos://{BUCKET}/never")
        writer.write(bytes(9 << 20))
        del writer  # dropped: aborts
        with contextlib.suppress(ZeroDivisionError), self._store.writer(f"tos://{BUCKET}/never") as writer:
            writer.write(bytes(9 << 20))
            _ = 1 / 0

    def close(self) -> None:
        self._stream.close()
        self._map.close()
        self._store.close()


def _held() -> dict[str, int]:
    found = held()
    return {**found, "files": found["fds"] - found["sockets"]}


def _settled() -> dict[str, int]:
    """What is held once it no longer shrinks."""
    gc.collect()
    until = time.monotonic() + _SETTLE_S
    found = _held()
    while time.monotonic() < until:
        time.sleep(0.1)
        later = _held()
        if all(later[name] >= found[name] for name in ("fds", "threads", "children")):
            return later
        found = later
    return found


def _trend(plan: Plan, seen: list[dict[str, int]]) -> dict[str, Any]:
    """The most of each after the warm-up, in the first and in the second half of what follows it."""
    rest = seen[plan.warm_up - 1 :]
    middle = (len(rest) + 1) // 2
    first, second = rest[:middle], rest[middle:]
    return {
        name: {"first": max(found[name] for found in first), "second": max(found[name] for found in second)}
        for name in seen[0]
    }


def judge(plan: Plan, found: dict[str, Any]) -> list[str]:
    """What has grown."""
    # How many idle connections are kept varies from epoch to epoch, up to the limit.
    slack = {"sockets": plan.max_connections, "files": 6, "threads": 0, "children": 0, "rss_kib": plan.rss_slack_kib}
    return [
        f"{name} grew from {found[name]['first']} to {found[name]['second']}"
        for name, allowed in slack.items()
        if found[name]["second"] > found[name]["first"] + allowed
    ]
