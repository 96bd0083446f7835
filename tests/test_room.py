"""bytes objects that are received into: they become plain bytes, and are filled again only when nobody has them any more."""

import gc
import io
import random
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative import room as room_
from tosnative.buffers import BIG, copy
from tosnative.client import TosClient
from tosnative.config import ReaderType
from tosnative.errors import TosException
from tosnative.reader import TosObjectReader
from tosnative.room import Room, Rooms
from tosnative.testing import LocalTos

MIB = 1 << 20
KEPT = room_._KEEP_FROM
needs_keeping = pytest.mark.skipif(not room_._KEEPS, reason="this Python does not tell who has an object")


def made(rooms: Rooms, size: int, fill: int) -> bytes:
    found = rooms.of(size)
    found.view[:] = bytes([fill]) * size
    return found.seal()


@pytest.mark.parametrize("size", [0, 1, 2, 100, BIG, 5 << 20])
@pytest.mark.parametrize("kind", [Room.of, room_._portable_room, Rooms(64 * MIB).of])
def test_room_becomes_bytes(size: int, kind: Any) -> None:
    room = kind(size)
    data = bytes(range(256)) * (size // 256 + 1)
    copy(room.view, memoryview(data)[:size])
    made = room.seal()
    assert type(made) is bytes
    assert made == data[:size]
    assert hash(made) == hash(data[:size])


def test_room_never_is_an_object_that_others_share() -> None:
    for size in (0, 1):
        room = Room.of(size)
        room.view[:] = b"x" * size
        assert room.seal() == b"x" * size
        assert bytes(size) == b"\0" * size


@needs_keeping
@pytest.mark.parametrize("size", [KEPT, KEPT + 1, KEPT - 1, 2 * KEPT, 3 * KEPT + 77])
def test_what_was_dropped_is_filled_again(size: int) -> None:
    rooms = Rooms(256 * MIB)
    first = made(rooms, 2 * KEPT, 1)
    assert hash(first) == hash(bytes([1]) * (2 * KEPT))
    del first
    again = made(rooms, size, 2)
    assert again == bytes([2]) * size
    assert hash(again) == hash(bytes([2]) * size)
    assert len(rooms._cells) == 1


@needs_keeping
@pytest.mark.parametrize(
    "hold",
    [
        lambda data: data,
        lambda data: [data],
        lambda data: {data: 1},
        memoryview,
        lambda data: memoryview(data)[5:6],
        io.BytesIO,
        lambda data: np.frombuffer(data, "u1"),
        lambda data: torch.frombuffer(data, dtype=torch.uint8)[7:9],
        lambda data: lambda: data,
    ],
)
@pytest.mark.filterwarnings("ignore:The given buffer is not writable")
def test_what_somebody_has_is_never_touched(hold: Any) -> None:
    rooms = Rooms(256 * MIB)
    held = hold(made(rooms, KEPT, 1))
    others = [made(rooms, KEPT, 9) for _ in range(3)]
    data = next(one[0] for one in rooms._cells if one[0][0] == 1)
    assert data == bytes([1]) * KEPT
    assert all(other == bytes([9]) * KEPT for other in others)
    del held


def test_keeps_no_more_than_its_share() -> None:
    rooms = Rooms(8 * KEPT)  # a quarter: two of the smallest
    kept = [made(rooms, KEPT, number) for number in range(5)]
    assert len(rooms._cells) <= 2
    assert made(rooms, 3 * KEPT, 7) == bytes([7]) * (3 * KEPT)
    assert sum(len(one[0]) for one in rooms._cells) <= 2 * KEPT
    assert [data[0] for data in kept] == list(range(5))
    rooms.clear()
    assert not rooms._cells


def test_without_the_gil_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room_, "_KEEPS", False)
    rooms = Rooms(256 * MIB)
    assert made(rooms, KEPT, 1) == bytes([1]) * KEPT
    assert not rooms._cells


@settings(max_examples=20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
def test_held_and_dropped_in_any_order(steps: list[tuple[int, int]]) -> None:
    rooms, held = Rooms(64 * MIB), {}
    for number, (slot, more) in enumerate(steps):
        size = KEPT - 1 + more
        held[slot] = made(rooms, size, number), number, size
        for data, fill, length in held.values():
            assert len(data) == length
            assert data.count(fill) == length


def test_threads_never_get_the_same_room() -> None:
    rooms, wrong = Rooms(64 * MIB), []
    start = threading.Barrier(4)

    def work(fill: int) -> None:
        start.wait(20)
        for _ in range(40):
            data = made(rooms, KEPT, fill)
            if data.count(fill) != KEPT:
                wrong.append(fill)

    threads = [threading.Thread(target=work, args=(fill,)) for fill in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not wrong


# -- whole objects


@pytest.fixture(scope="module")
def objects() -> dict[str, bytes]:
    return {f"volume/{size}": random.Random(size).randbytes(size) for size in (9 * MIB, 12 * MIB + 5, 17 * MIB)}


@pytest.fixture
def tos(objects: dict[str, bytes]) -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as service:
        for key, data in objects.items():
            service.put("demo", key, data)
        yield service


@pytest.fixture
def client(tos: LocalTos) -> Iterator[TosClient]:
    with TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred) as made_client:
        yield made_client


@pytest.mark.parametrize("kind", list(ReaderType))
def test_large_reads_one_after_the_other(client: TosClient, objects: dict[str, bytes], kind: ReaderType) -> None:
    held = None
    for _ in range(3):
        for key, data in objects.items():
            read = TosObjectReader(client, "demo", key, reader_type=kind).read()
            assert read == data
            assert held is None or held[0] == objects[held[1]]
            held = (read, key) if len(data) > 12 * MIB else None  # one is kept over the next read, the other is not
            del read
    gc.collect()


def test_a_read_that_fails_gives_out_nothing(client: TosClient, objects: dict[str, bytes], tos: LocalTos) -> None:
    key, data = next(iter(objects.items()))
    assert TosObjectReader(client, "demo", key).read() == data
    reader = TosObjectReader(client, "demo", key)
    assert reader.read(5) == data[:5]
    tos.put("demo", key, bytes(reversed(data)))
    with pytest.raises(TosException):
        reader.read()
    assert TosObjectReader(client, "demo", key).read() == bytes(reversed(data))
