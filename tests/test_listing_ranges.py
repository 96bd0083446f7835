"""A long listing in ranges of keys: every key once and in order, whatever the keys, the answers' order and the changes."""

import json
import logging
import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative.client import TosClient
from tosnative.errors import TosAccessError, TosError, TosException
from tosnative.ranged_listing import list_index
from tosnative.testing import LocalTos


class Service:
    """A bucket in memory: answers when it likes, in any order, and changes between two answers."""

    def __init__(self, keys: Iterable[str], chance: random.Random, churning: Iterable[str] = ()) -> None:
        self.steady, self.churning, self.chance = set(keys), sorted(set(churning) - set(keys)), chance
        self.order = sorted
        self.kind: str | TosException = "fns"
        self.asked: list[dict[str, Any]] = []
        self.under_way = self.most_under_way = 0

    def head_bucket(self, _bucket: str) -> str:
        if isinstance(self.kind, TosException):
            raise self.kind
        return self.kind

    def list_query(self, _bucket: str, prefix: str, **options: Any) -> "Answer":
        after = options.get("start_after")
        assert not after or after.encode().startswith(prefix.encode())
        self.asked.append(options)
        return Answer(self, prefix, **options)

    def submit(self, answers: "tuple[Answer, ...]") -> None:
        self.under_way += len(answers)
        self.most_under_way = max(self.most_under_way, self.under_way)

    def now(self) -> list[str]:
        present = [key for key in self.churning if self.chance.random() < 0.5]
        return self.order(self.steady.union(present))

    def begin(self, keys: list[str], start_after: str | None, token: str | None) -> list[str]:
        after = token or start_after
        return [key for key in keys if not after or key > after]


class Answer:
    def __init__(
        self,
        service: Service,
        prefix: str,
        max_keys: int,
        start_after: str | None = None,
        token: str | None = None,
        delimiter: str | None = None,
    ) -> None:
        self.service, self.prefix, self.max_keys = service, prefix, max_keys
        self.after = (start_after, token)
        self.document: bytes | None = None

    @property
    def done(self) -> bool:
        if self.document is None and self.service.chance.random() < 0.5:
            self.wait()
        return self.document is not None

    def wait(self) -> "Answer":
        if self.document is None:
            self.service.under_way -= 1
            keys = [key for key in self.service.now() if key.startswith(self.prefix)]
            keys = self.service.begin(keys, *self.after)
            page: dict[str, Any] = {
                "Contents": [{"Key": k, "Size": len(k), "ETag": '"e"'} for k in keys[: self.max_keys]]
            }
            if len(keys) > self.max_keys:
                page |= {"IsTruncated": True, "NextContinuationToken": keys[self.max_keys - 1]}
            self.document = json.dumps(page).encode()
        return self

    def cancel(self) -> None:
        if self.document is None:
            self.service.under_way -= 1
            self.document = b""


def listed(service: Service, prefix: str = "", **options: Any) -> list[str]:
    index = list_index(service, "bkt", prefix, **options)  # type: ignore[arg-type]
    assert all(meta.size == len(meta.key) and meta.bucket == "bkt" for meta in index)
    assert service.under_way == 0
    return [meta.key for meta in index]


any_key = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
deep_key = st.lists(st.sampled_from(["a", "b", "dir", "é", "0", "09", "\U0001f600"]), min_size=1, max_size=8).map(
    "/".join
)
number_key = st.integers(0, 3000).map("p/{:06d}.bin".format)
hash_key = st.integers(0, (1 << 64) - 1).map("{:016x}".format)
key_sets = st.one_of(
    *(st.sets(kind, max_size=60) for kind in (any_key, deep_key, number_key, hash_key, any_key | deep_key))
)


@settings(deadline=None, max_examples=300)
@given(
    key_sets, st.integers(1, 7), st.randoms(use_true_random=False), st.sampled_from(["", "a", "p/", "dir/", "\u4e2d"])
)
def test_every_key_once_in_order(keys: set[str], page_size: int, chance: random.Random, prefix: str) -> None:
    service = Service(keys | {prefix + key for key in keys}, chance)
    expected = sorted((key for key in service.steady if key.startswith(prefix)), key=str.encode)
    assert listed(service, prefix, page_size=page_size) == expected


@settings(deadline=None, max_examples=300)
@given(key_sets, key_sets, st.integers(1, 7), st.randoms(use_true_random=False))
def test_what_stays_is_listed_once_while_other_keys_come_and_go(
    keys: set[str], churning: set[str], page_size: int, chance: random.Random
) -> None:
    service = Service(keys, chance, churning)
    found = listed(service, page_size=page_size)
    assert found == sorted(set(found))
    assert keys <= set(found) <= keys | churning


