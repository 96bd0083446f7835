"""Pages of listings: read as the service writes them; anything else is a TosIntegrityError and nothing else."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.columns import read_columns
from tosnative.errors import TosIntegrityError
from tosnative.page_shape import read_shape
from tosnative.pages import ListPage, parse_page

ITEM = {
    "Key": "a/b",
    "Size": 5,
    "ETag": '"abc"',
    "HashCrc64ecma": "7",
    "LastModified": "2026-01-02T03:04:05.250Z",
    "StorageClass": "STANDARD",
}


def page(**fields: Any) -> bytes:
    return json.dumps({"Contents": [ITEM], **fields}).encode()


def test_a_page_is_read() -> None:
    found = parse_page("bkt", page(CommonPrefixes=[{"Prefix": "p/"}], IsTruncated=True, NextContinuationToken="t"))
    (meta,) = found.objects
    assert (meta.bucket, meta.key, meta.size, meta.etag, meta.crc64) == ("bkt", "a/b", 5, "abc", 7)
    assert meta.last_modified == 1767323045.25
    assert (found.prefixes, found.token) == (["p/"], "t")


def test_what_may_be_missing_may_be_missing() -> None:
    assert parse_page("bkt", b"{}") == ListPage()
    assert parse_page("bkt", b'{"Contents": null, "CommonPrefixes": null, "IsTruncated": false}') == ListPage()
    (meta,) = parse_page("bkt", b'{"Contents": [{"Key": "a", "Size": 0, "ETag": "e", "HashCrc64ecma": ""}]}').objects
    assert (meta.crc64, meta.last_modified) == (None, None)


@pytest.mark.parametrize(
    "fields",
    [
        {"Contents": [{**ITEM, "Size": "5"}]},
        {"Contents": [{**ITEM, "Size": -1}]},
        {"Contents": [{**ITEM, "Size": 1e400}]},
        {"Contents": [{**ITEM, "Size": True}]},
        {"Contents": [{**ITEM, "Key": 7}]},
        {"Contents": [{**ITEM, "Key": ""}]},
        {"Contents": [{**ITEM, "Key": "\ud800"}]},
        {"Contents": [{**ITEM, "ETag": None}]},
        {"Contents": [{**ITEM, "ETag": '"e"\r\nX-Evil: 1'}]},
        {"Contents": [{**ITEM, "ETag": "\ud800"}]},
        {"Contents": [{**ITEM, "LastModified": "nan"}]},
        {"Contents": [{**ITEM, "LastModified": "1e300"}]},
        {"Contents": [{**ITEM, "HashCrc64ecma": "-1"}]},
        {"Contents": [{**ITEM, "HashCrc64ecma": 1 << 64}]},
        {"Contents": [{**ITEM, "HashCrc64ecma": 1e400}]},
        {"Contents": [{**ITEM, "LastModified": "yesterday"}]},
        {"Contents": {"Key": "a"}},
        {"Contents": ["a"]},
        {"CommonPrefixes": [{"Prefix": None}]},
        {"IsTruncated": True},
        {"Code": "InternalError", "Message": "try again"},
        {"IsTruncated": True, "NextContinuationToken": ""},
    ],
)
def test_a_page_that_is_none_says_so(fields: dict[str, Any]) -> None:
    with pytest.raises(TosIntegrityError, match="is no listing") as caught:
        parse_page("bkt", page(**fields), "pre")
    assert caught.value.error.bucket == "bkt"
    assert caught.value.error.key == "pre"
    assert str(caught.value).isprintable()


def test_what_an_answer_says_forges_no_line_of_a_log() -> None:
    error = {"Code": "a\nERROR all is lost", "Message": "\x1b[31m\ud800" + "x" * 5000}
    with pytest.raises(TosIntegrityError) as caught:
        parse_page("bkt", json.dumps(error).encode())
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("document", [b"", b"{", b"[]", b"7", b"\xff\xfe", b"<html>", b"[" * 100_000, b"9" * 10_000])
def test_documents_that_are_no_pages(document: bytes) -> None:
    with pytest.raises(TosIntegrityError):
        parse_page("bkt", document)


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | st.just("2026-01-01T00:00:00Z"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["Contents", "Key", "Size", "ETag", "HashCrc64ecma", "LastModified", "CommonPrefixes", "Prefix",
                 "IsTruncated", "NextContinuationToken"]
            ),
            inner,
            max_size=6,
        )
    ),
    max_leaves=15,
)  # fmt: skip


@given(ANY)
def test_any_json_is_a_page_or_a_tos_integrity_error(value: Any) -> None:
    try:
        found = parse_page("bkt", json.dumps(value).encode())
    except TosIntegrityError:
        return
    for meta in found.objects:
        assert isinstance(meta.key, str)
        assert isinstance(meta.size, int)


@given(st.binary(max_size=60))
def test_any_bytes_are_a_page_or_a_tos_integrity_error(document: bytes) -> None:
    try:
        parse_page("bkt", document)
    except TosIntegrityError:
        pass


def entry(number: int, **fields: Any) -> dict[str, Any]:
    stamp = f"2026-01-02T03:{number % 60:02d}:05.{number % 1000:03d}Z"
    owner = {"ID": "o", "DisplayName": "o"}
    return {**ITEM, "Key": f"k/{number:04d}", "Size": number, "LastModified": stamp, "Owner": owner, **fields}


text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=6)
plain = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=6)
changes = st.fixed_dictionaries(
    {},
    optional={
        "Key": text,
        "Size": st.integers(0, 1 << 40),
        "ETag": plain | plain.map('"{}"'.format),
        "HashCrc64ecma": st.integers(0, (1 << 64) - 1).map(str) | st.sampled_from(["", None, 7]),
        "LastModified": st.sampled_from(["2026-01-02T03:04:05Z", "2024-02-29T23:59:59.999Z", "", None]),
        "StorageClass": st.sampled_from(["STANDARD", "IA"]),
        "UserMeta": st.sampled_from([[], [{"Key": "x", "Value": "y"}]]),
    },
)


def document(changed: list[dict[str, Any]], style: int, **fields: Any) -> bytes:
    options: list[dict[str, Any]] = [{"separators": (",", ":")}, {"ensure_ascii": False}, {"indent": 1}]
    items = [entry(number, **change) for number, change in enumerate(changed)]
    return json.dumps({"Name": "b", "Contents": items, **fields}, **options[style]).encode()


@given(st.lists(changes, min_size=1, max_size=4), st.integers(0, 2), st.booleans())
def test_a_page_read_by_its_shape_says_what_json_says(changed: list[dict[str, Any]], style: int, alike: bool) -> None:
    changed = [changed[0]] * len(changed) if alike else changed
    page = document(changed, style, IsTruncated=True, NextContinuationToken="t", CommonPrefixes=[{"Prefix": "p/"}])
    found, items = read_columns(page), json.loads(page)["Contents"]
    assert found.keys == [item["Key"] for item in items]
    assert found.sizes == [item["Size"] for item in items]
    assert found.etags == [item["ETag"].strip('"') for item in items]
    assert found.crcs == [int(item["HashCrc64ecma"] or 0) for item in items]
    assert [moment == moment for moment in found.modified] == [bool(item["LastModified"]) for item in items]
    assert (found.prefixes, found.token) == (["p/"], "t")


def test_the_usual_page_is_read_by_its_shape() -> None:
    for count in (1, 2, 1000):
        assert read_shape(document([{}] * count, 0, IsTruncated=False)) is not None
    assert read_shape(document([{}, {"StorageClass": "IA"}], 0)) is None
    assert read_shape(document([{}, {"Key": "a\\b"}], 0)) is None


@given(st.data())
def test_a_damaged_page_is_read_as_json_reads_it_or_not_at_all(data: st.DataObject) -> None:
    whole = bytearray(document([{}] * 3, 0, IsTruncated=False))
    for _ in range(data.draw(st.integers(1, 2))):
        at = data.draw(st.integers(0, len(whole) - 1))
        stop = at + data.draw(st.integers(0, 3))
        whole[at:stop] = data.draw(
            st.sampled_from([b"", b'"', b"\\", b",", b"{", b"}", b"]", b"[", b"0", b"\n", b"\xff", b'"Key":"z"'])
        )
    try:
        items = json.loads(whole, strict=False).get("Contents") or []
        expected = [(item["Key"], item["Size"], item["ETag"].strip('"')) for item in items]
    except (ValueError, KeyError, TypeError, AttributeError):
        expected = None
    try:
        found = read_columns(whole)
    except (ValueError, KeyError, TypeError, AttributeError):
        return
    assert list(zip(found.keys, found.sizes, found.etags, strict=True)) == expected
