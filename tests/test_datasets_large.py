"""Objects of several parts in a dataset: from far away they come before they are read, from near they are left alone."""

import gc
import threading
from typing import Any

import pytest
from dataset_objects import content, fill
from interruptions import until

from tosnative.client import TosClient
from tosnative.config import TosClientConfig
from tosnative.datasets import TosIterableDataset, TosMapDataset
from tosnative.errors import TosException
from tosnative.metrics import METRICS
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos

PART = 1 << 20
COUNT, SIZE = 8, 3 * PART + 5


@pytest.fixture
def objects(local_tos: LocalTos) -> dict[str, bytes]:
    return fill(local_tos, "large/", COUNT, SIZE)


@pytest.fixture
def kw(local_tos: LocalTos, objects: dict[str, bytes]) -> dict[str, Any]:
    config = TosClientConfig(part_size=PART, hedge_percent=0)
    return {"region": local_tos.region, "endpoint": local_tos.endpoint, "cred": local_tos.cred, "client_conf": config}


def starts(tos: LocalTos, key: str) -> set[int]:
    """Where the ranges begin that were asked for of this object."""
    found = [request.headers["range"] for request in tos.requests if request.key == key and request.method == "GET"]
    return {int(text.removeprefix("bytes=").partition("-")[0]) for text in found}


ALL = {0, PART, 2 * PART, 3 * PART}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("source", ["urls", "prefix"])
def test_the_next_ones_come_whole_while_one_is_transformed(
    local_tos: LocalTos, objects: dict[str, bytes], kw: dict[str, Any], source: str
) -> None:
    local_tos.faults.add(method="GET", delay_s=0.02)
    keys, before = list(objects), METRICS.bytes_received

    def transform(reader: TosObjectReader) -> tuple[str, bytes]:
        place = keys.index(reader.key)
        if place == 0:
            until(lambda: METRICS.bytes_received - before >= COUNT * PART)  # the first part of each
        elif place < COUNT - 1:
            until(lambda: starts(local_tos, keys[place + 1]) == ALL)
        return reader.key, reader.read()

    kw["transform"] = transform
    if source == "urls":
        dataset = TosIterableDataset.from_urls([f"tos://test/{key}" for key in keys], **kw)
    else:
        dataset = TosIterableDataset.from_prefix("tos://test/large/", **kw)
    assert dict(dataset) == objects


@pytest.mark.timeout(60)
def test_a_batch_of_a_map_dataset(local_tos: LocalTos, objects: dict[str, bytes], kw: dict[str, Any]) -> None:
    local_tos.faults.add(method="GET", delay_s=0.02)
    dataset = TosMapDataset.from_prefix("tos://test/large/", transform=lambda reader: (reader.key, reader.read()), **kw)
    assert dict(dataset.__getitems__(list(range(COUNT)))) == objects
    assert all(len(starts(local_tos, key)) >= 2 for key in objects)


@pytest.mark.timeout(60)
def test_a_near_service_is_asked_when_something_is_wanted(
    local_tos: LocalTos, objects: dict[str, bytes], kw: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    # The server shares this process, so that how soon it answers says nothing.
    monkeypatch.setattr(TosClient, "least_first_byte_s", lambda self, bucket: 0.001)
    keys = list(objects)

    def transform(reader: TosObjectReader) -> TosObjectReader:
        assert reader.size == SIZE  # the first part has come
        return reader

    dataset = TosIterableDataset.from_urls([f"tos://test/{key}" for key in keys], transform=transform, **kw)
    found = list(dataset)
    assert [starts(local_tos, key) for key in keys] == [{0}] * COUNT
    assert [reader.read() for reader in found] == list(objects.values())


@pytest.mark.timeout(60)
def test_what_goes_wrong_ahead_is_told_when_it_is_read(
    local_tos: LocalTos, objects: dict[str, bytes], kw: dict[str, Any]
) -> None:
    local_tos.faults.add(method="GET", delay_s=0.02)
    keys = list(objects)
    changed = threading.Event()

    def transform(reader: TosObjectReader) -> bytes:
        if reader.key == keys[1]:
            for key in keys[3:]:
                local_tos.put("test", key, content(key + "new", SIZE))
            changed.set()
        return reader.read()

    dataset = TosIterableDataset.from_urls([f"tos://test/{key}" for key in keys], transform=transform, **kw)
    samples = iter(dataset)
    got = [next(samples) for _ in range(3)]
    assert got == list(objects.values())[:3]
    mixed = None
    while mixed is None:
        try:
            data = next(samples)
        except (TosException, StopIteration) as error:
            mixed = error
        else:
            key = keys[len(got)]
            assert data in (objects[key], content(key + "new", SIZE)), "of two versions"
            got.append(data)
    assert changed.is_set()


@pytest.mark.timeout(60)
def test_the_budget_is_given_back(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    gc.collect()  # all clients of a process share the budget: what errors of other tests hold is not this one's
    local_tos.faults.add(method="GET", delay_s=0.02)
    dataset = TosIterableDataset.from_prefix("tos://test/large/", transform=lambda reader: reader.read(), **kw)
    samples = iter(dataset)
    next(samples)
    next(samples)
    samples.close()  # type: ignore[attr-defined]
    del samples
    until(lambda: dataset._client.budget.used == 0)
