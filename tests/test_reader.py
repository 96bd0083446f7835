"""One contract for every kind of reader: it behaves as io.BytesIO on the object's bytes does."""

import array
import io
import pickle
import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tosnative.client import TosClient
from tosnative.config import ReaderType, TosClientConfig
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos

PART = 1 << 20
SIZES = [0, 1, PART - 1, PART, PART + 1, 3 * PART]
KINDS = list(ReaderType)


def content(size: int) -> bytes:
    data = bytearray(random.Random(size).randbytes(size))
    for at in range(0, size, 97_001):  # lines of all lengths, some longer than readline's stretch
        data[at : at + 3] = b"\nx\n"[: size - at]
    return bytes(data)


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        for size in SIZES:
            server.put("demo", str(size), content(size))
        yield server


@pytest.fixture(scope="module")
def client(tos: LocalTos) -> Iterator[TosClient]:
    config = TosClientConfig(part_size=PART, hedge_percent=0)  # requests are counted
    with TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config) as made:
        yield made


# -- the contract

OFFSETS = st.one_of(
    st.integers(-5, 70),
    st.sampled_from([PART - 1, PART, PART + 1, 2 * PART, 3 * PART, 3 * PART + 1, 10 * PART]),
    st.integers(-4 * PART, 4 * PART),
)
COUNTS = st.one_of(
    st.none(), st.integers(-1, 200), st.sampled_from([PART - 1, PART, PART + 1, 5 * PART]), st.integers(0, 3 * PART)
)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["read", "read1", "readline"]), COUNTS),
    st.tuples(st.sampled_from(["readinto", "readinto1"]), COUNTS),
    st.tuples(st.just("seek"), st.tuples(OFFSETS, st.sampled_from([0, 1, 2]))),
    st.tuples(st.sampled_from(["tell", "next", "readlines"]), st.integers(1, 300)),
)


def outcome(file: Any, name: str, argument: Any) -> object:
    """What a call returns and leaves behind, or the kind of error it raises."""
    try:
        if name == "seek":
            return file.seek(*argument)
        if name == "tell":
            return file.tell()
        if name == "next":
            return next(file, b"at the end")
        if name in ("readinto", "readinto1"):
            buffer = bytearray(abs(argument or 0))
            return getattr(file, name)(buffer), buffer
        return getattr(file, name)(argument)
    except (ValueError, OSError) as error:
        return type(error)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=12), known=st.booleans(), window=st.sampled_from([None, 1000, 300_000, 2 * PART]))
def test_equal_to_bytesio(
    client: TosClient, kind: ReaderType, size: int, steps: list[tuple[str, Any]], known: bool, window: int | None
) -> None:
    expected = io.BytesIO(content(size))
    options = {"size": size if known else None, "reader_type": kind, "buffer_size": window}
    with TosObjectReader(client, "demo", str(size), **options) as reader:
        for name, argument in steps:
            assert outcome(reader, name, argument) == outcome(expected, name, argument)
            assert reader.tell() == expected.tell()
        assert reader.size == size
    assert client.budget.used == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("known", [True, False])
def test_read_to_the_end_is_verified(client: TosClient, kind: ReaderType, size: int, known: bool) -> None:
    with TosObjectReader(client, "demo", str(size), size=size if known else None, reader_type=kind) as reader:
        assert not reader.verified
        assert reader.read() == content(size)
        assert reader.read() == b""
        assert reader.verified or size == 0
    with TosObjectReader(client, "demo", str(size), reader_type=kind) as reader:
        pieces = list(iter(lambda: reader.read(100_000), b""))
        assert b"".join(pieces) == content(size)
        assert {len(piece) for piece in pieces[:-1]} <= {100_000}
        assert reader.verified or size == 0


