"""What a load asks for: little more than it needs, many ranges at once, and all of it checked."""

import os
import signal
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.planner import LoadItemType, ReadItem

from tests import dcp_service
from tests.dcp_ranks import connection
from tests.dcp_service import URL
from tosnative.config import TosClientConfig
from tosnative.dcp import TosStorageReader, TosStorageWriter
from tosnative.dcp_items import StorageInfo
from tosnative.dcp_reads import plan_read
from tosnative.errors import TosIntegrityError
from tosnative.metrics import METRICS
from tosnative.ranges import coalesce
from tosnative.testing import Action, LocalTos, RequestRecord
from tosnative.testing.messages import Request

tos = dcp_service.tos
pytestmark = dcp_service.ALONE


def save(tos: LocalTos, what: dict[str, Any]) -> None:
    dcp.save(what, storage_writer=TosStorageWriter(URL, **connection(tos)))


def load(tos: LocalTos, into: dict[str, Any], **options: Any) -> dict[str, Any]:
    tos.clear_requests()
    dcp.load(into, storage_reader=TosStorageReader(URL, **{**connection(tos), **options}))
    return into


def ranges(tos: LocalTos) -> list[RequestRecord]:
    return [request for request in tos.requests if request.method == "GET" and request.key and ".distcp" in request.key]


def layers(count: int, *shape: int) -> dict[str, torch.Tensor]:
    return {f"layer{i:03d}": torch.randn(*shape) for i in range(count)}


def size(tensors: dict[str, torch.Tensor]) -> int:
    return sum(tensor.nbytes for tensor in tensors.values())


@pytest.mark.parametrize("shape", [(600, 500), (130, 130), (1000,)], ids=["large", "medium", "small"])
def test_the_model_alone_of_model_and_optimizer(tos: LocalTos, shape: tuple[int, ...]) -> None:
    model, first, second = layers(24, *shape), layers(24, *shape), layers(24, *shape)
    save(tos, {"model": model, "optimizer": {"first": first, "second": second}})
    target = {"model": {name: torch.zeros_like(tensor) for name, tensor in model.items()}}
    load(tos, target)
    assert all(torch.equal(target["model"][name], model[name]) for name in model)
    # Small tensors come with what torch.save puts around each: 1.5 KB.
    needed = size(model) if shape != (1000,) else sum(tensor.nbytes + 1600 for tensor in model.values())
    assert sum(request.sent_bytes for request in ranges(tos)) <= 1.1 * needed
    if shape != (600, 500):
        assert len(ranges(tos)) == 1


@pytest.mark.parametrize("elements", [40_000, 5_000])
def test_every_other_tensor(tos: LocalTos, elements: int) -> None:
    """Wanted and unwanted take turns in the shard: a gap is read over only where that costs next to nothing."""
    stored = layers(40, elements)
    save(tos, stored)
    target = {name: torch.zeros_like(tensor) for at, (name, tensor) in enumerate(stored.items()) if at % 2}
    load(tos, target)
    assert all(torch.equal(target[name], stored[name]) for name in target)
    assert sum(request.sent_bytes for request in ranges(tos)) <= 1.1 * (size(target) + 1600 * len(target))


def test_many_ranges_are_in_flight(tos: LocalTos) -> None:
    model = layers(24, 600, 500)
    save(tos, model)
    tos.faults.add(method="GET", key="*.distcp", delay_s=0.5)
    load(tos, {name: torch.zeros_like(tensor) for name, tensor in model.items()})
    arrived = [request.arrived for request in ranges(tos)]
    assert len(arrived) >= 24
    assert sum(at < min(arrived) + 0.5 for at in arrived) >= 16


def test_one_large_tensor_is_split_and_received_in_place(tos: LocalTos) -> None:
    big = torch.randn(5 << 20)
    save(tos, {"big": big})
    target = torch.zeros_like(big)
    pointer = target.data_ptr()
    client = connection(tos)
    assert torch.equal(load(tos, {"big": target}, client_conf=TosClientConfig(part_size=1 << 20))["big"], big)
    assert target.data_ptr() == pointer
    assert len(ranges(tos)) == 20
    budget = TosStorageReader(URL, **client)._client.budget
    assert budget.used == 0


def test_a_budget_that_others_have_used_up(tos: LocalTos) -> None:
    """What is wanted next always comes, if slowly."""
    stored = layers(4, 700, 900)
    save(tos, stored)
    config = TosClientConfig(part_size=1 << 20, memory_budget_bytes=64 << 20, shared_prefetch_tasks=3)
    budget = TosStorageReader(URL, **{**connection(tos), "client_conf": config})._client.budget
    budget.take(budget.limit, force=True)
    target = {name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in stored.items()}
    load(tos, target, client_conf=config)
    assert all(torch.equal(target[name], stored[name].double()) for name in stored)
    assert budget.used == budget.limit
    budget.give(budget.limit)


