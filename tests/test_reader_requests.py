"""What readers ask of the service: how many requests, for which bytes, and how much memory they take."""

import io
import random
import tracemalloc
from collections.abc import Iterator

import pytest
import torch

from tosnative.buffers import allocate
from tosnative.client import TosClient
from tosnative.config import ReaderType, TosClientConfig
from tosnative.readahead import SequentialFill
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos
from tosnative.testing.arrivals import RequestRecord

PART = 1 << 20
DATA = random.Random(7).randbytes(20 * PART + 12345)


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        server.put("demo", "big", DATA)
        server.put("demo", "small", DATA[:1000])
        server.put("demo", "empty", b"")
        yield server


@pytest.fixture(autouse=True)
def fresh(tos: LocalTos) -> None:
    tos.faults.clear()
    tos.clear_requests()


def make(tos: LocalTos, **settings: object) -> TosClient:
    config = TosClientConfig(**{"part_size": PART, "hedge_percent": 0.0, **settings})  # type: ignore[arg-type]
    return TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config)


@pytest.fixture
def client(tos: LocalTos) -> Iterator[TosClient]:
    with make(tos) as made:
        yield made


def ranges(requests: list[RequestRecord]) -> list[tuple[int, int]]:
    """What was asked for, as half-open ranges, in order."""
    found = []
    for request in requests:
        assert request.method == "GET"
        assert request.range is not None
        first, last = request.range.removeprefix("bytes=").split("-")
        found.append((int(first), int(last) + 1))
    return sorted(found)


def checkpoint(tensors: int, numel: int) -> tuple[dict[str, torch.Tensor], bytes]:
    state = {f"layer{i}.weight": torch.full((numel,), float(i)) for i in range(tensors)}
    file = io.BytesIO()
    torch.save(state, file)
    return state, file.getvalue()


def test_small_objects_take_one_request_and_no_range(tos: LocalTos, client: TosClient) -> None:
    for kind in ReaderType:
        with TosObjectReader(client, "demo", "small", size=1000, reader_type=kind) as reader:
            assert reader.read() == DATA[:1000]
            assert reader.verified
    assert [(request.method, request.range) for request in tos.requests] == [("GET", None)] * 3


