"""Programs that save and load distributed checkpoints in several processes, and the states that they save."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch
import torch._dynamo
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed._tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.device_mesh import init_device_mesh

import tosnative.wire.sdk
from tosnative.config import TosClientConfig
from tosnative.dcp import TosStorageReader, TosStorageWriter
from tosnative.testing import LocalTos

# Ranks are forked from a server that has imported already what each would import for itself: seconds for each of them.
_PRELOADED = (torch._dynamo, tosnative.wire.sdk)
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["tests.dcp_ranks"])
_RANKS_S = 50.0


class Ranks:
    """So many processes that run `program(rank, world, *arguments)` inside a gloo process group."""

    def __init__(self, world: int, folder: Path, program: Callable[..., Any], *arguments: Any) -> None:
        store = folder / f"store-{time.monotonic_ns()}"
        self.processes: list[BaseProcess] = []
        self._pipes: list[Connection] = []
        for rank in range(world):
            ours, theirs = _CONTEXT.Pipe(duplex=False)
            process = _CONTEXT.Process(target=_run, args=(rank, world, store, theirs, program, arguments), daemon=True)
            process.start()
            theirs.close()
            self.processes.append(process)
            self._pipes.append(ours)

    def results(self) -> list[Any]:
        """What each rank returned, an exception that it raised as its text. Raises: TimeoutError, with all ranks ended."""
        until = time.monotonic() + _RANKS_S
        try:
            found = []
            for pipe in self._pipes:
                if not pipe.poll(max(0.0, until - time.monotonic())):
                    raise TimeoutError("a rank hangs")
                found.append(pipe.recv())
            return found
        finally:
            self.end()

    def end(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        for pipe in self._pipes:
            pipe.close()


def _run(
    rank: int, world: int, store: Path, pipe: Connection, program: Callable[..., Any], arguments: tuple[Any, ...]
) -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    try:
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=world)
        found = program(rank, world, *arguments)
        dist.barrier()
    except BaseException:  # noqa: BLE001 - told to the test; a CheckpointException is no Exception
        found = traceback.format_exc()
    pipe.send(found)
    pipe.close()


def connection(tos: LocalTos) -> dict[str, Any]:
    """Parts are small, so that the shard of a single rank comes in several."""
    config = TosClientConfig(part_size=4 << 20)
    return {"region": tos.region, "endpoint": tos.endpoint, "cred": tos.cred, "client_conf": config}


def state(seed: int) -> dict[str, Any]:
    """A state of 4.4 MB that differs from that of any other seed everywhere."""
    chance = torch.Generator().manual_seed(seed)
    return {
        "model": {
            "uneven": torch.randn(37, 8, generator=chance),
            "wide": torch.randn(768, 700, generator=chance),
            "half": torch.randn(640, 900, generator=chance).bfloat16(),
            "bias": torch.randn(5, generator=chance),
        },
        "optimizer": {"momentum": torch.randn(400, 700, generator=chance), "step": seed, "name": f"seed {seed}" * seed},
    }


def sharded(full: dict[str, Any], world: int, dim: int) -> dict[str, Any]:
    """The state with each matrix spread over the ranks along `dim`, and the rest on every rank."""
    mesh = init_device_mesh("cpu", (world,))
    return {
        part: {
            name: distribute_tensor(value, mesh, [Shard(dim) if value.ndim == 2 else Replicate()])
            if isinstance(value, torch.Tensor)
            else value
            for name, value in values.items()
        }
        for part, values in full.items()
    }


def same(loaded: dict[str, Any], expected: dict[str, Any]) -> bool:
    for part, values in expected.items():
        for name, value in values.items():
            found = loaded[part][name]
            if isinstance(found, DTensor):
                found = found.full_tensor()
            if not (torch.equal(found, value) if isinstance(value, torch.Tensor) else found == value):
                return False
    return True


def empty(like: dict[str, Any]) -> dict[str, Any]:
    return {
        part: {
            name: torch.zeros_like(value) if isinstance(value, torch.Tensor) else None for name, value in values.items()
        }
        for part, values in like.items()
    }


def save(rank: int, world: int, tos: LocalTos, url: str, seed: int) -> str:
    dcp.save(sharded(state(seed), world, 0), storage_writer=TosStorageWriter(url, **connection(tos)))
    return "saved"


def load(rank: int, world: int, tos: LocalTos, url: str, seed: int, dim: int) -> bool:
    """Whether the checkpoint loads as the state of this seed."""
    target = sharded(empty(state(seed)), world, dim)
    dcp.load(target, storage_reader=TosStorageReader(url, **connection(tos)))
    return same(target, state(seed))
