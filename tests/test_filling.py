"""The part that a writer fills: its pieces are what was added, in order, and only what cannot change is kept uncopied."""

import random
import sys
from collections.abc import Callable
from typing import Any

import object_writing
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from object_writing import MIB, PART

from tosnative import crc64
from tosnative.buffers import BIG, allocate, as_bytes
from tosnative.client import TosClient
from tosnative.filling import Filling
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

server, tos, client = object_writing.server, object_writing.tos, object_writing.client
NOISE = random.Random(3).randbytes(3 * MIB)
SIZES = st.sampled_from([1, 7, BIG - 1, BIG, BIG + 1, 512 * 1024, 512 * 1024 + 3, MIB])
KINDS: list[Callable[[bytes], Any]] = [bytes, bytearray, memoryview, lambda data: memoryview(bytearray(data))]


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(SIZES, st.sampled_from(KINDS), st.integers(0, MIB)), max_size=8), st.booleans())
def test_the_pieces_are_what_was_added(adding: list[tuple[int, Any, int]], check: bool) -> None:
    part, model = Filling(allocate(8 * MIB), check), b""
    for size, kind, at in adding:
        data = kind(NOISE[at : at + size])
        part.add(as_bytes(data))
        model += NOISE[at : at + size]
        if isinstance(data, bytearray):
            data[:] = bytes(size)  # it may change afterwards
        assert part.used == len(model)
        assert part.room == 8 * MIB - len(model)
    assert b"".join(part.pieces) == model
    assert all(len(piece) for piece in part.pieces)
    assert part.crc64() == (crc64.update(model) if check else None)


def test_only_large_bytes_are_kept() -> None:
    def kept(data: Any) -> bool:
        part = Filling(allocate(MIB), True)
        part.add(as_bytes(data))
        (piece,) = part.pieces
        return type(piece.obj) is bytes

    large = bytes(NOISE[:BIG])
    assert kept(large)
    assert kept(memoryview(large))
    assert kept(memoryview(large).cast("I"))
    assert not kept(large[1:])
    assert not kept(bytearray(large))
    assert not kept(memoryview(bytearray(large)).toreadonly())
    assert not kept(torch.zeros(BIG, dtype=torch.uint8).numpy())

    class Changing(bytes):
        pass

    assert not kept(Changing(large))


@pytest.mark.parametrize("kind", KINDS)
def test_one_write_of_many_parts(tos: LocalTos, client: TosClient, kind: Any) -> None:
    data = NOISE * 4 + NOISE[:77]
    assert len(data) > 2 * PART
    with TosObjectWriter(client, "demo", "k") as writer:
        writer.write(b"head")
        assert writer.write(kind(data)) == len(data)
        writer.write(b"tail")
    assert tos.get("demo", "k") == b"head" + data + b"tail"
    assert writer.meta is not None
    assert writer.meta.crc64 == crc64.update(b"head" + data + b"tail")


def test_what_is_kept_is_let_go_when_it_is_sent(tos: LocalTos, client: TosClient) -> None:
    data = bytes(NOISE)
    before = sys.getrefcount(data)
    with TosObjectWriter(client, "demo", "k") as writer:
        for _ in range(5):
            writer.write(data)
    assert tos.get("demo", "k") == NOISE * 5
    assert sys.getrefcount(data) == before
