"""TosMapDataset in one process."""

import operator
import pickle
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from dataset_objects import asked, connection, content, fill, key_and_bytes, key_only
from torch.utils.data import DataLoader

from tosnative.config import ReaderType, TosClientConfig
from tosnative.datasets import TosIterableDataset, TosMapDataset
from tosnative.errors import TosChangedError, TosException, TosIntegrityError, TosNotFoundError
from tosnative.index import ObjectIndex
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos

SMALL_PARTS = TosClientConfig(part_size=1 << 20)


@pytest.fixture
def kw(local_tos: LocalTos) -> dict[str, Any]:
    return {**connection(local_tos), "transform": key_and_bytes}


def test_length_positions_and_iteration(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    objects = list(fill(local_tos, "p/", 7).items())
    dataset = TosMapDataset.from_prefix("tos://test/p/", **kw)
    assert len(dataset) == 7
    assert [dataset[i] for i in range(7)] == objects
    assert dataset[-1] == dataset[torch.tensor(6)] == objects[6]  # type: ignore[index]
    assert list(dataset) == objects
    for outside in (7, -8):
        with pytest.raises(IndexError):
            dataset[outside]
    assert repr(dataset) == "TosMapDataset(tos://test/p/, 7 objects)"


def test_markers_are_no_samples_and_empty_objects_are(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    for key, data in {"p/": b"", "p/a": b"x", "p/empty": b"", "p/sub/": b"", "p/sub/b": b"y"}.items():
        local_tos.put("test", key, data)
    expected = [("p/a", b"x"), ("p/empty", b""), ("p/sub/b", b"y")]
    assert list(TosMapDataset.from_prefix("tos://test/p/", **kw)) == expected
    assert list(TosIterableDataset.from_prefix("tos://test/p/", **kw)) == expected
    assert list(TosMapDataset.from_prefix("tos://test/p/", delimiter="/", **kw)) == expected[:2]


def test_nothing_is_asked_before_it_is_needed_and_no_head_ever(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 5)
    threads = threading.active_count()
    dataset = TosMapDataset.from_prefix("tos://test/p/", **kw)
    assert repr(dataset) == "TosMapDataset(tos://test/p/, not listed yet)"
    assert local_tos.requests == []
    assert threading.active_count() == threads
    assert len(dataset) == len(dataset) == 5
    assert asked(local_tos) == {"LIST": 1}
    dataset.__getitems__([0, 1, 2, 3, 4])
    assert asked(local_tos) == {"LIST": 1, "GET": 5}


@pytest.mark.parametrize("reader_type", [None, *ReaderType])
@pytest.mark.parametrize("size_known", [False, True])
def test_each_sample_of_a_batch_is_its_own_object(
    local_tos: LocalTos, kw: dict[str, Any], reader_type: ReaderType | None, size_known: bool
) -> None:
    sizes = {"p/a": 10, "p/b": 200, "p/c": 3000, "p/d": 0, "p/e": (5 << 19) + 1}
    for key, size in sizes.items():
        local_tos.put("test", key, content(key, size))
    kw = {**kw, "reader_type": reader_type, "client_conf": SMALL_PARTS}
    urls = [f"tos://test/{key}" for key in sizes]
    dataset = TosMapDataset.from_prefix("tos://test/p/", **kw) if size_known else TosMapDataset.from_urls(urls, **kw)
    keys = list(sizes)
    for order in ([0, 1, 2, 3, 4], [4, 2, 3, 1, 0], [2, 2, 0], []):
        got = dataset.__getitems__(order)
        assert [key for key, _ in got] == [keys[row] for row in order]
        assert [data == content(key, sizes[key]) for key, data in got] == [True] * len(order)


def test_a_batch_is_fetched_at_the_same_time(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    objects = fill(local_tos, "p/", 16)
    dataset = TosMapDataset.from_prefix("tos://test/p/", **kw)
    len(dataset)
    local_tos.clear_requests()
    gate = threading.Event()
    most = []

    def transform(reader: TosObjectReader) -> bytes:
        while len(local_tos.requests) < 16:
            gate.wait(0.001)
        most.append(len(local_tos.requests))
        return reader.read()

    together = TosMapDataset.from_prefix("tos://test/p/", **{**kw, "transform": transform})
    len(together)
    local_tos.clear_requests()
    assert together.__getitems__(list(range(16))) == list(objects.values())
    assert most == [16] * 16, "all requests had arrived before the first transform ended"


@pytest.mark.parametrize("concurrency", [1, 3])
def test_prefetch_concurrency_bounds_what_is_in_flight(
    local_tos: LocalTos, kw: dict[str, Any], concurrency: int
) -> None:
    fill(local_tos, "p/", 12)
    ahead = []

    def transform(reader: TosObjectReader) -> int:
        reader.read()
        ahead.append(asked(local_tos)["GET"] - len(ahead))
        return 0

    dataset = TosMapDataset.from_prefix(
        "tos://test/p/", **{**kw, "transform": transform, "prefetch_concurrency": concurrency}
    )
    dataset.__getitems__(list(range(12)))
    assert max(ahead) <= concurrency
    assert len(ahead) == 12


def test_urls_with_and_without_scheme_one_or_many(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 3)
    urls = ["tos://test/p/0002", "test/p/0000", "tos://test/p/0002"]
    assert [key for key, _ in TosMapDataset.from_urls(iter(urls), **kw)] == ["p/0002", "p/0000", "p/0002"]
    assert [key for key, _ in TosMapDataset.from_urls("tos://test/p/0001", **kw)] == ["p/0001"]
    assert len(TosMapDataset.from_urls([], **kw)) == 0
    assert TosMapDataset.from_urls([], **kw).__getitems__([]) == []
    for wrong, text in (("tos://test/", "names a bucket"), ("s3://test/a", "s3://"), ("tos://B_/a", "B_")):
        with pytest.raises(ValueError, match=text):
            TosMapDataset.from_urls(["tos://test/p/0001", wrong], **kw)


def test_local_files(local_tos: LocalTos, kw: dict[str, Any], tmp_path: Path) -> None:
    fill(local_tos, "p/", 4)
    local_tos.put("test", "p/with space ", b"!")
    (tmp_path / "one").write_bytes(b"tos://test/p/0003\r\n\r\ntest/p/with space \n")
    (tmp_path / "two").write_text("tos://test/p/0001")
    dataset = TosMapDataset.from_local_files([str(tmp_path / "one"), tmp_path / "two"], **kw)
    assert [key for key, _ in dataset] == ["p/0003", "p/with space ", "p/0001"]
    assert len(TosMapDataset.from_local_files(str(tmp_path / "two"), **kw)) == 1
    (tmp_path / "bad").write_text("tos://test/a\nhttp://x/y\n")
    with pytest.raises(ValueError, match=r"bad, line 2: .*http://"):
        TosMapDataset.from_local_files([tmp_path / "bad"], **kw)
    with pytest.raises(FileNotFoundError):
        TosMapDataset.from_local_files([tmp_path / "missing"], **kw)


def test_a_listing_can_be_saved_and_reused(local_tos: LocalTos, kw: dict[str, Any], tmp_path: Path) -> None:
    objects = fill(local_tos, "p/", 5)
    TosMapDataset.from_prefix("tos://test/p/", **kw).index.save(tmp_path / "listing")
    local_tos.clear_requests()
    for index in (tmp_path / "listing", ObjectIndex.load(tmp_path / "listing")):
        assert dict(TosMapDataset.from_index(index, **kw)) == objects
    assert dict(TosIterableDataset.from_index(ObjectIndex.load(tmp_path / "listing")[1:3], **kw)).keys() == {
        "p/0001",
        "p/0002",
    }
    assert asked(local_tos)["LIST"] == 0


def test_after_close_every_use_is_a_value_error(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 2)
    with TosMapDataset.from_prefix("tos://test/p/", **kw) as dataset:
        assert len(dataset) == 2
    dataset.close()
    for use in (len, iter, lambda d: d[0], lambda d: d.__getitems__([0]), lambda d: d.__enter__(), lambda d: d.index):
        with pytest.raises(ValueError, match="closed"):
            list(use(dataset))  # type: ignore[no-untyped-call]


def test_missing_objects_and_prefixes(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    with pytest.raises(TosNotFoundError, match="p/none"):
        TosMapDataset.from_urls(["tos://test/p/none"], **kw)[0]
    assert len(TosMapDataset.from_prefix("tos://test/nothing/", **kw)) == 0
    with pytest.raises(TosNotFoundError, match="no-such-bucket"):
        len(TosMapDataset.from_prefix("tos://no-such-bucket/p/", **kw))


def test_skipping_leaves_out_what_is_gone_or_damaged_and_counts_it(
    local_tos: LocalTos, kw: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    objects = fill(local_tos, "p/", 8)
    dataset = TosMapDataset.from_prefix("tos://test/p/", on_error="skip", **kw)
    assert len(dataset) == 8
    local_tos.delete("test", "p/0002")
    local_tos.faults.add(method="GET", key="p/0005", flip_byte_at=3)
    keys = [key for key, _ in dataset.__getitems__(list(range(8)))]
    assert keys == [key for key in objects if key not in ("p/0002", "p/0005")]
    assert dataset.skipped == 2
    assert "p/0002" in caplog.text
    assert "p/0005" in caplog.text
    with pytest.raises(TosNotFoundError, match="p/0002"):
        dataset[2]
    with pytest.raises(TosNotFoundError, match="p/0002"):
        dataset.__getitems__([2, 2])
    raising = TosMapDataset.from_index(dataset.index, **kw)
    with pytest.raises(TosIntegrityError, match="p/0005"):
        raising.__getitems__([4, 5])
    assert raising.skipped == 0


def test_skipping_does_not_hide_a_service_that_refuses(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 4)
    dataset = TosMapDataset.from_prefix("tos://test/p/", on_error="skip", **kw)
    len(dataset)
    local_tos.faults.add(method="GET", key="p/*", status=403, code="AccessDenied")
    with pytest.raises(TosException, match="AccessDenied"):
        dataset.__getitems__([0, 1])


def test_an_object_overwritten_after_the_listing(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 3)
    now, pinned = (TosMapDataset.from_prefix("tos://test/p/", pin=pin, **kw) for pin in (None, "listing"))
    assert len(now) == len(pinned) == 3
    local_tos.put("test", "p/0001", b"another and longer content" * 10)
    assert now[1] == ("p/0001", b"another and longer content" * 10)
    assert pinned[0][0] == "p/0000"
    with pytest.raises(TosChangedError, match="p/0001"):
        pinned[1]


def test_readers_without_a_transform(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    objects = fill(local_tos, "p/", 3)
    dataset = TosMapDataset.from_prefix("tos://test/p/", **connection(local_tos))
    readers = dataset.__getitems__([2, 0])
    assert [reader.read() for reader in readers] == [objects["p/0002"], objects["p/0000"]]
    with pytest.raises(TypeError, match="transform="):
        list(DataLoader(dataset, batch_size=2))
    labelled = TosMapDataset.from_prefix("tos://test/p/", **{**kw, "transform": lambda reader: {"x": (reader, 1)}})
    with pytest.raises(TypeError, match="transform="):
        list(DataLoader(labelled, batch_size=2))


def test_an_error_of_the_transform_says_which_object(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 3)
    dataset = TosMapDataset.from_prefix("tos://test/p/", **{**kw, "transform": operator.attrgetter("nothing")})
    with pytest.raises(AttributeError) as caught:
        dataset[1]
    assert getattr(caught.value, "__notes__", ["tos://test/p/0001"])[0].endswith("tos://test/p/0001")


def test_pickled_as_a_recipe(local_tos: LocalTos, kw: dict[str, Any]) -> None:
    fill(local_tos, "p/", 3)
    dataset = TosMapDataset.from_prefix("tos://test/p/", **{**kw, "transform": key_only})
    copy = pickle.loads(pickle.dumps(dataset))
    assert local_tos.requests == [], "pickling for another purpose than starting a process lists nothing"
    assert list(copy) == list(dataset) == ["p/0000", "p/0001", "p/0002"]
    local_tos.clear_requests()
    assert len(pickle.loads(pickle.dumps(dataset))) == 3
    assert asked(local_tos)["LIST"] == 0


@pytest.mark.parametrize(
    ("keywords", "error", "text"),
    [
        ({"prefetch_concurrency": -1}, ValueError, "prefetch_concurrency"),
        ({"buffer_size": 0}, ValueError, "buffer_size"),
        ({"pin": "etag"}, ValueError, "pin"),
        ({"on_error": "ignore"}, ValueError, "on_error"),
        ({"transform": 3}, TypeError, "transform"),
        ({"shuffle": True}, TypeError, "shuffle"),
        ({"nothing": 1}, TypeError, "'nothing'"),
        ({"endpoint": "http://["}, ValueError, "endpoint"),
    ],
)
def test_bad_keywords(local_tos: LocalTos, keywords: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        TosMapDataset.from_prefix("tos://test/p/", **{**connection(local_tos), **keywords})
