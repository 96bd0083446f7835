"""Datasets under a DataLoader: forked, spawned and forkserver workers, requests counted, nothing left behind."""

import gc
import multiprocessing
import threading
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from dataset_objects import Sample, as_is, asked, connection, content, fill, key_and_bytes, key_only
from descriptors import open_files
from torch.utils.data import DataLoader, Subset

from tosnative.datasets import TosIterableDataset, TosMapDataset
from tosnative.errors import TosNotFoundError
from tosnative.reader import TosObjectReader
from tosnative.sharding import UNEVEN, Uneven
from tosnative.testing import LocalTos

pytestmark = [pytest.mark.filterwarnings("ignore:This DataLoader will create"), pytest.mark.timeout(180)]
KINDS = [TosMapDataset, TosIterableDataset]
WAYS = [(0, None), (2, "fork"), (2, "spawn"), (3, "fork"), (3, "spawn"), (2, "forkserver"), (8, "fork")]
# Starting a process anew costs seconds of importing torch: once for each kind and way where the way is not the point.
FEW = [(TosMapDataset, "fork"), (TosIterableDataset, "fork"), (TosIterableDataset, "spawn")]
Dataset = TosMapDataset | TosIterableDataset


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    """A server in a process of its own, as a training job sees it."""
    with LocalTos(bucket="demo", process=True) as tos:
        fill(tos, "small/", 40)
        fill(tos, "many/", 1000)
        yield tos


@pytest.fixture(autouse=True)
def _count_anew(tos: LocalTos) -> Iterator[None]:
    tos.clear_requests()
    yield
    tos.faults.clear()


def load(dataset: Any, workers: int, method: str | None, batch_size: int | None = 16, **more: Any) -> DataLoader[Any]:
    return DataLoader(
        dataset,
        batch_size=batch_size,
        num_workers=workers,
        multiprocessing_context=method,
        collate_fn=as_is,
        **more,
    )


def samples(batches: Any) -> list[Any]:
    return [sample for batch in batches for sample in batch]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("workers", "method"), WAYS)
def test_a_thousand_objects_are_a_thousand_gets_and_one_listing(
    tos: LocalTos, kind: type[Dataset], workers: int, method: str | None
) -> None:
    dataset = kind.from_prefix("tos://demo/many/", transform=key_and_bytes, **connection(tos))
    got: list[Sample] = samples(load(dataset, workers, method, 64))
    assert Counter(key for key, _ in got) == Counter(f"many/{number:04d}" for number in range(1000))
    assert all(data == content(key, 100) for key, data in got)
    assert asked(tos) == {"GET": 1000, "LIST": 1}


@pytest.mark.parametrize(("kind", "method"), FEW)
def test_a_prefix_is_listed_once_for_all_epochs_and_the_parent(tos: LocalTos, kind: type[Dataset], method: str) -> None:
    dataset = kind.from_prefix("tos://demo/small/", transform=key_and_bytes, **connection(tos))
    loader = load(dataset, 2, method)
    for _ in range(2):
        assert len(set(samples(loader))) == 40
    assert len(dataset.index) == 40
    assert asked(tos) == {"GET": 80, "LIST": 1}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("workers", "method"), [(4, "fork"), (2, "forkserver")])
def test_after_the_parent_has_used_it_each_worker_has_its_own_sockets(
    tos: LocalTos, kind: type[Dataset], workers: int, method: str
) -> None:
    dataset = kind.from_prefix("tos://demo/small/", transform=key_and_bytes, **connection(tos))
    assert (
        len(list(dataset)) == 40
    )  # to the end: what was asked for ahead would arrive later, on the parent's connections
    used_before = {request.connection for request in tos.requests}
    tos.clear_requests()
    got = samples(load(dataset, workers, method))
    assert dict(got) == {key: content(key, 100) for key, _ in got}
    assert len({key for key, _ in got}) == len(got) == 40
    assert not used_before & {request.connection for request in tos.requests}
    assert next(iter(dataset)) == ("small/0000", content("small/0000", 100))


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("world", [1, 2, 3])
@pytest.mark.parametrize("uneven", UNEVEN)
def test_workers_by_ranks(tos: LocalTos, workers: int, world: int, uneven: Uneven) -> None:
    per_rank = []
    for rank in range(world):
        dataset = TosIterableDataset.from_prefix(
            "tos://demo/small/", transform=key_only, sharding=(rank, world), uneven=uneven, **connection(tos)
        )
        per_rank.append(samples(load(dataset, workers, "fork" if workers else None)))
    seen = Counter(key for part in per_rank for key in part)
    if uneven == "exact":
        assert len(seen) == seen.total() == 40
    else:
        assert len({len(part) for part in per_rank}) == 1
        assert abs(seen.total() - 40) < world
        assert all(len(set(part)) == len(part) for part in per_rank), "no worker repeats another"


