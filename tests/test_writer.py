"""What writers do when all goes well: what was written is what arrives, in parts that grow, in bounded memory."""

import array
import io
import itertools
import logging
import pickle
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tosnative import crc64
from tosnative.client import TosClient
from tosnative.config import TosClientConfig
from tosnative.errors import TosExistsError
from tosnative.parts import MAX_PARTS, PartPlan, plan_parts
from tosnative.testing import LocalTos
from tosnative.testing.arrivals import RequestRecord
from tosnative.writer import TosObjectWriter

MIB = 1 << 20
PART = 4 * MIB  # the least that the service takes
DATA = random.Random(5).randbytes(5 * PART + 77)


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        yield server


@pytest.fixture
def client(tos: LocalTos) -> Iterator[TosClient]:
    tos.faults.clear()
    tos.delete("demo", "k")
    tos.clear_requests()
    config = TosClientConfig(part_size=PART)
    with TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config) as made:
        yield made
        assert made.budget.used == 0
        assert tos.uploads("demo") == []


def calls(requests: list[RequestRecord]) -> list[str]:
    """What arrived, in words."""
    names = []
    for request in requests:
        if "partNumber" in request.query:
            names.append(f"part {request.query['partNumber']}")
        elif "uploadId" in request.query:
            names.append({"POST": "complete", "DELETE": "abort"}[request.method])
        else:
            names.append("create" if "uploads" in request.query else request.method)
    return names


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(sizes=st.lists(st.sampled_from([0, 1, 1000, 300_000, MIB, PART - 1, PART, PART + 1, 2 * PART]), max_size=6))
def test_what_is_written_arrives(tos: LocalTos, client: TosClient, sizes: list[int]) -> None:
    stops = list(itertools.accumulate(sizes))[-1:] or [0]
    total = min(stops[0], len(DATA))
    with TosObjectWriter(client, "demo", "k") as writer:
        at = 0
        for size in sizes:
            piece = DATA[at : at + size]
            assert writer.write(piece) == len(piece)
            at += len(piece)
            assert writer.tell() == at
    assert tos.get("demo", "k") == DATA[:total]
    assert writer.meta is not None
    assert (writer.meta.size, writer.meta.crc64) == (total, crc64.update(DATA[:total]))


@pytest.mark.parametrize("size", [0, 1, PART - 1, PART])
def test_up_to_one_part_is_one_put(tos: LocalTos, client: TosClient, size: int) -> None:
    with TosObjectWriter(client, "demo", "k") as writer:
        writer.write(DATA[:size])
        writer.flush()
        assert tos.keys("demo") == []
    assert tos.get("demo", "k") == DATA[:size]
    assert calls(tos.requests) == ["PUT"]
    assert tos.requests[0].headers["content-length"] == str(size)


def test_more_than_one_part_is_a_multipart_upload(tos: LocalTos, client: TosClient) -> None:
    with TosObjectWriter(client, "demo", "k") as writer:
        writer.write(DATA)
        assert tos.keys("demo") == []
    assert tos.get("demo", "k") == DATA
    made = calls(tos.requests)
    assert (made[0], made[-1]) == ("create", "complete")
    assert sorted(made[1:-1]) == [f"part {number}" for number in range(1, 7)]


