"""Which samples are whose: ranks first, then the workers of a rank. The rank is looked up when iteration begins."""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeGuard, TypeVar

import torch
import torch.distributed as dist
from torch.utils.data import get_worker_info

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeAlias

    from torch.distributed import ProcessGroup
    from torch.distributed.device_mesh import DeviceMesh

    Sharding: TypeAlias = bool | tuple[int, int] | ProcessGroup | DeviceMesh | None

__all__ = [
    "Shard",
    "Sharding",
    "Uneven",
    "check_sharding",
    "current_rank",
    "current_worker",
    "equalise",
    "portable",
    "split",
]

if not TYPE_CHECKING:
    Sharding = Any

Uneven = Literal["exact", "drop", "pad"]
UNEVEN: tuple[Uneven, ...] = ("exact", "drop", "pad")

Positions = TypeVar("Positions", torch.Tensor, list[int])


class Shard(NamedTuple):
    """Whose part of an epoch: rank of `world`, and in it worker of `workers`."""

    rank: int = 0
    world: int = 1
    worker: int = 0
    workers: int = 1


def equalise(order: torch.Tensor, world: int, uneven: Uneven) -> torch.Tensor:
    """The epoch's order, made fit for `world` ranks that each take every world-th sample of it.

    "exact": as it is. Every sample comes exactly once; the first len(order) % world ranks get one sample more. "drop":
    the last len(order) % world samples are left out, fewer than `world` of them, so every rank gets equally many.
    "pad": the first samples of the order are repeated at its end, again fewer than `world` of them (over and over where
    the order is shorter than `world`), so every rank gets equally many, and only padding is seen by more than one.

    With "drop" and "pad", ranks that use the same number of workers and the same batch size also get equally many
    batches: a rank's batches depend on the number of its samples alone.
    """
    count = len(order)
    extra = count % world
    if uneven == "exact" or extra == 0:
        return order
    if uneven == "drop":
        return order[: count - extra]
    missing = world - extra
    return torch.cat([order, order.repeat(-(-missing // count))[:missing]])


def split(order: Positions, shard: Shard) -> Positions:
    """The part of an (equalised) order that belongs to one worker of one rank.

    Rank r takes order[r::world]; of those, worker w takes every workers-th, beginning with the w-th. So the parts of
    all workers of all ranks are disjoint in positions and cover the order.
    """
    return order[shard.rank + shard.worker * shard.world :: shard.world * shard.workers]


def check_sharding(sharding: Sharding) -> Sharding:
    """Return what was asked for. Raises: ValueError where it cannot be a sharding."""
    if sharding is None or isinstance(sharding, bool):
        return sharding
    if isinstance(sharding, tuple):
        if len(sharding) == 2 and all(type(number) is int for number in sharding) and 0 <= sharding[0] < sharding[1]:
            return sharding
        raise ValueError(f"sharding=(rank, world) needs 0 <= rank < world, not {sharding!r}")
    if _is_mesh(sharding):
        if sharding.ndim != 1:
            raise ValueError(
                f"sharding needs one dimension of the mesh, such as mesh['dp'], not all {sharding.ndim} of them"
            )
        return sharding
    if dist.is_available() and isinstance(sharding, dist.ProcessGroup):
        return sharding
    if dist.is_available() and sharding == dist.GroupMember.NON_GROUP_MEMBER:
        raise ValueError("sharding=ProcessGroup: this process is no member of the group")
    raise ValueError(
        f"sharding must be True, False, (rank, world), a ProcessGroup or a DeviceMesh dimension, not {sharding!r}"
    )


def current_rank(sharding: Sharding) -> tuple[int, int]:
    """(rank, world) by what was asked for, as it is now.

    None and False are (0, 1): no split over ranks. True is the default process group, and (0, 1) while there is none.
    """
    if sharding is None or sharding is False:
        return 0, 1
    if isinstance(sharding, tuple):
        return sharding
    if sharding is True:
        return (dist.get_rank(), dist.get_world_size()) if _initialised() else (0, 1)
    if isinstance(sharding, dist.ProcessGroup):
        rank = dist.get_rank(sharding)
        if rank < 0:
            raise ValueError("sharding=ProcessGroup: this process is no member of the group")
        return rank, dist.get_world_size(sharding)
    return sharding.get_local_rank(), sharding.size()


def portable(sharding: Sharding) -> Sharding:
    """What a process that is started afresh can use in its place: process groups do not travel, numbers do."""
    if sharding is None or sharding is False or isinstance(sharding, tuple):
        return sharding
    if sharding is True and not _initialised():
        return sharding
    return current_rank(sharding)


def current_worker() -> tuple[int, int]:
    """(worker, workers) of the DataLoader whose worker this process is; (0, 1) in the main process."""
    info = get_worker_info()
    return (0, 1) if info is None else (info.id, info.num_workers)


def unsharded_ranks(first_time: Callable[[], bool]) -> None:
    """Warn where several ranks are about to read all samples each, and nobody said whether that is meant.

    Only the first worker of rank 0 warns; `first_time` is asked last, and tells whether it was not done yet.
    """
    if (
        not _initialised()
        or dist.get_world_size() == 1
        or dist.get_rank() != 0
        or current_worker()[0] != 0
        or not first_time()
    ):
        return
    warnings.warn(
        f"torch.distributed runs {dist.get_world_size()} ranks, and this dataset gives each of them every sample: pass "
        "sharding=True to split it over the ranks, or sharding=False where something else splits (Accelerate, "
        "Lightning, tensor parallel groups)",
        stacklevel=4,
    )


def doubly_sharded(world: int, first_time: Callable[[], bool]) -> None:
    """Warn where this dataset splits over ranks in a process in which Accelerate runs, which splits again by itself.

    Only the first worker of rank 0 warns; `first_time` is asked last, and tells whether it was not done yet.
    """
    state = getattr(sys.modules.get("accelerate.state"), "PartialState", None)
    processes = getattr(state, "_shared_state", {}).get("num_processes") or 1
    if world == 1 or processes == 1 or current_worker()[0] != 0 or (_initialised() and dist.get_rank() != 0):
        return
    if first_time():
        warnings.warn(
            f"this dataset gives each of {world} ranks its part, and Accelerate runs {processes} processes: if its "
            "prepare() is given the DataLoader, it splits again and most samples are never seen; pass sharding=False then",
            stacklevel=4,
        )


def _initialised() -> bool:
    return dist.is_available() and dist.is_initialized()


def _is_mesh(sharding: object) -> TypeGuard[DeviceMesh]:
    # By its methods: importing DeviceMesh fails where torch was built without distributed.
    return hasattr(sharding, "get_local_rank") and hasattr(sharding, "mesh_dim_names")
