"""What requests to the local server demand: ranges, preconditions, digests of the body."""

from __future__ import annotations

import base64
import hashlib
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operations_service import Service, service


@pytest.fixture
def tos() -> Service:
    return service()


class TestRanges:
    @given(st.binary(max_size=12), st.integers(0, 14), st.one_of(st.none(), st.integers(0, 14)))
    def test_any_range_of_any_object(self, body: bytes, first: int, last: int | None) -> None:
        tos = service()
        tos.put("k", body)
        got = tos.call("GET", "k", range=f"bytes={first}-{'' if last is None else last}")
        if last is not None and last < first:
            assert (got.status, got.body) == (200, body)
        elif first >= len(body):
            assert (got.status, got.code) == (416, "InvalidRange")
            assert got.headers["Content-Range"] == f"bytes */{len(body)}"
        else:
            expected = body[first:] if last is None else body[first : last + 1]
            assert (got.status, got.body) == (206, expected)
            assert got.headers["Content-Range"] == f"bytes {first}-{first + len(expected) - 1}/{len(body)}"

    @pytest.mark.parametrize(
        ("suffix", "expected"), [(1, b"9"), (4, b"6789"), (10, b"0123456789"), (99, b"0123456789")]
    )
    def test_the_end_of_an_object(self, tos: Service, suffix: int, expected: bytes) -> None:
        tos.put("k", b"0123456789")
        got = tos.call("GET", "k", range=f"bytes=-{suffix}")
        assert (got.status, got.body) == (206, expected)

    def test_no_byte_at_the_end_is_no_range(self, tos: Service) -> None:
        tos.put("k", b"0123456789")
        assert tos.call("GET", "k", range="bytes=-0").status == 416

    @pytest.mark.parametrize(
        "text", ["bytes=", "bytes=-", "bytes=a-b", "items=0-1", "bytes=0-1,3-4", "bytes=5", "bytes=²-3"]
    )
    def test_what_is_no_range_is_ignored(self, tos: Service, text: str) -> None:
        tos.put("k", b"0123456789")
        assert tos.call("GET", "k", range=text).status == 200

    def test_the_checksum_of_the_whole_on_ranges_is_a_switch(self) -> None:
        for shown in (True, False):
            tos = service(crc_on_ranges=shown)
            tos.put("k", b"0123456789")
            assert ("x-tos-hash-crc64ecma" in tos.call("GET", "k", range="bytes=0-1").headers) is shown
            assert "x-tos-hash-crc64ecma" in tos.call("GET", "k").headers


class TestConditions:
    def test_etags(self, tos: Service) -> None:
        tag = tos.put("k", b"x").headers["ETag"]
        for name in (tag, tag.strip('"'), "*", f'"other", {tag}'):
            assert tos.call("GET", "k", if_match=name).status == 200
            assert tos.call("GET", "k", if_none_match=name).status == 304
        failed = tos.call("GET", "k", if_match='"other"')
        assert (failed.status, failed.code) == (412, "PreconditionFailed")
        assert tos.call("GET", "k", if_none_match='"other"').status == 200

    def test_dates(self, tos: Service) -> None:
        tos.put("k", b"x")
        modified = tos.store.bucket("demo").objects["k"].modified_ns // 1_000_000_000
        before, same = (formatdate(modified + offset, usegmt=True) for offset in (-60, 0))
        assert tos.call("GET", "k", if_modified_since=before).status == 200
        assert tos.call("GET", "k", if_modified_since=same).status == 304
        assert tos.call("GET", "k", if_unmodified_since=before).status == 412
        assert tos.call("GET", "k", if_unmodified_since=same).status == 200
        assert tos.call("GET", "k", if_modified_since="no date").status == 200

    def test_writes(self, tos: Service) -> None:
        tag = tos.put("k", b"x").headers["ETag"]
        refused = tos.call("PUT", "k", body=b"y", x_tos_forbid_overwrite="True")
        assert (refused.status, refused.code, refused.ec) == (409, "DuplicateObject", "0017-00000004")
        assert tos.call("PUT", "new", body=b"y", x_tos_forbid_overwrite="true").status == 200
        assert tos.call("PUT", "k", body=b"y", x_tos_if_match='"other"').status == 412
        assert tos.call("PUT", "nothing", body=b"y", x_tos_if_match=tag).status == 404
        assert tos.call("GET", "k").body == b"x"
        assert tos.call("PUT", "k", body=b"y", x_tos_if_match=tag).status == 200

    def test_codes_are_switches(self) -> None:
        tos = service(range_error_code="R", forbid_overwrite_code="F")
        tos.put("k", b"x")
        assert tos.call("GET", "k", range="bytes=1-").code == "R"
        assert tos.call("PUT", "k", x_tos_forbid_overwrite="true").code == "F"


class TestDigests:
    def test_content_md5(self, tos: Service) -> None:
        right = base64.b64encode(hashlib.md5(b"x").digest()).decode()
        assert tos.call("PUT", "k", body=b"x", content_md5=right).status == 200
        wrong = tos.call("PUT", "k", body=b"y", content_md5=right)
        assert (wrong.status, wrong.code) == (400, "BadDigest")
        for text in ("test_error", "AAAA", "!"):
            assert tos.call("PUT", "k", body=b"y", content_md5=text).code == "InvalidDigest"
        assert tos.call("GET", "k").body == b"x"

    def test_sha256(self, tos: Service) -> None:
        assert tos.call("PUT", "k", body=b"x", x_tos_content_sha256=hashlib.sha256(b"x").hexdigest()).status == 200
        assert tos.call("PUT", "k", body=b"x", x_tos_content_sha256="UNSIGNED-PAYLOAD").status == 200
        assert tos.call("PUT", "k", body=b"y", x_tos_content_sha256="0" * 64).code == "ContentSHA256Mismatch"

    def test_traffic_limits(self, tos: Service) -> None:
        assert tos.call("PUT", "k", x_tos_traffic_limit="819200").status == 200
        assert tos.call("PUT", "k", x_tos_traffic_limit="819199").code == "InvalidArgument"

    def test_a_customers_key_is_needed_to_read(self, tos: Service) -> None:
        raw = b"k" * 32
        names = ("algorithm", "key", "key_md5")
        values = ("AES256", base64.b64encode(raw).decode(), base64.b64encode(hashlib.md5(raw).digest()).decode())
        prefix = "x_tos_server_side_encryption_customer_"
        key = {prefix + name: value for name, value in zip(names, values, strict=True)}
        tos.put("k", b"x", **key)
        assert tos.call("GET", "k", **key).body == b"x"
        assert tos.call("GET", "k").code == "InvalidArgument"
        assert tos.call("PUT", "k", **{prefix + "algorithm": "AES256"}).code == "InvalidArgument"
        assert tos.call("PUT", "k", **key | {prefix + "algorithm": "DEC"}).code == "InvalidArgument"
