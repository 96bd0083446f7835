"""The reads of one rank's share of a distributed checkpoint: which ranges of which shards, many in flight, into which memory.

A large tensor is received where it belongs, or in one piece beside it; what is small is received in common ranges.
"""

from __future__ import annotations

import io
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from itertools import groupby
from operator import attrgetter
from typing import NamedTuple

import torch
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlanner, ReadItem

import tosnative.crc64 as crc64_
from tosnative.buffers import allocate
from tosnative.client import Download
from tosnative.dcp_items import StorageInfo, crc64_of, is_plain, memory_of, tensor_place
from tosnative.errors import TosError, TosIntegrityError, TosNotFoundError
from tosnative.fills import cancel_all, fetch
from tosnative.metrics import METRICS
from tosnative.prefetch import prefetch
from tosnative.ranges import coalesce, split
from tosnative.version import ObjectVersion

__all__ = ["Read", "fetch_reads", "plan_read"]

_MIB = 1 << 20
# From here on a read has requests of its own.
_LARGE = _MIB
# Between two small reads of one request lie at most this many bytes that nobody wants ...
_GAP = 64 * 1024
# ... and all that nobody wants is at most one part in so many of what is wanted.
_WASTE = 32
# Inside a common buffer a tensor may lie at an address that its type does not allow.
_ALIGNED = 16
# Ranges in flight together, where the configuration leaves it open.
_IN_FLIGHT = 64


class Region(NamedTuple):
    """A box of a stored tensor: elements [first, stop) of it, in which the box has these strides."""

    first: int
    stop: int
    lengths: tuple[int, ...]
    strides: tuple[int, ...]

    @property
    def dense(self) -> bool:
        """Whether it has no elements between its own."""
        return self.stop - self.first == math.prod(self.lengths)


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes [start, stop) of a shard, which hold what `item` wants. region: of which type, where they are a tensor's own bytes.

    crc64: of exactly these bytes; None where it is not known.
    """

    item: ReadItem
    shard: str
    start: int
    stop: int
    region: Region | None = None
    dtype: torch.dtype | None = None
    crc64: int | None = None

    @property
    def size(self) -> int:
        return self.stop - self.start


def plan_read(item: ReadItem, info: StorageInfo) -> Read:
    """The bytes that an item needs. Raises: ValueError for what was saved through a stream transform, which is not read here."""
    if getattr(info, "transform_descriptors", None):
        raise ValueError(f"{item.storage_index.fqn} was saved through an extension {info.transform_descriptors!r}")  # type: ignore[attr-defined,unused-ignore]  # newer than torch 2.4
    whole = Read(item, info.relative_path, info.offset, info.offset + info.length, crc64=crc64_of(info))
    place = tensor_place(info)
    if place is None:
        return whole
    region = _region(place.sizes, tuple(item.storage_offsets), tuple(item.lengths))
    size = torch.empty((), dtype=place.dtype).element_size()
    start, stop = place.start + region.first * size, place.start + region.stop * size
    complete = region.dense and math.prod(region.lengths) == math.prod(place.sizes)
    return replace(
        whole, start=start, stop=stop, region=region, dtype=place.dtype, crc64=whole.crc64 if complete else None
    )


def _region(sizes: tuple[int, ...], offsets: tuple[int, ...], lengths: tuple[int, ...]) -> Region:
    strides, step = [], 1
    for size in reversed(sizes):
        strides.append(step)
        step *= size
    strides.reverse()
    first = sum(offset * stride for offset, stride in zip(offsets, strides, strict=True))
    last = first + sum((length - 1) * stride for length, stride in zip(lengths, strides, strict=True))
    return Region(first, last + 1 if math.prod(lengths) else first, lengths, tuple(strides))


@dataclass(slots=True, eq=False)
class _Job:
    """Reads of one shard that come with common requests for [start, stop). `memory` is there from the first of them on.

    target: the tensor of the only read, if its bytes are received right into it.
    """

    version: ObjectVersion
    start: int
    stop: int
    reads: list[Read]
    planner: LoadPlanner
    target: torch.Tensor | None = None
    memory: memoryview | None = field(default=None, repr=False)

    def prepare(self) -> memoryview:
        """Find the memory where the bytes go."""
        if self.memory is None:
            read = self.reads[0]
            if len(self.reads) == 1 and read.region is not None and read.region.dense and read.size >= _LARGE:
                target = self.planner.resolve_tensor(read.item).detach()
                if _takes_bytes(target, read):
                    self.target, self.memory = target, memory_of(target)
                    return self.memory
            self.memory = allocate(self.stop - self.start)
        return self.memory

    def cost(self, size: int) -> int:
        """What `size` bytes in flight count in the budget: nothing where they go into the caller's memory."""
        self.prepare()
        return 0 if self.target is not None else size


def _takes_bytes(target: torch.Tensor, read: Read) -> bool:
    return (
        target.device.type == "cpu"
        and is_plain(target)
        and target.dtype == read.dtype
        and target.is_contiguous()
        and not (target.is_conj() or target.is_neg())
        and target.numel() * target.element_size() == read.size
    )


class _Piece(NamedTuple):
    """One request of a job, for [start, stop)."""

    job: _Job
    start: int
    stop: int