@pytest.mark.parametrize(("workers", "method"), [(0, None), (3, "fork"), (2, "spawn")])
def test_without_sharding_a_rank_sees_all_and_no_worker_repeats_another(
    tos: LocalTos, workers: int, method: str | None
) -> None:
    dataset = TosIterableDataset.from_prefix("tos://demo/small/", transform=key_only, **connection(tos))
    assert sorted(samples(load(dataset, workers, method))) == [f"small/{number:04d}" for number in range(40)]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_dataset_inside_another_object(tos: LocalTos, method: str) -> None:
    dataset = TosMapDataset.from_prefix("tos://demo/small/", transform=key_and_bytes, **connection(tos))
    got = samples(load(Subset(dataset, range(10, 20)), 2, method))
    assert [key for key, _ in got] == [f"small/{n:04d}" for n in range(10, 20)]
    assert asked(tos) == {"GET": 10, "LIST": 1}


@pytest.mark.parametrize(("kind", "method"), FEW)
@pytest.mark.parametrize("batch_size", [None, 8])
def test_readers_that_workers_return_arrive_readable(
    tos: LocalTos, kind: type[Dataset], method: str, batch_size: int | None
) -> None:
    dataset = kind.from_prefix("tos://demo/small/", **connection(tos))
    batches = load(dataset, 2, method, batch_size)
    readers: list[TosObjectReader] = list(batches) if batch_size is None else samples(batches)
    assert {reader.key: reader.read() for reader in readers} == {
        f"small/{n:04d}": content(f"small/{n:04d}", 100) for n in range(40)
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("workers", [0, 2])
def test_default_collate_names_the_remedy(tos: LocalTos, kind: type[Dataset], workers: int) -> None:
    dataset = kind.from_prefix("tos://demo/small/", **connection(tos))
    with pytest.raises(TypeError, match="transform="):
        next(iter(DataLoader(dataset, batch_size=4, num_workers=workers)))


@pytest.mark.parametrize(("kind", "method"), FEW)
def test_a_workers_error_arrives_with_its_kind_and_key(tos: LocalTos, kind: type[Dataset], method: str) -> None:
    urls = [f"tos://demo/small/{number:04d}" for number in range(6)] + ["tos://demo/small/gone"]
    dataset = kind.from_urls(urls, transform=key_and_bytes, **connection(tos))
    with pytest.raises(TosNotFoundError, match="small/gone"):
        list(load(dataset, 2, method, 2))


@pytest.mark.parametrize(("kind", "method"), FEW)
def test_skipped_objects_are_counted_over_all_workers(tos: LocalTos, kind: type[Dataset], method: str) -> None:
    urls = [f"tos://demo/small/{number:04d}" for number in range(12)]
    urls += [f"tos://demo/gone/{number}" for number in range(5)]
    dataset = kind.from_urls(urls, transform=key_only, on_error="skip", **connection(tos))
    for epoch in range(1, 3):
        assert len(samples(load(dataset, 3, method, 17))) == 12
        assert dataset.skipped == 5 * epoch


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_ending_an_epoch_early_at_each_batch_leaves_nothing(
    tos: LocalTos, kind: type[Dataset], workers: int, persistent: bool
) -> None:
    dataset = kind.from_prefix("tos://demo/small/", transform=key_only, **connection(tos))
    loader = load(dataset, workers, "fork" if workers else None, persistent_workers=persistent)
    for stop in range(4):
        for epoch in range(3):
            batches = iter(loader)
            assert len([next(batches) for _ in range(min(stop, 3))]) == min(stop, 3), epoch
            del batches
    assert sorted(samples(loader)) == [f"small/{number:04d}" for number in range(40)]
    dataset.close()
    del loader, dataset
    gc.collect()
    assert multiprocessing.active_children() == []
    for thread in threading.enumerate():
        if "QueueFeeder" in thread.name:
            thread.join(30)  # torch's own, which it tells to end and does not wait for
            assert not thread.is_alive()


def test_no_descriptor_is_left(tos: LocalTos) -> None:
    def use() -> None:
        for kind in KINDS:
            with kind.from_prefix("tos://demo/small/", transform=key_only, **connection(tos)) as dataset:
                assert len(samples(load(dataset, 2, "fork"))) == 40
        gc.collect()

    use()
    before = open_files()
    for _ in range(3):
        use()
    assert open_files() == before


@pytest.mark.parametrize("kind", KINDS)
def test_workers_under_throttling_and_broken_answers(tos: LocalTos, kind: type[Dataset]) -> None:
    tos.faults.add(method="GET", key="small/*", probability=0.2, times=20, status=503)
    tos.faults.add(method="GET", key="small/*", probability=0.2, times=20, truncate_after_bytes=10)
    tos.faults.add(method="GET", key="small/*", probability=0.2, times=20, reset="before")
    dataset = kind.from_prefix("tos://demo/small/", transform=key_and_bytes, **connection(tos))
    got = samples(load(dataset, 2, "fork"))
    assert dict(got) == {key: content(key, 100) for key, _ in got}
    assert len(got) == 40
