"""Lists of the local server against a model that knows no index, and their exact pages."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operations_service import Service, service

from tosnative.testing.keyindex import KeyIndex, after_prefix

TEXT = st.text(alphabet="ab/é中\U0010ffff", max_size=5)
KEYS = st.sets(TEXT.filter(bool), max_size=12)


def pages(tos: Service, query: str, *, v2: bool = True) -> list[dict[str, Any]]:
    """All pages of a list, by token or by marker."""
    found: list[dict[str, Any]] = []
    more = "list-type=2" if v2 else "marker="
    while True:
        found.append(tos.call("GET", None, f"{query}&{more}").json)
        if not found[-1]["IsTruncated"]:
            return found
        assert len(found) < 100
        more = (
            f"list-type=2&continuation-token={found[-1]['NextContinuationToken']}"
            if v2
            else f"marker={found[-1]['NextMarker']}"
        )


def expected(keys: set[str], prefix: str, delimiter: str) -> list[tuple[str, bool]]:
    """The entries in key order, each with whether it is a common prefix."""
    entries: list[tuple[str, bool]] = []
    for key in sorted(keys, key=str.encode):
        if not key.startswith(prefix):
            continue
        found = key.find(delimiter, len(prefix)) if delimiter else -1
        entry = (key, False) if found < 0 else (key[: found + len(delimiter)], True)
        if entry not in entries:
            entries.append(entry)
    return entries


class TestIndex:
    @given(st.lists(st.tuples(st.booleans(), st.integers(0, 60)), max_size=200), st.integers(0, 60))
    def test_behaves_as_a_sorted_set(self, steps: list[tuple[bool, int]], start: int) -> None:
        index, model = KeyIndex(), set()
        for add, number in steps:
            key = f"k{number:02}"
            (index.add if add else index.remove)(key)
            (model.add if add else model.discard)(key)
        assert list(index) == sorted(model)
        assert len(index) == len(model)
        first = f"k{start:02}"
        assert list(index.from_key(first)) == sorted(key for key in model if key >= first)
        assert list(index.from_key(first, inclusive=False)) == sorted(key for key in model if key > first)

    def test_many_keys_in_any_order(self) -> None:
        keys = [f"{number * 7919 % 20011:05}" for number in range(20000)]
        index = KeyIndex()
        for key in keys:
            index.add(key)
        assert list(index) == sorted(keys)
        for key in keys[::2]:
            index.remove(key)
        assert list(index) == sorted(keys[1::2])
        assert list(KeyIndex(keys)) == sorted(keys)

    @given(TEXT, TEXT, TEXT)
    def test_after_prefix_is_behind_all_with_the_prefix(self, prefix: str, rest: str, other: str) -> None:
        assert prefix + rest < after_prefix(prefix)
        if other > prefix and not other.startswith(prefix):
            assert other >= after_prefix(prefix)


class TestPages:
    @given(KEYS, TEXT, st.sampled_from(["", "/", "a", "ab", "//"]), st.integers(1, 4), st.booleans())
    def test_pages_hold_every_entry_once_and_are_exact(
        self, keys: set[str], prefix: str, delimiter: str, size: int, v2: bool
    ) -> None:
        tos = service()
        for key in keys:
            tos.put(key)
        entries = expected(keys, prefix, delimiter)
        got = pages(tos, f"prefix={prefix}&delimiter={delimiter}&max-keys={size}", v2=v2)
        found = [
            sorted(
                [(item["Key"], False) for item in page["Contents"]]
                + [(item["Prefix"], True) for item in page["CommonPrefixes"]]
            )
            for page in got
        ]
        assert [entry for page in found for entry in page] == entries
        assert len(got) == max(-(-len(entries) // size), 1)
        assert all(len(page) == size for page in found[:-1])

    @given(KEYS, TEXT, TEXT)
    def test_start_after_is_exclusive(self, keys: set[str], prefix: str, after: str) -> None:
        tos = service()
        for key in keys:
            tos.put(key)
        got = tos.call("GET", None, f"list-type=2&prefix={prefix}&start-after={after}").json
        wanted = [key for key, _ in expected(keys, prefix, "") if key > after]
        assert [item["Key"] for item in got["Contents"]] == wanted

    @given(KEYS, TEXT, st.sampled_from(["", "/"]), st.integers(1, 4))
    def test_backwards(self, keys: set[str], prefix: str, delimiter: str, size: int) -> None:
        tos = service()
        for key in keys:
            tos.put(key)
        got = pages(tos, f"prefix={prefix}&delimiter={delimiter}&max-keys={size}&reverse=True", v2=False)
        found = [item["Key"] for page in got for item in page["Contents"]]
        prefixes = [item["Prefix"] for page in got for item in page["CommonPrefixes"]]
        entries = expected(keys, prefix, delimiter)
        assert found == [name for name, is_prefix in reversed(entries) if not is_prefix]
        assert prefixes == [name for name, is_prefix in reversed(entries) if is_prefix]


class TestAnswers:
    @pytest.fixture
    def tos(self) -> Service:
        tos = service()
        for key in ("a/1", "a/2", "b c", "é"):
            tos.put(key, key.encode(), x_tos_meta_name="%E4")
        return tos

    def test_types_are_what_a_strict_client_wants(self, tos: Service) -> None:
        answer = tos.call("GET", None, "list-type=2&delimiter=/&max-keys=2&fetch-meta=true").json
        assert answer["KeyCount"] == 2
        assert answer["MaxKeys"] == 2
        assert answer["IsTruncated"] is True
        assert answer["CommonPrefixes"] == [{"Prefix": "a/"}]
        (entry,) = answer["Contents"]
        assert entry["Size"] == 3
        assert entry["HashCrc64ecma"].isdigit()
        assert entry["ETag"].startswith('"')
        assert entry["LastModified"].endswith("Z")
        assert "." in entry["LastModified"]
        assert entry["UserMeta"] == [{"Key": "name", "Value": "%E4"}]
        assert entry["StorageClass"] == "STANDARD"
        empty = tos.call("GET", None, "list-type=2&prefix=nothing").json
        assert (empty["Contents"], empty["CommonPrefixes"], empty["IsTruncated"]) == ([], [], False)

    def test_the_token_wins_over_start_after(self, tos: Service) -> None:
        token = tos.call("GET", None, "list-type=2&max-keys=2").json["NextContinuationToken"]
        answer = tos.call("GET", None, f"list-type=2&start-after=é&continuation-token={token}").json
        assert [item["Key"] for item in answer["Contents"]] == ["b c", "é"]
        assert answer["ContinuationToken"] == token
        assert tos.call("GET", None, "list-type=2&continuation-token=%%").code == "InvalidArgument"

    def test_encoding_type_url(self, tos: Service) -> None:
        answer = tos.call("GET", None, "list-type=2&encoding-type=url&delimiter=/").json
        assert [item["Key"] for item in answer["Contents"]] == ["b+c", "%C3%A9"]
        assert answer["Delimiter"] == "%2F"
        assert answer["EncodingType"] == "url"
        assert tos.call("GET", None, "encoding-type=base64").code == "InvalidArgument"

    def test_no_page_has_more_than_a_thousand(self, tos: Service) -> None:
        for number in range(1001):
            tos.put(f"many/{number}")
        answer = tos.call("GET", None, "list-type=2&prefix=many/&max-keys=5000").json
        assert (len(answer["Contents"]), answer["MaxKeys"], answer["IsTruncated"]) == (1000, 1000, True)
        assert tos.call("GET", None, "max-keys=x").code == "InvalidArgument"


class TestUploads:
    def test_pages_by_key_and_id(self) -> None:
        tos = service()
        begun = [(key, tos.upload(key)[0]) for key in ("b", "a/1", "a/2", "b", "c")]
        found, markers = [], ""
        while True:
            page = tos.call("GET", None, f"uploads&max-uploads=2{markers}").json
            found += [(item["Key"], item["UploadId"]) for item in page["Uploads"]]
            if not page["IsTruncated"]:
                break
            markers = f"&key-marker={page['NextKeyMarker']}&upload-id-marker={page['NextUploadIdMarker']}"
        assert found == sorted(begun)
        rolled = tos.call("GET", None, "uploads&delimiter=/").json
        assert rolled["CommonPrefixes"] == [{"Prefix": "a/"}]
        assert [item["Key"] for item in rolled["Uploads"]] == ["b", "b", "c"]
        later = tos.call("GET", None, "uploads&key-marker=b").json
        assert [item["Key"] for item in later["Uploads"]] == ["c"]
        skipped = tos.call("GET", None, "uploads&delimiter=/&key-marker=a/").json
        assert skipped["CommonPrefixes"] == []