def fetch_reads(reads: Iterable[Read], planner: LoadPlanner, versions: Mapping[str, ObjectVersion]) -> None:
    """Get all that is wanted and hand it to the planner, in the order of the shards' bytes.

    versions: of the shards. Fetched is at most 1/32 more than is wanted. Memory: tensors are
    received in place where they can be; what is in flight beside that counts in the client's budget, and the item that is
    wanted next is always admitted, however large.
    When it raises, nothing is in flight any more; tensors may have been filled in part.
    Raises: TosException kinds; what the planner raises.
    """
    ordered = sorted(reads, key=attrgetter("shard", "start"))
    if not ordered:
        return
    client = versions[ordered[0].shard].client
    part = client.config.part_size
    under_way: deque[Download] = deque()

    def start(pieces: list[_Piece]) -> list[tuple[_Piece, Download]]:
        started = []
        for piece in pieces:
            job = piece.job
            into = job.prepare()[piece.start - job.start : piece.stop - job.start]
            started.append((piece, job.version.range(piece.start, piece.stop, into)))
            under_way.append(started[-1][1])
        client.submit(download for _, download in started)
        return started

    flying = prefetch(
        _pieces(_jobs(ordered, planner, versions, part), part),
        start,
        depth=lambda: client.config.shared_prefetch_tasks or _IN_FLIGHT,
        discard=lambda started: started[1].cancel(),
        cost=lambda piece: piece.job.cost(piece.stop - piece.start),
        budget=client.budget,
    )
    with closing(flying):  # type: ignore[type-var]  # a generator, typed as the iterator that it is for others
        try:
            for piece, download in flying:
                _receive(piece.job, download, piece.stop)
                under_way.popleft()
                if piece.stop == piece.job.stop:
                    _deliver(piece.job)
        except BaseException:
            cancel_all(under_way)  # all of them, even if that is interrupted: their memory is the caller's
            raise


def _receive(job: _Job, download: Download, stop: int) -> None:
    try:
        job.version.learn(download.wait())
    except TosNotFoundError as error:
        hint = "another save to this checkpoint replaced it while it was loaded, or a shard was deleted; load again"
        raise TosNotFoundError(replace(error.error, hint=hint)) from error
    if download.start + download.length < stop:
        text = f"the shard ends at byte {download.start + download.length}, but the checkpoint needs [{job.start}, {job.stop})"
        raise TosIntegrityError(TosError(text, operation="GET", bucket=job.version.bucket, key=job.version.key))


def _jobs(
    ordered: list[Read], planner: LoadPlanner, versions: Mapping[str, ObjectVersion], part: int
) -> Iterator[_Job]:
    small = [read for read in ordered if read.size < _LARGE]
    gap = min(_GAP, sum(read.size for read in small) // (_WASTE * len(small))) if small else 0
    for shard, group in groupby(ordered, attrgetter("shard")):
        version = versions[shard]
        here = list(group)
        jobs = [_Job(version, read.start, read.stop, [read], planner) for read in here if read.size >= _LARGE]
        little = [read for read in here if 0 < read.size < _LARGE]
        for reads in _together(little, gap, part):
            jobs.append(_Job(version, reads[0].start, max(read.stop for read in reads), reads, planner))
        yield from sorted(jobs, key=attrgetter("start"))


def _together(reads: list[Read], gap: int, most: int) -> Iterator[list[Read]]:
    """Reads of one shard, in order, that share a request: near each other, and of about `most` bytes together."""
    runs = coalesce(((read.start, read.stop) for read in reads), gap)
    starts = [start for start, _ in runs]
    for _, run in groupby(reads, lambda read: bisect_right(starts, read.start)):
        batch: list[Read] = []
        for read in run:
            if batch and read.stop - batch[0].start > most:
                yield batch
                batch = []
            batch.append(read)
        yield batch


def _pieces(jobs: Iterable[_Job], part: int) -> Iterator[_Piece]:
    for job in jobs:
        for start, stop in split(job.start, job.stop, part):
            yield _Piece(job, start, stop)


def _deliver(job: _Job) -> None:
    """Check what came, and hand it to the planner."""
    memory = job.prepare()
    for read in job.reads:
        data = memory[read.start - job.start : read.stop - job.start]
        if read.crc64 is not None and job.version.client.config.enable_crc:
            _verify(job.version, read, data)
        if job.target is not None:
            job.planner.commit_tensor(read.item, job.target)
        elif read.item.type == LoadItemType.BYTE_IO:
            job.planner.load_bytes(read.item, io.BytesIO(data))
        else:
            _copy(job.planner, read, data)
    job.memory = None


def _verify(version: ObjectVersion, read: Read, data: memoryview) -> None:
    """Compare with the CRC64 of when it was saved; ask once more where it differs."""
    if crc64_.update(data) == read.crc64:
        return
    METRICS.integrity_failures += 1
    fetch(version, read.start, read.stop, data, version.client.config.part_size)
    if crc64_.update(data) != read.crc64:
        text = f"bytes [{read.start}, {read.stop}), {read.item.storage_index.fqn!r}, do not have the CRC64 they were saved with"
        raise TosIntegrityError(TosError(text, operation="GET", bucket=version.bucket, key=version.key))


def _copy(planner: LoadPlanner, read: Read, data: memoryview) -> None:
    source = _stored(read, data)
    target = planner.resolve_tensor(read.item).detach()
    if target.size() != source.size():
        index = read.item.storage_index
        raise ValueError(f"{index.fqn} is stored as {tuple(source.size())}, asked for as {tuple(target.size())}")
    target.copy_(source)
    planner.commit_tensor(read.item, target)


def _stored(read: Read, data: memoryview) -> torch.Tensor:
    """What the item wants, as a tensor in main memory."""
    if read.region is None or read.dtype is None:
        tensor: torch.Tensor = torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)
        for dim, (offset, length) in enumerate(zip(read.item.storage_offsets, read.item.lengths, strict=True)):
            tensor = tensor.narrow(dim, offset, length)
        return tensor
    flat = torch.frombuffer(data, dtype=torch.uint8)
    if flat.data_ptr() % _ALIGNED:
        flat = flat.clone()
    return flat.view(read.dtype).as_strided(read.region.lengths, read.region.strides)