def test_parts_are_in_flight_together(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", delay_s=0.3)
    with TosObjectWriter(client, "demo", "k") as writer:
        writer.write(DATA)
    arrived = [request.arrived for request in tos.requests if request.method == "PUT"]
    assert max(arrived) - min(arrived) < 0.3  # the last came before the first was answered
    assert tos.get("demo", "k") == DATA


def test_any_contiguous_data(tos: LocalTos, client: TosClient) -> None:
    pieces: list[Any] = [
        b"bytes", bytearray(b"bytearray"), memoryview(b"view")[1:], "text \u00e9\u4e2d", "", array.array("i", [1, 2, 3]),
        np.arange(12, dtype=np.int32).reshape(3, 4), np.ones(5, np.float16), np.ones(4, ">f4"), memoryview(array.array("d", [1.5])),
        np.zeros((0, 3)), np.array(7), torch.arange(5).numpy(),
    ]  # fmt: skip
    expected = io.BytesIO()
    with TosObjectWriter(client, "demo", "k") as writer:
        for piece in pieces:
            size = expected.write(piece.encode() if isinstance(piece, str) else np.asarray(piece).tobytes())
            if not isinstance(piece, str) and not isinstance(piece, np.ndarray):
                expected.seek(-size, 1)
                size = expected.write(memoryview(piece).cast("B"))
            assert writer.write(piece) == size
            assert writer.tell() == expected.tell()
        for bad in (5, None, ["list"]):
            with pytest.raises(TypeError):
                writer.write(bad)
        with pytest.raises(BufferError):
            writer.write(np.arange(10)[::2])
    assert tos.get("demo", "k") == expected.getvalue()


def test_the_callers_buffer_is_free_after_write(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", delay_s=0.2)
    buffer = bytearray(MIB)
    with TosObjectWriter(client, "demo", "k") as writer:
        for number in range(20):
            buffer[:] = bytes([number]) * MIB
            writer.write(buffer)
        buffer[:] = b"x" * MIB
    assert tos.get("demo", "k") == b"".join(bytes([number]) * MIB for number in range(20))


@pytest.mark.parametrize("tasks", [1, 3, None])
def test_memory_is_bounded(tos: LocalTos, tasks: int | None) -> None:
    tos.faults.clear()
    tos.faults.add(method="PUT", delay_s=0.02)
    config = TosClientConfig(part_size=PART, shared_upload_part_tasks=tasks, memory_budget_bytes=64 * MIB)
    most = 0
    with TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config) as client:
        with TosObjectWriter(client, "demo", "k") as writer:
            for _ in range(200):
                writer.write(DATA[:MIB])
                most = max(most, client.budget.used)
        assert client.budget.used == 0
    limit = 8 if tasks is None else tasks  # half of 64 MiB, in parts of 4 MiB
    assert 2 * PART <= most <= (limit + 1) * PART
    assert tos.get("demo", "k") == DATA[:MIB] * 200


def test_two_writers_and_no_budget_left(tos: LocalTos) -> None:
    config = TosClientConfig(part_size=PART, memory_budget_bytes=64 * MIB)
    with TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config) as client:
        client.budget.take(64 * MIB, force=True)
        with TosObjectWriter(client, "demo", "a") as first, TosObjectWriter(client, "demo", "b") as second:
            for at in range(0, len(DATA), MIB):
                first.write(DATA[at : at + MIB])
                second.write(DATA[at : at + MIB])
        client.budget.give(64 * MIB)
    assert tos.get("demo", "a") == tos.get("demo", "b") == DATA
    tos.delete("demo", "a")
    tos.delete("demo", "b")


def test_every_part_carries_its_own_checksum(tos: LocalTos, client: TosClient) -> None:
    pieces = [bytes([number]) * PART for number in range(64)]
    with TosObjectWriter(client, "demo", "k") as writer:
        for piece in pieces:
            writer.write(piece)
    assert writer.meta is not None
    assert writer.meta.crc64 == crc64.update(b"".join(pieces))
    assert client.head("demo", "k").crc64 == writer.meta.crc64


