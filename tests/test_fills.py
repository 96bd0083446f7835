"""Memory and versions: what the strategies of readers and the buffers of writers stand on."""

import array
import ctypes
import errno
import itertools
import mmap
import random
import resource
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative import buffers, crc64
from tosnative.buffers import BIG, as_bytes, copy
from tosnative.client import TosClient
from tosnative.errors import TosIntegrityError
from tosnative.fills import DirectFill, RangedFill
from tosnative.readahead import SequentialFill
from tosnative.testing import LocalTos
from tosnative.version import ObjectVersion

DATA = random.Random(9).randbytes(5000)


# -- memory


@pytest.mark.parametrize("size", [0, 10, BIG - 1, BIG, 3 * BIG + 1])
@pytest.mark.parametrize(
    "source", [bytes, bytearray, lambda data: memoryview(bytes(data)), lambda data: np.frombuffer(data, "u1")]
)
def test_copy(size: int, source: Any) -> None:
    data = random.Random(size).randbytes(size)
    target = bytearray(size + 20)
    copy(memoryview(target)[10:], as_bytes(source(data)))
    assert target == bytes(10) + data + bytes(10)


@pytest.mark.parametrize(
    "buffer",
    [
        b"abc",
        bytearray(b"abc"),
        array.array("H", [1, 2]),
        np.arange(6).reshape(2, 3),
        np.ones(3, ">i4"),
        np.zeros(2, "i4,f8"),
        np.array(1.5),
    ],
)
def test_as_bytes(buffer: Any) -> None:
    view = as_bytes(buffer)
    assert (view.format, view.ndim, view.itemsize) == ("B", 1, 1)
    assert (
        bytes(view) == np.asarray(buffer).tobytes() if isinstance(buffer, np.ndarray) else memoryview(buffer).tobytes()
    )


def test_copies_leave_the_gil_to_others() -> None:
    source, target = memoryview(bytes(BIG)), memoryview(bytearray(BIG))
    threads = [threading.Thread(target=copy, args=(target, source)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert target == source


# -- versions


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as made:
        made.put("demo", "k", DATA)
        yield made


@pytest.fixture(scope="module")
def client(tos: LocalTos) -> Iterator[TosClient]:
    with TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred) as made:
        yield made


@pytest.fixture
def faults(tos: LocalTos) -> Iterator[Any]:
    yield tos.faults
    tos.faults.clear()


def version(client: TosClient, **known: Any) -> ObjectVersion:
    options: dict[str, Any] = {"size": None, "etag": None, "crc64": None, "check": True, "pin": False, **known}
    return ObjectVersion(client, "demo", "k", **options)


def learn(made: ObjectVersion, start: int, stop: int) -> None:
    download = made.range(start, stop)
    made.client.submit([download])
    made.learn(download.wait())


@given(cuts=st.sets(st.integers(1, len(DATA) - 1), max_size=15), order=st.randoms())
@settings(max_examples=30, deadline=None)
def test_checksums_add_up_in_any_order(client: TosClient, cuts: set[int], order: random.Random) -> None:
    pieces = list(itertools.pairwise([0, *sorted(cuts), len(DATA)]))
    order.shuffle(pieces)
    made = version(client)
    for count, (start, stop) in enumerate(pieces, 1):
        learn(made, start, stop)
        assert made.verified == (count == len(pieces))
        learn(made, start, stop)  # once more changes nothing
    assert (made.size, made.crc64) == (len(DATA), crc64.update(DATA))


def test_a_wrong_sum_is_damage_for_good(client: TosClient, faults: Any) -> None:
    faults.add(method="GET", crc="wrong")
    made = version(client)
    learn(made, 0, 2000)
    with pytest.raises(TosIntegrityError, match="tos://demo/k"):
        learn(made, 2000, len(DATA))
    assert not made.verified
    with pytest.raises(TosIntegrityError):
        made.range(0, 1)


def test_overlapping_ranges_prove_nothing(client: TosClient) -> None:
    made = version(client)
    learn(made, 0, 3000)
    learn(made, 2000, 5000)
    assert not made.verified


def test_a_listings_checksum_counts_for_its_own_version_only(client: TosClient, faults: Any) -> None:
    faults.add(method="GET", crc="missing")
    listed = client.list_page("demo").objects[0]
    same = version(client, size=listed.size, etag=listed.etag, crc64=listed.crc64)
    learn(same, 0, len(DATA))
    assert same.verified
    other = version(client, size=7, etag="older", crc64=5)
    learn(other, 0, len(DATA))
    assert (other.verified, other.crc64, other.size) == (False, None, len(DATA))


# -- strategies


@pytest.mark.parametrize("kind", [SequentialFill, DirectFill, lambda v: RangedFill(v, 700)])
@given(reads=st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 2000)), max_size=8))
def test_strategies_fill_from_anywhere(client: TosClient, kind: Any, reads: list[tuple[int, int]]) -> None:
    made = ObjectVersion(client, "demo", "k", len(DATA), None, None, True, False)
    first = made.whole()
    client.submit([first])
    made.learn(first.wait())
    fill = kind(made)
    for at, size in reads:
        if at + size <= len(DATA) and (held := fill.view(at, size)) is not None:
            assert held == DATA[at : at + size]
        buffer = bytearray(size)
        count = fill.readinto(at, memoryview(buffer))
        assert buffer[:count] == DATA[at : at + size]
        assert count == len(DATA[at : at + size])
    fill.release()
    fill.release()
    assert client.budget.used == 0


