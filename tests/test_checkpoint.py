"""TosCheckpoint: torch.save and torch.load by URL, and the calls that tostorchconnector's users make."""

import pickle
import random
from collections.abc import Iterator

import pytest
import torch

from tosnative.checkpoint import TosCheckpoint
from tosnative.config import ReaderType, TosClientConfig
from tosnative.errors import TosNotFoundError
from tosnative.testing import LocalTos


@pytest.fixture
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        yield server


@pytest.fixture
def store(tos: LocalTos) -> Iterator[TosCheckpoint]:
    with TosCheckpoint(tos.region, tos.endpoint, tos.cred) as made:
        yield made


def model() -> dict[str, torch.Tensor]:
    return {f"layer{i}": torch.randn(200, 300) for i in range(60)}


@pytest.mark.parametrize("kind", [None, *ReaderType])
def test_save_and_load(store: TosCheckpoint, kind: ReaderType | None) -> None:
    state = model()
    with store.writer("tos://demo/epoch-1/model.pt") as writer:
        torch.save(state, writer)
    with store.reader("tos://demo/epoch-1/model.pt", kind, 1 << 20) as reader:
        loaded = torch.load(reader, weights_only=True)
    assert all(torch.equal(loaded[name], state[name]) for name in state)


def test_positional_forms(tos: LocalTos) -> None:
    store = TosCheckpoint(tos.region, tos.endpoint, tos.cred, TosClientConfig(16 << 20, 3, 32, 32), True, False)
    with store.writer("demo/a", 1 << 20) as writer:
        writer.write("text")
    with store.reader("demo/a", ReaderType.RANGED, 100) as reader:
        assert (reader.bucket, reader.key) == ("demo", "a")
        assert reader.read() == b"text"
        assert not reader.verified  # enable_crc is off
    store.close()
    store.close()
    with pytest.raises(ValueError, match="closed"):
        store.reader("demo/a")
    with pytest.raises(ValueError, match="closed"):
        store.writer("demo/a")


def test_what_is_open_outlives_close(tos: LocalTos) -> None:
    store = TosCheckpoint(tos.region, tos.endpoint, tos.cred, TosClientConfig(4 << 20))
    data = random.Random(2).randbytes(9 << 20)
    writer = store.writer("tos://demo/a")
    writer.write(data[: 8 << 20])
    store.close()
    writer.write(data[8 << 20 :])
    writer.close()
    assert tos.get("demo", "a") == data


def test_private_cloud_parameters_warn(tos: LocalTos) -> None:
    with pytest.warns(UserWarning, match="idc, cluster"):
        TosCheckpoint(tos.region, tos.endpoint, tos.cred, idc="x", cluster="y")
    TosCheckpoint(tos.region, tos.endpoint, tos.cred, None, True, True, None, None, None, None, None)


@pytest.mark.parametrize("url", ["s3://demo/key", "tos://demo", "tos://demo/", "tos://Not_A_Bucket/key", ""])
def test_urls_that_are_none(store: TosCheckpoint, url: str) -> None:
    for call in (store.reader, store.writer):
        with pytest.raises(ValueError, match=r"\S"):
            call(url)


def test_missing_settings_are_an_error_at_construction(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOS_ENDPOINT", "TOS_REGION", "TOS_ACCESS_KEY", "TOS_SECRET_KEY"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="TOS_REGION"):
        TosCheckpoint()


def test_an_absent_object(store: TosCheckpoint) -> None:
    with store.reader("tos://demo/absent") as reader, pytest.raises(TosNotFoundError, match=r"tos://demo/absent"):
        torch.load(reader, weights_only=True)


def test_no_request_before_the_first_byte(tos: LocalTos, store: TosCheckpoint) -> None:
    store.reader("tos://demo/a").close()
    store.writer("tos://demo/a").abort()
    assert tos.requests == []
    assert tos.keys("demo") == []


def test_pickles(store: TosCheckpoint) -> None:
    with store.writer("tos://demo/a") as writer:
        writer.write(random.Random(1).randbytes(1000))
    arrived = pickle.loads(pickle.dumps(store))
    with arrived, arrived.reader("tos://demo/a") as reader:
        assert reader.read() == random.Random(1).randbytes(1000)