def test_checksums_switched_off(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(crc="wrong")
    for data in (DATA[:10], DATA):
        with TosObjectWriter(client, "demo", "k", enable_crc=False) as writer:
            writer.write(data)
        assert tos.get("demo", "k") == data


def test_content_type_and_forbid_overwrite(tos: LocalTos, client: TosClient) -> None:
    for data in (DATA[:10], DATA):
        tos.delete("demo", "k")
        with TosObjectWriter(client, "demo", "k", content_type="image/png", forbid_overwrite=True) as writer:
            writer.write(data)
        with pytest.raises(TosExistsError), TosObjectWriter(client, "demo", "k", forbid_overwrite=True) as writer:
            writer.write(data[:-1])
        assert tos.get("demo", "k") == data


def test_file_attributes_and_use_after_close(tos: LocalTos, client: TosClient) -> None:
    writer = TosObjectWriter(client, "demo", "k")
    assert (writer.bucket, writer.key, writer.name) == ("demo", "k", "tos://demo/k")
    assert (writer.readable(), writer.writable(), writer.seekable(), writer.closed) == (False, True, False, False)
    for call in (writer.read, writer.fileno, writer.detach, writer.truncate, lambda: writer.seek(0)):
        with pytest.raises(io.UnsupportedOperation):
            call()
    writer.writelines([b"a", b"b"])
    assert writer.meta is None
    writer.close()
    writer.close()
    assert writer.closed
    assert writer.commit() == writer.meta
    writer.abort()
    for call in (writer.tell, writer.flush, writer.writable, writer.__enter__, lambda: writer.write(b"c")):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert tos.get("demo", "k") == b"ab"
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(writer)
    with pytest.raises(ValueError, match="key"):
        TosObjectWriter(client, "demo", "")


def test_wrapped_in_text_and_buffers(tos: LocalTos, client: TosClient) -> None:
    with io.TextIOWrapper(TosObjectWriter(client, "demo", "k"), encoding="utf-8") as text:
        text.write("gr\u00fc\u00dfe\n")
    assert tos.get("demo", "k") == "gr\u00fc\u00dfe\n".encode()


def test_torch_save(tos: LocalTos, client: TosClient) -> None:
    state = {f"w{i}": torch.full((100_000,), float(i)) for i in range(50)}
    with TosObjectWriter(client, "demo", "k") as writer:
        torch.save(state, writer)
    loaded = torch.load(io.BytesIO(tos.get("demo", "k")), weights_only=True)
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_used_from_another_thread(tos: LocalTos, client: TosClient) -> None:
    writer = TosObjectWriter(client, "demo", "k")
    for at in range(0, len(DATA), PART):
        thread = threading.Thread(target=writer.write, args=(DATA[at : at + PART],))
        thread.start()
        thread.join()
    writer.close()
    assert tos.get("demo", "k") == DATA


def test_each_object_is_in_the_audit_log(client: TosClient, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "tosnative.audit"), TosObjectWriter(client, "demo", "k") as writer:
        writer.write(b"abc")
    assert [record.getMessage() for record in caplog.records if record.name == "tosnative.audit"] == [
        f"wrote tos://demo/k size=3 etag={writer.meta and writer.meta.etag} crc64={crc64.update(b'abc')}"
    ]


# -- the plan


def test_plan_without_a_hint() -> None:
    plan = plan_parts(8 * MIB)
    assert [plan.size(number) // MIB for number in (1, 1000, 1001, 2000, 2001, 10_000)] == [8, 8, 16, 16, 32, 4096]
    assert plan.largest_object > 7 << 40
    for number in (0, MAX_PARTS + 1):
        with pytest.raises(ValueError, match="10000"):
            plan.size(number)


@given(part=st.integers(MIB, 5 << 30), hint=st.one_of(st.none(), st.integers(0, 10_000 * (5 << 30))))
@settings(max_examples=60, deadline=None)
def test_plans_always_fit(part: int, hint: int | None) -> None:
    plan = plan_parts(part, hint)
    sizes = [plan.size(number) for number in range(1, MAX_PARTS + 1)]
    assert sizes == sorted(sizes)
    assert sizes[0] >= max(PART, min(part, 5 << 30))
    assert sizes[-1] <= 5 << 30
    assert plan.largest_object == sum(sizes) >= (hint or 0)
    if hint is not None and hint < 1 << 40:
        assert plan.size(1) <= max(part, PART, hint // 5000 + 2 * MIB)


def test_a_hint_that_no_object_can_have() -> None:
    with pytest.raises(ValueError, match="size_hint"):
        plan_parts(MIB, 10_001 * (5 << 30))


def test_parts_grow_while_they_are_sent(tos: LocalTos, client: TosClient, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = TosObjectWriter(client, "demo", "k")
    writer._upload._plan = PartPlan(PART, -998)  # as if a thousand parts had been sent: doubling from part 3 on
    with writer:
        writer.write(DATA * 3)
    sizes = {int(r.query["partNumber"]): r.body_bytes for r in tos.requests if "partNumber" in r.query}
    assert [sizes[number] for number in sorted(sizes)][:3] == [2 * PART, 2 * PART, 4 * PART]
    assert tos.get("demo", "k") == DATA * 3