@pytest.mark.parametrize("kind", KINDS)
def test_lines(client: TosClient, kind: ReaderType) -> None:
    data = content(3 * PART)
    with TosObjectReader(client, "demo", str(3 * PART), reader_type=kind) as reader:
        assert list(reader) == list(io.BytesIO(data))
        reader.seek(0)
        assert reader.readlines() == io.BytesIO(data).readlines()
    text = io.TextIOWrapper(
        TosObjectReader(client, "demo", str(PART - 1), reader_type=kind), encoding="latin-1", newline="\n"
    )
    assert list(text) == list(io.TextIOWrapper(io.BytesIO(content(PART - 1)), encoding="latin-1", newline="\n"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [PART - 1, 3 * PART])
def test_any_writable_contiguous_buffer(client: TosClient, kind: ReaderType, size: int) -> None:
    data = content(size)
    buffers: list[Any] = [
        bytearray(1000),
        array.array("i", [0] * 500),
        np.zeros(1000, np.float16),
        np.zeros((3, 70), np.int32),
        np.zeros(40, ">f4"),
        np.zeros(20, [("a", "i4"), ("b", "f8")]),
        np.zeros((), np.float64),
        np.zeros((0, 5), np.int32),
        memoryview(np.zeros(size // 4 * 4, np.uint8)).cast("B"),
        np.zeros(size // 4 + 100, np.int32),
    ]
    for buffer in buffers:
        with TosObjectReader(client, "demo", str(size), reader_type=kind) as reader:
            nbytes = memoryview(buffer).nbytes
            assert reader.readinto(buffer) == min(nbytes, size)
            raw = buffer.tobytes() if isinstance(buffer, np.ndarray) else memoryview(buffer).tobytes()
            assert raw[:size] == data[:nbytes]


@pytest.mark.parametrize("kind", KINDS)
def test_buffers_that_cannot_be_filled(client: TosClient, kind: ReaderType) -> None:
    with TosObjectReader(client, "demo", "1", reader_type=kind) as reader:
        with pytest.raises(TypeError):
            reader.readinto(b"read-only")
        with pytest.raises(BufferError):
            reader.readinto(np.zeros(10, np.int32)[::2])
        with pytest.raises(BufferError):
            reader.readinto(np.zeros((3, 70), np.int32, order="F"))
        with pytest.raises(TypeError):
            reader.readinto("text")
        assert reader.tell() == 0


@pytest.mark.parametrize("kind", KINDS)
def test_after_close(client: TosClient, kind: ReaderType) -> None:
    reader = TosObjectReader(client, "demo", str(PART + 1), reader_type=kind)
    assert reader.read(10) == content(PART + 1)[:10]
    assert (reader.readable(), reader.writable(), reader.seekable(), reader.closed) == (True, False, True, False)
    reader.close()
    reader.close()
    assert reader.closed
    calls = [
        reader.read, reader.read1, reader.readline, reader.readlines, reader.tell, reader.readable, reader.writable,
        reader.seekable, reader.__enter__, reader.__iter__, reader.__next__, reader.flush, reader.isatty,
        lambda: reader.readinto(bytearray(1)), lambda: reader.readinto1(bytearray(1)), lambda: reader.seek(0),
    ]  # fmt: skip
    for call in calls:
        with pytest.raises(ValueError, match="closed"):
            call()
    assert (reader.bucket, reader.key, reader.size) == ("demo", str(PART + 1), PART + 1)
    with pytest.raises(io.UnsupportedOperation):
        reader.fileno()


def test_a_writer_it_is_not(client: TosClient) -> None:
    with TosObjectReader(client, "demo", "1") as reader:
        for call in (lambda: reader.write(b"x"), reader.truncate, reader.detach):
            with pytest.raises(io.UnsupportedOperation):
                call()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("begun", [True, False])
@pytest.mark.parametrize("size", [0, PART, 3 * PART])
def test_begin_is_the_first_request(client: TosClient, tos: LocalTos, kind: ReaderType, begun: bool, size: int) -> None:
    readers = [TosObjectReader(client, "demo", str(size), size=size, reader_type=kind) for _ in range(5)]
    tos.clear_requests()
    if begun:
        client.submit([first for reader in readers if (first := reader.begin()) is not None])
    for reader in readers:
        assert reader.read() == content(size)
        reader.close()
    assert all(request.method == "GET" for request in tos.requests)
    assert len(tos.requests) == 5 * max(1, size // PART)


def test_attributes_ask_for_bytes_only_where_nobody_knows(client: TosClient, tos: LocalTos) -> None:
    tos.clear_requests()
    listed = TosObjectReader(client, "demo", "1", size=1, etag="e", crc64=5)
    assert (listed.size, listed.etag, listed.crc64, listed.name) == (1, "e", 5, "tos://demo/1")
    assert not tos.requests
    bare = TosObjectReader(client, "demo", "1")
    assert bare.size == 1
    assert bare.etag
    assert isinstance(bare.crc64, int)
    assert bare.read() == content(1)
    assert [request.method for request in tos.requests] == ["GET"]
    listed.close()
    bare.close()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1, 3 * PART])
def test_pickled_reader_reads_on(client: TosClient, kind: ReaderType, size: int) -> None:
    with TosObjectReader(client, "demo", str(size), reader_type=kind) as reader:
        untouched = pickle.loads(pickle.dumps(reader))
        reader.seek(size // 2)
        moved = pickle.loads(pickle.dumps(reader))
        assert reader.read(5) == content(size)[size // 2 : size // 2 + 5]
        pinned = pickle.loads(pickle.dumps(reader))
    assert untouched.read() == content(size)
    assert moved.read() == content(size)[size // 2 :]
    assert pinned.read() == content(size)[size // 2 + 5 :]
    assert pinned.etag == reader.etag
    assert pickle.loads(pickle.dumps(reader)).closed


def test_bad_buffer_size(client: TosClient) -> None:
    with pytest.raises(ValueError, match="buffer_size"):
        TosObjectReader(client, "demo", "1", buffer_size=0)
