"""Rank 0 is killed at each request of a save over an older checkpoint: what loads then is the old one or the new one, whole."""

import os
import signal
import threading
from pathlib import Path

import pytest
import torch.distributed.checkpoint as dcp

from tests import dcp_service
from tests.dcp_ranks import Ranks, connection, empty, same, save, state
from tests.dcp_service import URL
from tosnative.dcp import TosStorageReader
from tosnative.testing import Action, LocalTos
from tosnative.testing.messages import Request

tos = dcp_service.tos
pytestmark = dcp_service.ALONE


class Killer:
    """Kills rank 0 when its n-th request has come. refuse: the service does not process it, nor any later one."""

    def __init__(self, number: int, refuse: bool) -> None:
        self._left = number
        self._refuse = refuse
        self._started = threading.Event()
        self._ranks: Ranks | None = None
        self.struck: str | None = None

    def watch(self, ranks: Ranks) -> None:
        self._ranks = ranks
        self._started.set()

    def __call__(self, request: Request) -> Action | None:
        if "/__1_" in (request.key or ""):
            return None  # rank 1 sends its own shard and nothing else
        self._left -= 1
        if self._left == 0:
            self.struck = f"{request.method} {(request.key or '')[-9:]}"
            assert self._started.wait(30)
            assert self._ranks is not None
            pid = self._ranks.processes[0].pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        return Action(reset="before") if self._left <= 0 and self._refuse else None


def loaded(tos: LocalTos, seeds: tuple[int, int]) -> int:
    """The seed of the state that the checkpoint holds, whole. Fails where it holds neither."""
    target = empty(state(seeds[0]))
    dcp.load(target, storage_reader=TosStorageReader(URL, **connection(tos)))
    found = [seed for seed in seeds if same(target, state(seed))]
    assert found, "the checkpoint is neither the old one nor the new one"
    return found[0]


def interrupted(tos: LocalTos, folder: Path, world: int, seed: int, killer: Killer) -> None:
    """A save whose rank 0 is killed, and whose other rank then cannot go on."""
    tos.faults.set_hook(killer)
    ranks = Ranks(world, folder, save, tos, URL, seed)
    killer.watch(ranks)
    ranks.processes[0].join(40)
    assert ranks.processes[0].exitcode == (0 if killer.struck is None else -signal.SIGKILL)
    ranks.end()
    tos.faults.clear()


@pytest.mark.parametrize("world", [1, 2])
@pytest.mark.parametrize("refuse", [True, False], ids=["before", "during"])
def test_rank_0_killed_at_each_request(tos: LocalTos, tmp_path: Path, world: int, refuse: bool) -> None:
    old = 1
    assert Ranks(world, tmp_path, save, tos, URL, old).results() == ["saved"] * world
    struck = []
    for number in range(1, 12):
        killer = Killer(number, refuse)
        interrupted(tos, tmp_path, world, old + 1, killer)
        held = loaded(tos, (old, old + 1))
        if killer.struck is None:
            break
        struck.append((killer.struck, held > old))
        old = held
    assert killer.struck is None
    assert held == old + 1
    names = [request for request, _ in struck]
    assert names[-2:] == ["PUT .metadata", "POST "]
    # Up to the request that commits the old one is there, after it the new one.
    assert [is_new for _, is_new in struck[:-2]] == [False] * (len(struck) - 2)
    assert struck[-1][1]
    assert not (refuse and struck[-2][1])
    # What the dead ones left behind went with the first save that succeeded.
    assert len([key for key in tos.keys("demo") if key.endswith(".distcp")]) == world