@settings(deadline=None, max_examples=200)
@given(
    key_sets, st.integers(1, 7), st.randoms(use_true_random=False), st.sampled_from(["shuffled", "reversed", "deaf"])
)
def test_no_key_is_lost_where_the_service_keeps_to_no_order(
    keys: set[str], page_size: int, chance: random.Random, how: str
) -> None:
    service = Service(keys, chance)
    if how == "shuffled":
        service.kind = "hns"
    if how != "deaf":
        places = {key: chance.random() for key in keys} if how == "shuffled" else {}
        service.order = lambda present: sorted(
            present, key=lambda key: (places[key], key) if places else key, reverse=True
        )

    def begin(present: list[str], start_after: str | None, token: str | None) -> list[str]:
        return present[present.index(token) + 1 :] if token else present

    service.begin = begin  # type: ignore[method-assign]
    assert listed(service, page_size=page_size) == service.order(keys)


def names(count: int) -> list[str]:
    return [f"train/{number:08d}.bin" for number in range(count)]


@pytest.mark.parametrize("make", [
    names,
    lambda count: [f"{number * 0x9E3779B97F4A7C15 % (1 << 64):016x}" for number in range(count)],
    lambda count: ["a/1", "b/2", *(f"zzz/{number}/part" for number in range(count))],
    lambda count: [f"{number % 7}/{number % 31:03d}/中{number}" for number in range(count)],
])  # fmt: skip
def test_a_long_listing_has_many_requests_under_way_and_few_more_than_it_takes(make: Any) -> None:
    keys = make(5000)
    service = Service(keys, random.Random(1))
    assert listed(service, page_size=50) == sorted(keys)
    assert 8 <= service.most_under_way <= 16
    probes = [ask for ask in service.asked if ask["max_keys"] == 1]
    assert len(service.asked) - len(probes) < 1.3 * len(keys) / 50
    assert len(probes) < 80


@pytest.mark.parametrize("count", [0, 1, 10, 11, 20])
def test_a_short_listing_is_asked_for_page_by_page(count: int) -> None:
    service = Service(names(count), random.Random(1))
    assert len(listed(service, page_size=10)) == count
    assert len(service.asked) == max(1, -(-count // 10))


def test_where_the_type_of_the_bucket_is_not_to_be_known_it_is_not_split(caplog: pytest.LogCaptureFixture) -> None:
    service = Service(names(100), random.Random(1))
    service.kind = TosAccessError(TosError("not yours"))
    with caplog.at_level(logging.INFO, "tosnative"):
        assert listed(service, page_size=3) == names(100)
    assert len(service.asked) == 34
    assert [record.getMessage()[:41] for record in caplog.records] == ["listing tos://bkt/ page by page: the type"]


def test_over_the_wire(local_tos: LocalTos, caplog: pytest.LogCaptureFixture) -> None:
    client = TosClient(region=local_tos.region, endpoint=local_tos.endpoint, cred=local_tos.cred)
    keys = sorted(["p/", "p/x/", *(f"p/{number % 10}/é{number:03d}" for number in range(300))], key=str.encode)
    for key in keys:
        local_tos.put("test", key, b"" if key.endswith("/") else key.encode())
    told: list[int] = []
    with caplog.at_level(logging.INFO, "tosnative"):
        index = list_index(client, "test", "p/", page_size=7, on_progress=told.append)
    assert [meta.key for meta in index] == keys
    assert list(index)[5] == client.list_page("test", "p/", max_keys=6).objects[5]
    assert told[-1] == len(keys)
    assert not caplog.records
    without = list_index(client, "test", "p/", page_size=7, markers=False)
    assert [meta.key for meta in without] == [key for key in keys if not key.endswith("/")]
    flat = list_index(client, "test", "p/", page_size=7, delimiter="/", markers=False)
    assert [meta.key for meta in flat] == []


def test_a_probe_that_is_refused_ends_the_splitting_only(local_tos: LocalTos) -> None:
    client = TosClient(region=local_tos.region, endpoint=local_tos.endpoint, cred=local_tos.cred)
    for key in names(60):
        local_tos.put("test", key, b"1")
    local_tos.faults.add(method="GET", query_has="start-after", status=400)
    assert [meta.key for meta in list_index(client, "test", "", page_size=5)] == names(60)
    local_tos.faults.clear()
    local_tos.faults.add(method="GET", query_has="continuation-token", status=403)
    with pytest.raises(TosAccessError):
        list_index(client, "test", "", page_size=5)