@pytest.mark.parametrize("shape", [(600, 500), (100, 90), (9,)])
def test_a_flipped_byte_is_asked_for_again_once(tos: LocalTos, shape: tuple[int, ...]) -> None:
    stored = {"t": torch.randn(*shape), "text": "of some length"}
    save(tos, stored)
    before = METRICS.integrity_failures
    tos.faults.add(method="GET", key="*.distcp", flip_byte_at=700, times=1)
    target = load(tos, {"t": torch.zeros(*shape), "text": ""})
    assert torch.equal(target["t"], stored["t"])
    assert target["text"] == "of some length"
    assert METRICS.integrity_failures == before + 1
    tos.faults.clear()
    tos.faults.add(method="GET", key="*.distcp", flip_byte_at=700)
    with pytest.raises(CheckpointException, match="CRC64") as raised:
        load(tos, {"t": torch.zeros(*shape), "text": ""})
    assert isinstance(raised.value.failures[0][0], TosIntegrityError)


def test_a_broken_body_goes_on_where_it_broke(tos: LocalTos) -> None:
    stored = layers(6, 700, 500)
    save(tos, stored)
    tos.faults.add(method="GET", key="*.distcp", reset_after_bytes=300_000, times=4)
    target = load(tos, {name: torch.zeros_like(tensor) for name, tensor in stored.items()})
    assert all(torch.equal(target[name], stored[name]) for name in stored)


def test_an_interrupted_load_lets_go_of_all_memory(tos: LocalTos) -> None:
    stored = layers(12, 600, 500)
    save(tos, stored)
    asked: list[str | None] = []

    def interrupt(request: Request) -> Action | None:
        if request.key is None or not request.key.endswith(".distcp"):
            return None
        asked.append(request.key)
        if len(asked) == 6:
            os.kill(os.getpid(), signal.SIGINT)
        return Action(hang="before")

    tos.faults.set_hook(interrupt)
    reader = TosStorageReader(URL, **connection(tos))
    target = {name: torch.zeros(tensor.shape, dtype=torch.float64) for name, tensor in stored.items()}
    with pytest.raises(CheckpointException) as raised:
        dcp.load(target, storage_reader=reader)
    assert isinstance(raised.value.failures[0][0], KeyboardInterrupt)
    assert reader._client.budget.used == 0
    tos.faults.clear()
    load(tos, target)
    assert all(torch.equal(target[name], stored[name].double()) for name in stored)


def test_without_checksums(tos: LocalTos) -> None:
    stored = layers(3, 400, 500)
    writer = TosStorageWriter(URL, **connection(tos), enable_crc=False)
    dcp.save(stored, storage_writer=writer)
    target = load(tos, {name: torch.zeros_like(tensor) for name, tensor in stored.items()})
    assert all(torch.equal(target[name], stored[name]) for name in stored)


def test_what_an_extension_changed_is_refused() -> None:
    info = StorageInfo("__0_0.distcp", 0, 10)
    info.transform_descriptors = ["zstd"]
    item = ReadItem(
        LoadItemType.BYTE_IO,
        MetadataIndex("a"),
        torch.Size((0,)),
        MetadataIndex("a"),
        torch.Size((0,)),
        torch.Size((0,)),
    )
    with pytest.raises(ValueError, match="zstd"):
        plan_read(item, info)


@given(st.data())
def test_a_box_of_a_stored_tensor(data: st.DataObject) -> None:
    """The bytes that are asked for hold the box, and begin and end with it."""
    sizes = data.draw(st.lists(st.integers(1, 6), min_size=0, max_size=4))
    offsets = [data.draw(st.integers(0, length - 1)) for length in sizes]
    lengths = [data.draw(st.integers(1, length - at)) for length, at in zip(sizes, offsets, strict=True)]
    whole = torch.arange(int(torch.Size(sizes).numel())).reshape(sizes)
    info = StorageInfo("shard", 0, 0)
    info.tensor_place = (100, torch.int64, tuple(sizes))  # type: ignore[attr-defined]
    item = ReadItem(
        LoadItemType.TENSOR,
        MetadataIndex("a"),
        torch.Size(()),
        MetadataIndex("a"),
        torch.Size(offsets),
        torch.Size(lengths),
    )
    read = plan_read(item, info)
    box = whole
    for dim, (offset, length) in enumerate(zip(offsets, lengths, strict=True)):
        box = box.narrow(dim, offset, length)
    assert (read.start - 100, read.stop - 100) == (8 * int(box.min()), 8 * int(box.max()) + 8)
    assert read.region is not None
    flat = whole.flatten()[read.region.first : read.region.stop]
    assert torch.equal(flat.as_strided(read.region.lengths, read.region.strides), box)
    assert read.region.dense == (read.size == 8 * box.numel())


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(1, 50)), min_size=1, max_size=30))
def test_gaps_that_are_read_over_stay_small(found: list[tuple[int, int]]) -> None:
    wanted = [(start, start + length) for start, length in found]
    covered = {at for start, stop in wanted for at in range(start, stop)}
    gap = len(covered) // (32 * len(wanted))
    merged = coalesce(wanted, gap)
    assert covered <= {at for start, stop in merged for at in range(start, stop)}
    assert sum(stop - start for start, stop in merged) <= len(covered) * 33 / 32
