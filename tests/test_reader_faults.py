"""What readers do when something goes wrong: never a wrong byte, always an error that says what happened."""

import io
import pickle
import re

import object_reading
import pytest
import torch
from object_reading import KINDS, NEW, OLD, PART

from tosnative.client import TosClient
from tosnative.config import ReaderType
from tosnative.errors import (
    TosChangedError,
    TosIntegrityError,
    TosNotFoundError,
    TosUnavailableError,
)
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos

server, tos, client = object_reading.server, object_reading.tos, object_reading.client


# -- the object changes


@pytest.mark.parametrize("kind", KINDS)
def test_replaced_between_two_ranges(tos: LocalTos, client: TosClient, kind: ReaderType) -> None:
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        assert reader.read(100) == OLD[:100]
        tos.put("demo", "big", NEW)
        with pytest.raises(TosChangedError, match="tos://demo/big"):
            reader.read()
        assert reader.tell() == 100
        with pytest.raises(TosChangedError):
            reader.readinto(bytearray(4 * PART))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1000, len(OLD)])
def test_replaced_after_the_listing(tos: LocalTos, client: TosClient, kind: ReaderType, size: int) -> None:
    key = "small" if size == 1000 else "big"
    meta = client.list_page("demo", key).objects[0]
    listed = {"size": meta.size, "etag": meta.etag, "crc64": meta.crc64, "reader_type": kind}
    tos.put("demo", key, NEW[: size - 1])
    with TosObjectReader(client, "demo", key, **listed) as reader:
        assert reader.size == size  # nobody has asked the service yet
        assert reader.read() == NEW[: size - 1]
        assert (reader.size, reader.verified) == (size - 1, True)
    with TosObjectReader(client, "demo", key, **listed) as reader:
        assert reader.seek(-5, io.SEEK_END) == size - 6
        assert reader.read() == NEW[size - 6 : size - 1]
    with TosObjectReader(client, "demo", key, pin=True, **listed) as reader, pytest.raises(TosChangedError):
        reader.read()


def test_replaced_after_pickling(tos: LocalTos, client: TosClient) -> None:
    with TosObjectReader(client, "demo", "big") as reader:
        reader.read(10)
        sent = pickle.dumps(reader)
    tos.put("demo", "big", NEW)
    with pickle.loads(sent) as arrived, pytest.raises(TosChangedError):
        arrived.read()


# -- the bytes are wrong


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("known", [True, False])
def test_one_flipped_byte_of_a_small_object(tos: LocalTos, client: TosClient, kind: ReaderType, known: bool) -> None:
    once = tos.faults.add(method="GET", times=1, flip_byte_at=500)
    with TosObjectReader(client, "demo", "small", size=1000 if known else None, reader_type=kind) as reader:
        assert reader.read() == OLD[:1000]
        assert reader.verified
    assert once.hits == 1
    tos.faults.add(method="GET", flip_byte_at=500)
    with TosObjectReader(client, "demo", "small", reader_type=kind) as reader:
        with pytest.raises(TosIntegrityError, match="tos://demo/small"):
            reader.read()
        assert not reader.verified


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_of_one_range_of_a_whole_read(tos: LocalTos, client: TosClient, kind: ReaderType) -> None:
    """Nothing was handed out yet, so all is asked for once more; then it is an error."""
    once = tos.faults.add(method="GET", skip=2, times=1, flip_byte_at=3)
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        assert reader.read() == OLD
        assert reader.verified
    assert once.hits == 1
    buffer = bytearray(len(OLD))
    tos.faults.add(method="GET", skip=2, times=1, flip_byte_at=3)
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        assert reader.readinto(buffer) == len(OLD)
        assert buffer == OLD
    tos.faults.add(method="GET", flip_byte_at=3)
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        with pytest.raises(TosIntegrityError, match="tos://demo/big"):
            reader.read()
        assert not reader.verified
        with pytest.raises(TosIntegrityError):
            reader.readinto(bytearray(5 * PART))


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_byte_of_one_range_of_a_read_in_pieces(tos: LocalTos, client: TosClient, kind: ReaderType) -> None:
    tos.faults.add(method="GET", skip=2, times=1, flip_byte_at=3)
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        with pytest.raises(TosIntegrityError, match="tos://demo/big"):
            list(iter(lambda: reader.read(PART // 2), b""))
        assert not reader.verified
        with pytest.raises(TosIntegrityError):
            reader.readinto(bytearray(5 * PART))
    with TosObjectReader(client, "demo", "big", reader_type=kind) as reader:
        assert reader.read() == OLD


def test_no_checksum_to_be_had(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", crc="missing")
    with TosObjectReader(client, "demo", "big") as reader:
        assert reader.read() == OLD
        assert (reader.verified, reader.crc64) == (False, None)
    meta = client.head("demo", "big")
    with TosObjectReader(client, "demo", "big", size=meta.size, etag=meta.etag, crc64=meta.crc64) as reader:
        assert reader.read() == OLD
        assert reader.verified  # by the listing's


def test_checksums_switched_off(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", crc="wrong")
    with TosObjectReader(client, "demo", "big", enable_crc=False) as reader:
        assert reader.read() == OLD
        assert not reader.verified


# -- the service fails


@pytest.mark.parametrize("kind", KINDS)
def test_an_absent_object(client: TosClient, kind: ReaderType) -> None:
    with TosObjectReader(client, "demo", "absent", reader_type=kind) as reader:
        for call in (reader.read, reader.readline, lambda: reader.readinto(bytearray(9 * PART)), lambda: reader.size):
            with pytest.raises(TosNotFoundError, match="tos://demo/absent"):
                call()


@pytest.mark.parametrize("kind", KINDS)
def test_after_a_failure_the_call_can_be_repeated(tos: LocalTos, client: TosClient, kind: ReaderType) -> None:
    trouble = tos.faults.add(method="GET", skip=1, status=503, code="ServiceUnavailable")
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        assert reader.read(10) == OLD[:10]
        with pytest.raises(TosUnavailableError):
            reader.read()
        assert reader.tell() == 10
        trouble.remove()
        assert reader.read() == OLD[10:]


def test_read_repeats_the_failure_of_readinto_once(tos: LocalTos, client: TosClient) -> None:
    trouble = tos.faults.add(method="GET", status=503)
    with TosObjectReader(client, "demo", "big") as reader:
        with pytest.raises(TosUnavailableError) as first:
            reader.readinto(bytearray(5000))
        with pytest.raises(TosUnavailableError) as second:
            reader.read(5000)
        assert second.value is first.value
        with pytest.raises(TosUnavailableError):
            reader.readinto(bytearray(5000))
        trouble.remove()
        assert reader.read(10) == OLD[:10]  # not what readinto() was asked for: an ordinary call


@pytest.mark.parametrize("skip", [0, 1, 2, 4])
def test_torch_load_while_the_service_fails(tos: LocalTos, client: TosClient, skip: int) -> None:
    file = io.BytesIO()
    torch.save([torch.zeros(300_000) for _ in range(5)], file)
    tos.put("demo", "model.pt", file.getvalue())
    for _ in range(5):
        tos.faults.clear()
        tos.faults.add(method="GET", key="model.pt", skip=skip, status=503, code="ServiceUnavailable")
        reader = TosObjectReader(client, "demo", "model.pt")
        with reader, pytest.raises(TosUnavailableError, match=re.escape("tos://demo/model.pt")):
            torch.load(reader, weights_only=True)
