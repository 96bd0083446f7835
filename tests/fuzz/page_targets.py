"""Pages of listings: as JSON reads them, checked, or a TosIntegrityError; by their shape just as by the parser."""

from __future__ import annotations

import json
import re
from typing import Any

from tests.fuzz.target import Target
from tosnative.columns import PageColumns, read_columns
from tosnative.errors import TosIntegrityError
from tosnative.listing import _glimpse_token
from tosnative.page_shape import read_shape
from tosnative.pages import page_of, parse_columns

__all__ = ["TARGETS"]

_SPOILT = re.compile(r"[\x00-\x1f\x7f]")


def _as_json(document: bytes) -> list[tuple[Any, ...]] | None:
    """(key, size, ETag) of every object as a JSON parser reads them; None where it reads no such page."""
    try:
        items = json.loads(document, strict=False).get("Contents") or []
        return [(item["Key"], item["Size"], item["ETag"].strip('"')) for item in items]
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _check(page: PageColumns) -> None:
    columns = (page.keys, page.sizes, page.etags, page.crcs, page.modified)
    assert len({len(column) for column in columns}) == 1
    for key in (*page.keys, *page.prefixes, *([] if page.token is None else [page.token])):
        assert key
        key.encode()
    assert all(type(size) is int and 0 <= size < 1 << 63 for size in page.sizes)
    assert all(0 <= crc < 1 << 64 for crc in page.crcs)
    # They come to stand in a header, If-Match.
    assert not any(_SPOILT.search(etag) for etag in page.etags)
    assert all(moment != moment or abs(moment) < 1e12 for moment in page.modified)


def page(data: bytes) -> None:
    """A page as JSON says it, every value checked, or a TosIntegrityError of one line."""
    try:
        found = parse_columns("bkt", data, "pre")
    except TosIntegrityError as error:
        text = str(error)
        assert text.isprintable()
        assert len(text) < 1000
        return
    _check(found)
    assert list(zip(found.keys, found.sizes, found.etags, strict=True)) == _as_json(data)
    objects = page_of("bkt", found).objects
    assert [meta.key for meta in objects] == found.keys
    kept = found.without_markers()
    assert len(kept.keys) <= len(found.keys)
    _check(kept)


_DOCUMENT = json.dumps(
    {
        "Name": "b",
        "IsTruncated": True,
        "NextContinuationToken": "next",
        "CommonPrefixes": [{"Prefix": "p/"}],
        "Contents": [
            {
                "Key": f"k/{number}",
                "LastModified": f"2026-01-02T03:04:0{number}.000Z",
                "ETag": f'"e{number}"',
                "Size": number,
                "HashCrc64ecma": str(number),
                "StorageClass": "STANDARD",
            }
            for number in range(3)
        ],
    },
    separators=(",", ":"),
).encode()


def shape(data: bytes) -> None:
    """The usual page with bytes of it changed: read by its shape it says what the parser says, or it is left to that.

    The input is pairs of a place (two bytes) and a byte to stand there, up to a zero; what follows is put in at the last place.
    """
    document = bytearray(_DOCUMENT)
    changes, _, more = data.partition(b"\xff\xff\xff")
    at = 0
    for start in range(0, len(changes) - 2, 3):
        at = int.from_bytes(changes[start : start + 2], "big") % len(document)
        document[at] = changes[start + 2]
    document[at:at] = more
    found = read_shape(document)
    glimpsed = _glimpse_token(document)
    assert glimpsed is None or isinstance(glimpsed, str)
    if found is None:
        return
    read, fields = found
    try:
        whole = json.loads(document, strict=False)
    except ValueError as error:
        raise AssertionError("read by its shape, though it is no JSON") from error
    assert {**read, "Contents": 0} == {**whole, "Contents": 0}
    for name, values in fields.items():
        assert [item.get(name) for item in whole["Contents"]] == values or name == "ETag"
    assert len({len(values) for values in fields.values()}) == 1
    page(bytes(document))
    try:
        read_columns(document)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        pass


TARGETS = {
    "page": Target(
        page,
        (
            _DOCUMENT,
            b'{"Contents": null, "IsTruncated": false}',
            b'{"Code": "InternalError", "Message": "a\\nb\\ud800"}',
            b'{"Contents":[{"Key":"a","Size":1,"ETag":"\\r\\nx: y"}]}',
            b'{"Contents":[{"Key":"a","Size":1,"ETag":"e","LastModified":"nan","HashCrc64ecma":" 1_0 "}]}',
            b"[" * 3000,
        ),
        (
            b'"Contents":[',
            b'"Key":"',
            b'"Size":',
            b'"ETag":"',
            b'"LastModified":"',
            b'"HashCrc64ecma":"',
            b"},{",
            b"\\u000d",
        ),
    ),
    "shape": Target(
        shape,
        (
            b"\0\x10\x41",
            b'\0\x80"\0\x81\\',
            b'\xff\xff\xff,"Key":"z"',
            b"\0\x90,\xff\xff\xff{}",
            b'\0\xa0\n\xff\xff\xff"',
        ),
        (b"\xff\xff\xff", b'"Key":"z"', b'"Contents":[{}]', b"\\", b'"', b",", b"{", b"}"),
    ),
}
