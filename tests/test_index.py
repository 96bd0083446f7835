"""The index: what goes in comes out, in few bytes, in every process."""

import multiprocessing
import os
import pickle
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative import source
from tosnative.index import ObjectIndex, build_index
from tosnative.meta import TosObjectMeta
from tosnative.uri import check_key, parse_uri

# Surrogates alone occur: a JSON string may hold them.
keys = st.text(st.characters(codec=None), min_size=1, max_size=30)
metas = st.builds(
    TosObjectMeta,
    bucket=st.sampled_from(["one", "two", "three"]),
    key=keys,
    size=st.none() | st.integers(0, 1 << 46),
    etag=st.none() | st.text(st.characters(codec="ascii", exclude_characters='"'), min_size=1, max_size=40),
    crc64=st.none() | st.integers(0, (1 << 64) - 1),
    last_modified=st.none() | st.floats(0, 1e10),
)


def some(count: int) -> list[TosObjectMeta]:
    return [
        TosObjectMeta("demo", f"train/{number:07d}.jpg", 100 + number, f"{number:032x}", number << 40, 1.7e9)
        for number in range(count)
    ]


@settings(deadline=None)
@given(st.lists(st.lists(metas, max_size=5), max_size=4), st.data())
def test_what_goes_in_comes_out(pages: list[list[TosObjectMeta]], data: st.DataObject) -> None:
    index, expected = build_index(pages), [meta for page in pages for meta in page]
    assert list(index) == expected
    assert len(index) == len(expected)
    for row, meta in enumerate(expected):
        assert index[row] == index[row - len(expected)] == meta
        assert index.row(row) == (meta.bucket, meta.key, meta.size, meta.etag, meta.crc64)
        assert index.size(row) == (-1 if meta.size is None else meta.size)
    for outside in (len(expected), -len(expected) - 1):
        with pytest.raises(IndexError):
            index[outside]
    part = data.draw(st.slices(len(expected)))
    assert list(index[part]) == expected[part]
    assert list(pickle.loads(pickle.dumps(index[part]))) == expected[part]


@settings(deadline=None)
@given(st.lists(metas, max_size=12), st.data())
def test_saved_and_mapped(
    tmp_path_factory: pytest.TempPathFactory, objects: list[TosObjectMeta], data: st.DataObject
) -> None:
    path = tmp_path_factory.mktemp("index") / "listing"
    start = data.draw(st.integers(0, len(objects)))
    build_index([objects])[start:].save(path)
    assert list(ObjectIndex.load(path)) == objects[start:]
    whole = path.read_bytes()
    path.write_bytes(whole[: data.draw(st.integers(0, len(whole) - 1))])
    with pytest.raises(ValueError, match="no saved index"):
        ObjectIndex.load(path)


def test_directory_markers_are_left_out_and_empty_objects_are_not() -> None:
    pages = [[TosObjectMeta("demo", "p/", 0), TosObjectMeta("demo", "p/a", 3), TosObjectMeta("demo", "p/empty", 0)]]
    assert [meta.key for meta in build_index(pages, markers=False)] == ["p/a", "p/empty"]
    assert [meta.key for meta in build_index(pages)] == ["p/", "p/a", "p/empty"]
    full = [[TosObjectMeta("demo", "odd/", 1), TosObjectMeta("demo", "unknown/", None)]]
    assert len(build_index(full, markers=False)) == 2


def test_fewer_than_100_bytes_an_object_beside_its_key() -> None:
    count = 20_000
    index = build_index([some(count)])
    assert (index.nbytes - sum(len(meta.key) for meta in index)) / count < 100


def test_saving_replaces_the_whole_file_or_nothing(tmp_path: Path) -> None:
    path = tmp_path / "listing"
    build_index([some(3)]).save(path)
    build_index([some(4)]).save(path)
    assert len(ObjectIndex.load(path)) == 4
    with pytest.raises(FileNotFoundError):
        build_index([some(3)]).save(tmp_path / "missing" / "listing")
    assert [entry.name for entry in tmp_path.iterdir()] == ["listing"]


def test_another_file_is_no_index(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("tos://demo/a\n" * 100)
    with pytest.raises(ValueError, match="no saved index"):
        ObjectIndex.load(tmp_path / "text")
    with pytest.raises(FileNotFoundError):
        ObjectIndex.load(tmp_path / "missing")


def _look(index: ObjectIndex, answers: "multiprocessing.Queue[object]") -> None:
    answers.put((len(index), index[-1], index.row(0)[1]))


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_other_processes_see_it(method: str) -> None:
    context = multiprocessing.get_context(method)
    index = build_index([some(5000)])[1000:]
    answers = context.Queue()
    workers = [context.Process(target=_look, args=(index, answers)) for _ in range(2)]
    for worker in workers:
        worker.start()
    got = [answers.get(timeout=50) for _ in workers]
    for worker in workers:
        worker.join()
    assert got == [(4000, index[-1], "train/0001000.jpg")] * 2


def test_a_started_process_maps_the_memory_instead_of_receiving_it() -> None:
    index = build_index([some(2000)])
    first, second = index._shared_fd(), index._shared_fd()
    assert first == second
    assert os.fstat(first).st_size >= index.nbytes
    del index
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(first)


# -- from URLs


URLS = st.lists(
    st.sampled_from(["tos://one/", "tos://one/", "tos://two/", "two/", "TOS://one/", "tos://one"]).flatmap(
        lambda start: st.sampled_from(["a", "a/b", "ä€", "x" * 40, "/a", "?#", " "]).map(lambda key: start + key)
    ),
    max_size=12,
)


@settings(max_examples=200, deadline=None)
@given(URLS, st.integers(1, 3))
def test_urls_are_parsed_as_one_by_one(urls: list[str], run: int) -> None:
    def one_by_one() -> list[tuple[str, str]]:
        return [(bucket, check_key(bucket, key)) for bucket, key in map(parse_uri, urls)]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(source, "_MOST_IN_RUN", run)
        try:
            expected = one_by_one()
        except ValueError as error:
            with pytest.raises(ValueError, match=re.escape(str(error))):
                source.from_urls(iter(urls))
            return
        found = source.from_urls(iter(urls)).known
    assert found is not None
    assert [(meta.bucket, meta.key, meta.size, meta.etag, meta.crc64) for meta in found] == [
        (bucket, key, None, None, None) for bucket, key in expected
    ]


@pytest.mark.parametrize("wrong", ["tos://one/", "tos://one/\udcff", "s3://one/a", "tos://o/a", 5, b"tos://one/b"])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_a_url_that_names_no_object(wrong: object, before: int) -> None:
    urls = [*(["tos://one/a"] * before), wrong, "tos://one/b"]
    with pytest.raises(TypeError if not isinstance(wrong, str) else ValueError):
        source.from_urls(urls)  # type: ignore[arg-type]