def test_an_object_that_has_grown_since_the_listing_is_not_taken_whole(tos: LocalTos, client: TosClient) -> None:
    """Its first part is kept of the answer, the rest comes by ranges, and the memory stays bounded."""
    tos.put("demo", "grown", DATA[: 3 * PART])
    tos.faults.add(key="grown", times=1, reset_after_bytes=PART // 2)
    with TosObjectReader(client, "demo", "grown", size=1000, etag="of the small one") as reader:
        first = reader.begin()
        assert first is not None
        client.submit([first])
        assert first.wait().length == PART
        assert first.meta.size == 3 * PART
        assert reader.read() == DATA[: 3 * PART]
        assert reader.verified
    assert tos.requests[0].range is None
    assert ranges(tos.requests[1:]) == [(PART // 2, PART), (PART, 2 * PART), (2 * PART, 3 * PART)]


def test_small_objects_of_unknown_size_take_one_request(tos: LocalTos, client: TosClient) -> None:
    for kind in ReaderType:
        with TosObjectReader(client, "demo", "small", reader_type=kind) as reader:
            assert reader.read() == DATA[:1000]
            assert reader.verified
    assert len(tos.requests) == 3


def test_a_small_objects_bytes_are_not_copied(client: TosClient) -> None:
    with TosObjectReader(client, "demo", "small", size=1000) as reader:
        assert reader.read() is (reader.seek(0), reader.read())[1]


def test_an_empty_object(tos: LocalTos, client: TosClient) -> None:
    for kind in ReaderType:
        with TosObjectReader(client, "demo", "empty", reader_type=kind) as reader:
            assert reader.readinto(bytearray(10)) == 0
            assert reader.seek(0, 2) == 0
            assert reader.read() == b""
    assert len(tos.requests) == 3


@pytest.mark.parametrize("size", [None, len(DATA)])
@pytest.mark.parametrize("key", ["big"])
def test_direct_asks_for_what_is_read(tos: LocalTos, client: TosClient, key: str, size: int | None) -> None:
    with TosObjectReader(client, "demo", key, size=size, reader_type=ReaderType.DIRECT) as reader:
        reader.seek(1000)
        assert reader.read(100) == DATA[1000:1100]
        reader.seek(5 * PART)
        assert reader.read(10) == DATA[5 * PART : 5 * PART + 10]
        buffer = bytearray(100)
        assert reader.readinto(buffer) == 100
    assert ranges(tos.requests) == [(1000, 1100), (5 * PART, 5 * PART + 10), (5 * PART + 10, 5 * PART + 110)]


def test_direct_small_object_with_known_size(tos: LocalTos, client: TosClient) -> None:
    with TosObjectReader(client, "demo", "small", size=1000, reader_type=ReaderType.DIRECT) as reader:
        reader.seek(100)
        assert reader.read(100) == DATA[100:200]
    assert ranges(tos.requests) == [(100, 200)]


def test_every_request_after_the_first_is_bound_to_its_etag(tos: LocalTos, client: TosClient) -> None:
    for kind in ReaderType:
        key = f"big-{kind.name}"  # of each kind its own: what was asked for ahead may arrive after its reader has gone
        tos.put("demo", key, DATA)
        with TosObjectReader(client, "demo", key, reader_type=kind, buffer_size=PART) as reader:
            reader.read(10)
            reader.seek(7 * PART)
            reader.read(10)
            reader.readinto(bytearray(5 * PART))
        asked = [request for request in tos.requests if request.key == key]
        first, *rest = sorted(asked, key=lambda request: request.arrived)
        assert "if-match" not in first.headers
        assert rest
        assert {request.headers["if-match"].strip('"') for request in rest} == {reader.etag}


def test_ranged_keeps_one_window(tos: LocalTos, client: TosClient) -> None:
    window = 100_000
    with TosObjectReader(client, "demo", "big", reader_type=ReaderType.RANGED, buffer_size=window) as reader:
        for at in (500_000, 500_100, 599_000, 510_000):
            reader.seek(at)
            assert reader.read(500) == DATA[at : at + 500]
        assert len(tos.requests) == 1
        for at in range(499_500, 450_000, -500):  # backwards: one window, not a hundred
            reader.seek(at)
            assert reader.read(500) == DATA[at : at + 500]
        assert len(tos.requests) == 2
        reader.seek(-22, io.SEEK_END)
        assert reader.read() == DATA[-22:]
        reader.seek(-window, io.SEEK_END)  # the window at the end was filled towards the front
        assert reader.read(500) == DATA[-window:][:500]
        assert len(tos.requests) == 3
        assert client.budget.used == window
    assert client.budget.used == 0


def test_sequential_reading_takes_the_grids_parts_once(tos: LocalTos, client: TosClient) -> None:
    with TosObjectReader(client, "demo", "big") as reader:
        assert b"".join(iter(lambda: reader.read(10_000), b"")) == DATA
        assert reader.verified
    assert ranges(tos.requests) == [(at, min(at + PART, len(DATA))) for at in range(0, len(DATA), PART)]


@pytest.mark.parametrize("step", [1000, PART - 1, PART, 3 * PART + 7, len(DATA)])
def test_readinto_takes_each_byte_about_once(tos: LocalTos, client: TosClient, step: int) -> None:
    with TosObjectReader(client, "demo", "big") as reader:
        buffer = bytearray(step)
        got = b"".join(bytes(buffer[: reader.readinto(buffer)]) for _ in range(-(-len(DATA) // step)))
        assert got == DATA
        assert reader.verified
    assert len(tos.requests) <= len(DATA) / PART + 4
    assert sum(stop - start for start, stop in ranges(tos.requests)) <= 1.1 * len(DATA) + PART


def test_a_look_at_the_head_fetches_one_part(tos: LocalTos, client: TosClient) -> None:
    with TosObjectReader(client, "demo", "big") as reader:
        assert reader.read(1000) == DATA[:1000]
        assert reader.readline() == io.BytesIO(DATA[1000:]).readline()
    assert ranges(tos.requests) == [(0, PART)]


def test_read_ahead_is_bounded_by_the_number_of_parts(tos: LocalTos) -> None:
    with make(tos, shared_prefetch_tasks=3) as client, TosObjectReader(client, "demo", "big") as reader:
        most = 0
        while reader.read(50_000):
            most = max(most, client.budget.used)
        assert 2 * PART < most <= (3 + 3) * PART
    assert client.budget.used == 0


def test_read_ahead_is_bounded_by_the_budget(tos: LocalTos) -> None:
    with make(tos, memory_budget_bytes=64 << 20) as client:
        client.budget.take(64 << 20, force=True)  # others have taken it all
        with TosObjectReader(client, "demo", "big") as reader:
            while reader.read(50_000):
                assert client.budget.used <= (64 << 20) + 2 * PART
        client.budget.give(64 << 20)
        assert client.budget.used == 0


def test_jumps_keep_what_is_useful(tos: LocalTos, client: TosClient) -> None:
    with TosObjectReader(client, "demo", "big") as reader:
        for at in (0, len(DATA) - 22, len(DATA) - 5000, 100, 5 * PART, len(DATA) - 700, 6 * PART, 5 * PART + 200, 50):
            reader.seek(at)
            assert reader.read(20) == DATA[at : at + 20]
    assert len(tos.requests) == 4


@pytest.mark.parametrize("delay_s", [None, 0.02])
@pytest.mark.parametrize("shape", [(1000, 4000), (5, 3_000_000), (1000, 10)])
def test_torch_load_reads_ahead(
    tos: LocalTos, client: TosClient, shape: tuple[int, int], delay_s: float | None
) -> None:
    state, data = checkpoint(*shape)
    tos.put("demo", "model.pt", data)
    tos.faults.add(delay_s=delay_s)  # to the first byte
    with TosObjectReader(client, "demo", "model.pt") as reader:
        loaded = torch.load(reader, weights_only=True)
        assert all(torch.equal(loaded[name], state[name]) for name in state)
    assert len(tos.requests) <= len(data) / PART + 4


def test_torch_load_of_tensors_in_another_order(tos: LocalTos, client: TosClient) -> None:
    state, data = checkpoint(200, 10_000)
    tos.put("demo", "model.pt", data)
    with TosObjectReader(client, "demo", "model.pt") as reader:
        loaded = torch.load(reader, weights_only=True, mmap=False)
        assert all(torch.equal(loaded[name], state[name]) for name in state)
        tos.clear_requests()
        for at in random.Random(3).sample(range(0, len(data), 40_000), 100):
            reader.seek(at)
            assert reader.read(30_000) == data[at : at + 30_000]
    assert len(tos.requests) <= len(data) / PART + 4


@pytest.mark.parametrize("kind", ReaderType)
def test_readline_does_not_ask_for_each_byte(tos: LocalTos, client: TosClient, kind: ReaderType) -> None:
    with TosObjectReader(client, "demo", "big", reader_type=kind) as reader:
        for _ in range(100):
            reader.readline()
    assert len(tos.requests) <= 2


@pytest.mark.parametrize("kind", ReaderType)
def test_a_large_read_allocates_little_beside_the_buffer(client: TosClient, kind: ReaderType) -> None:
    buffer = bytearray(len(DATA))
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        tracemalloc.start()
        try:
            assert reader.readinto(buffer) == len(DATA)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert buffer == DATA
    assert peak < 2 * PART
    assert client.budget.used == 0


def test_the_strategy_is_made_when_it_is_needed(client: TosClient) -> None:
    with TosObjectReader(client, "demo", "small") as reader:
        reader.read()
        assert reader._fill is None
    with TosObjectReader(client, "demo", "big") as reader:
        reader.read(1)
        assert isinstance(reader._fill, SequentialFill)


def test_memory_is_private_and_zero() -> None:
    for size in (1, 100_000, 1 << 20):
        view = allocate(size)
        assert (len(view), view.format, view.readonly) == (size, "B", False)
        assert bytes(view) == bytes(size)