# -- memory that is provided before it is written


def first_uses() -> int:
    return resource.getrusage(resource.RUSAGE_THREAD).ru_minflt


needs_provide = pytest.mark.skipif(buffers._madvise is None, reason="this system provides no memory in advance")


@needs_provide
def test_memory_that_is_provided_costs_no_first_use() -> None:
    view = memoryview(mmap.mmap(-1, 8 << 20))[100:-100]
    buffers.provide(view)
    assert buffers._madvise is not None
    data = b"x" * len(view)
    before = first_uses()
    view[:] = data
    assert first_uses() - before < 200  # of some 2,000 pages, or a few huge ones


@pytest.mark.parametrize(("start", "stop"), [(0, 4 << 20), (1, (4 << 20) - 1), (4095, 4097 + BIG), (77, 78), (5, 5)])
def test_what_is_in_the_memory_stays(start: int, stop: int) -> None:
    noise = random.Random(1).randbytes(4 << 20)
    data = bytearray(noise)
    buffers.provide(memoryview(data)[start:stop])
    buffers.provide(memoryview(data)[start:stop])
    assert data == noise


@needs_provide
@pytest.mark.parametrize(("number", "asks_again"), [(errno.EINVAL, False), (errno.ENOMEM, True), (errno.EFAULT, True)])
def test_a_system_without_the_call_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, number: int, asks_again: bool
) -> None:
    asked = []

    def madvise(start: int, size: int, advice: int) -> int:
        asked.append((start, size))
        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr(buffers, "_madvise", madvise)
    for _ in range(2):
        buffers.provide(memoryview(mmap.mmap(-1, 2 * BIG))[1:])
    assert len(asked) == (2 if asks_again else 1)
    assert all(start % mmap.PAGESIZE == 0 and size % mmap.PAGESIZE == 0 for start, size in asked)


@needs_provide
def test_memory_that_is_there_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    monkeypatch.setattr(buffers, "_madvise", lambda start, size, advice: asked.append(size) or 0)
    used = memoryview(bytearray(b"x") * (8 << 20))
    for part in (used, used[BIG:], used[5:-7]):
        buffers.provide(part)
    assert asked == []
    fresh = memoryview(mmap.mmap(-1, 8 << 20))
    fresh[0] = 1
    buffers.provide(fresh)
    assert asked == [8 << 20]
