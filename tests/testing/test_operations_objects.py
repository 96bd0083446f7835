"""Objects of the local server: put, get, copies, appends, metadata, and the bytes they are made of."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from operations_service import MIB, Service, service

from tosnative.testing.content import Content, MemorySource, Piece
from tosnative.testing.crc64 import combine, crc64, table_update


@pytest.fixture
def tos() -> Service:
    return service()


def md5(data: bytes) -> str:
    return f'"{hashlib.md5(data).hexdigest()}"'


class TestChecksum:
    def test_known_values(self) -> None:
        assert crc64(b"") == 0
        assert crc64(b"123456789") == 0x995DC9BBDF1939FA
        assert crc64(b"hello world") == 5981764153023615706

    @given(st.binary(), st.binary(), st.booleans())
    def test_any_buffer_any_split(self, first: bytes, second: bytes, writable: bool) -> None:
        whole = bytearray(first + second) if writable else first + second
        expected = table_update(first + second)
        assert crc64(whole) == crc64(memoryview(whole)) == expected
        assert crc64(memoryview(whole)[len(first) :], crc64(memoryview(whole)[: len(first)])) == expected
        assert combine(crc64(first), crc64(second), len(second)) == expected


class TestContent:
    @given(st.lists(st.binary(min_size=1), max_size=5), st.integers(0, 40), st.integers(0, 40))
    def test_a_slice_is_the_slice_of_the_bytes(self, parts: list[bytes], start: int, end: int) -> None:
        content = Content(tuple(Piece(MemorySource(memoryview(part)), 0, len(part)) for part in parts))
        whole = b"".join(parts)
        assert content.tobytes() == whole
        assert content.size == len(whole)
        assert content.slice(start, end).tobytes() == whole[start:end]
        assert content.slice(1, 30).slice(start, end).tobytes() == whole[1:30][start:end]


class TestPutAndGet:
    def test_what_was_put_comes_back(self, tos: Service) -> None:
        put = tos.put("a b/中", b"hello world", content_type="text/x", cache_control="no-store", x_tos_meta_a="%41")
        assert put.headers == {"ETag": md5(b"hello world"), "x-tos-hash-crc64ecma": "5981764153023615706"}
        for method in ("GET", "HEAD"):
            got = tos.call(method, "a b/中")
            assert (got.status, got.body) == (200, b"hello world")
            assert got.headers["content-type"] == "text/x"
            assert got.headers["cache-control"] == "no-store"
            assert got.headers["x-tos-meta-a"] == "%41"
            assert got.headers["x-tos-hash-crc64ecma"] == "5981764153023615706"
            assert got.headers["ETag"] == md5(b"hello world")

    def test_a_get_in_flight_keeps_its_version(self, tos: Service) -> None:
        tos.put("k", b"old")
        view = tos.store.bucket("demo").objects["k"].content.views()[0]
        tos.put("k", b"new")
        tos.call("DELETE", "k")
        assert bytes(view) == b"old"
        assert view.readonly

    def test_a_put_keeps_the_buffer_it_is_given(self, tos: Service) -> None:
        body = bytearray(b"not copied")
        tos.put("k", memoryview(body))
        assert tos.store.bucket("demo").objects["k"].content.views()[0].obj is body

    def test_large_bodies_have_an_etag_without_md5(self, tos: Service) -> None:
        body = bytes(MIB + 1)
        assert tos.put("k", body).headers["ETag"] != md5(body)
        assert tos.put("k", body).headers["ETag"] == tos.put("other", body).headers["ETag"]
        assert service(etag_md5_max_bytes=8 * MIB).put("k", body).headers["ETag"] == md5(body)

    def test_overrides_of_response_headers(self, tos: Service) -> None:
        tos.put("k", b"x", content_type="text/x")
        got = tos.call("GET", "k", "response-content-type=image/png&response-expires=never")
        assert got.headers["content-type"] == "image/png"
        assert got.headers["expires"] == "never"

    def test_missing_things(self, tos: Service) -> None:
        missing = tos.call("GET", "nothing")
        assert (missing.status, missing.code, missing.ec) == (404, "NoSuchKey", "0017-00000003")
        missing = tos.call("GET", "k", bucket="nowhere")
        assert (missing.status, missing.code, missing.ec) == (404, "NoSuchBucket", "0006-00000001")
        assert tos.call("DELETE", "nothing").status == 204

    def test_what_is_not_implemented_says_so(self, tos: Service) -> None:
        assert tos.call("PUT", None, "cors", {}).status == 501
        assert tos.call("GET", "k", "x-tos-process=image/info").status == 501
        assert tos.call("PUT", "k", x_tos_callback="e30=").status == 501
        assert tos.call("POST", "k").status == 405
        assert tos.all_keys() == []


class TestCopies:
    def test_metadata_goes_along_or_is_replaced(self, tos: Service) -> None:
        tag = tos.put("from/a b", b"data", content_type="text/x", x_tos_meta_a="1", x_tos_tagging="k=v").headers["ETag"]
        copied = tos.call("PUT", "to", x_tos_copy_source="demo/from/a%20b", x_tos_object_expires="3")
        assert copied.json["ETag"] == tag
        got = tos.call("GET", "to")
        assert (got.body, got.headers["content-type"], got.headers["x-tos-meta-a"]) == (b"data", "text/x", "1")
        assert got.headers["x-tos-tagging-count"] == "1"
        assert "x-tos-expiration" in got.headers
        tos.call(
            "PUT", "to", x_tos_copy_source="/demo/from%2Fa+b", x_tos_metadata_directive="REPLACE", x_tos_meta_b="2"
        )
        got = tos.call("GET", "to")
        assert got.body == b"data"
        assert "x-tos-meta-a" not in got.headers
        assert got.headers["x-tos-meta-b"] == "2"

    def test_conditions_on_source_and_target(self, tos: Service) -> None:
        tag = tos.put("from", b"data").headers["ETag"]
        tos.put("to", b"old")
        source = {"x_tos_copy_source": "demo/from"}
        assert tos.call("PUT", "to", **source, x_tos_copy_source_if_match='"other"').status == 412
        assert tos.call("PUT", "to", **source, x_tos_copy_source_if_none_match=tag).status == 412
        assert tos.call("PUT", "to", **source, x_tos_forbid_overwrite="true").status == 409
        assert tos.call("PUT", "to", **source, x_tos_if_match="123").status == 412
        assert tos.call("GET", "to").body == b"old"
        assert tos.call("PUT", "to", **source, x_tos_copy_source_if_match=tag).status == 200

    def test_sources_that_are_not_there(self, tos: Service) -> None:
        assert tos.call("PUT", "to", x_tos_copy_source="demo/nothing").code == "NoSuchKey"
        assert tos.call("PUT", "to", x_tos_copy_source="nowhere/k").code == "NoSuchBucket"
        assert tos.call("PUT", "to", x_tos_copy_source="demo").code == "InvalidArgument"


class TestAppend:
    def test_offsets_and_checksums(self, tos: Service) -> None:
        first = tos.call("POST", "log", "append&offset=0", b"hello ")
        assert first.headers["x-tos-next-append-offset"] == "6"
        second = tos.call("POST", "log", "append&offset=6", b"world")
        assert second.headers["x-tos-next-append-offset"] == "11"
        assert second.headers["x-tos-hash-crc64ecma"] == "5981764153023615706"
        got = tos.call("GET", "log")
        assert (got.body, got.headers["x-tos-object-type"]) == (b"hello world", "Appendable")
        wrong = tos.call("POST", "log", "append&offset=6", b"again")
        assert (wrong.status, wrong.code, wrong.ec) == (409, "OffsetNotMatched", "0017-00000208")

    def test_an_object_that_was_put_is_not_appendable(self, tos: Service) -> None:
        tos.put("k", b"x")
        refused = tos.call("POST", "k", "append&offset=1", b"y")
        assert (refused.status, refused.code, refused.ec) == (409, "NotAppendable", "0017-00000209")
        assert tos.call("POST", "nothing", "append&offset=1", b"y").status == 409

    def test_many_small_appends(self, tos: Service) -> None:
        for number in range(300):
            assert tos.call("POST", "log", f"append&offset={number}", bytes([number % 256])).status == 200
        assert tos.call("GET", "log").body == bytes(number % 256 for number in range(300))
        assert len(tos.store.bucket("demo").objects["log"].content.pieces) <= 64


class TestAttributes:
    def test_metadata_is_replaced_and_bytes_stay(self, tos: Service) -> None:
        tag = tos.put("k", b"data", x_tos_meta_a="1").headers["ETag"]
        assert tos.call("POST", "k", "metadata", x_tos_meta_b="2", content_type="text/x").status == 200
        got = tos.call("GET", "k")
        assert (got.body, got.headers["ETag"], got.headers["x-tos-meta-b"]) == (b"data", tag, "2")
        assert "x-tos-meta-a" not in got.headers

    def test_tags(self, tos: Service) -> None:
        tos.put("k")
        tags = {"TagSet": {"Tags": [{"Key": "1", "Value": "2"}]}}
        assert tos.call("PUT", "k", "tagging", tags).status == 200
        assert tos.call("GET", "k", "tagging").json == tags
        assert tos.call("PUT", "k", "tagging", {"TagSet": {}}).code == "MalformedBody"
        assert tos.call("DELETE", "k", "tagging").status == 204
        assert tos.call("GET", "k", "tagging").json == {"TagSet": {"Tags": []}}

    def test_storage_classes(self, tos: Service) -> None:
        tos.put("k", x_tos_storage_class="IA")
        assert tos.call("HEAD", "k").headers["x-tos-storage-class"] == "IA"
        assert tos.call("PUT", "k", x_tos_storage_class="WARM").code == "InvalidArgument"
        assert tos.call("PUT", None, "storageClass", x_tos_storage_class="ARCHIVE").status == 200
        tos.put("later")
        assert tos.call("HEAD", "later").headers["x-tos-storage-class"] == "ARCHIVE"

    def test_versions_are_one_per_object(self, tos: Service) -> None:
        tos.put("k", b"x")
        assert tos.call("GET", "k", "versionId=null").body == b"x"
        assert tos.call("GET", "k", "versionId=7").code == "NoSuchVersion"
        versions = tos.call("GET", None, "versions").json
        assert [entry["Key"] for entry in versions["Versions"]] == ["k"]

    def test_rename(self, tos: Service) -> None:
        tos.put("old", b"x")
        tos.put("taken", b"y")
        assert tos.call("PUT", "old", "rename&name=taken", x_tos_forbid_overwrite="true").status == 409
        assert tos.call("PUT", "old", "rename&name=taken").status == 204
        assert tos.all_keys() == ["taken"]
        assert tos.call("GET", "taken").body == b"x"
        assert tos.call("PUT", "old", "rename&name=new").status == 404

    def test_stat_finds_the_key_or_the_first_below(self) -> None:
        tos = service()
        tos.put("d/b", b"22")
        tos.put("d/a", b"1")
        tos.put("d6x", b"3")
        assert tos.call("GET", "d/a", "stat").json["Key"] == "d/a"
        assert tos.call("GET", "d/", "stat").json["Key"] == "d/a"
        assert tos.call("GET", "d", "stat").json == tos.call("GET", "d/", "stat").json
        assert tos.call("GET", "d6", "stat").status == 404
        tos = service(stat_matches_directory=False)
        tos.put("d/a", b"1")
        assert tos.call("GET", "d", "stat").status == 404
        assert tos.call("GET", "d/", "stat").status == 200


class TestDeleteMany:
    def test_missing_and_double_keys_are_fine(self, tos: Service) -> None:
        for key in ("a", "b", "c"):
            tos.put(key)
        wanted = {"Objects": [{"Key": "a", "VersionId": None}, {"Key": "a"}, {"Key": "nothing"}, {"Key": "b"}]}
        answer = tos.call("POST", None, "delete", wanted).json
        assert [entry["Key"] for entry in answer["Deleted"]] == ["a", "a", "nothing", "b"]
        assert answer["Error"] == []
        assert tos.all_keys() == ["c"]
        assert tos.call("POST", None, "delete", {"Objects": [{"Key": "c"}], "Quiet": True}).json["Deleted"] == []

    @pytest.mark.parametrize(
        "body", [b"", b"[]", b"{", b'{"Objects": 1}', b'{"Objects": [1]}', b'{"Objects": [{"Key": 1}]}']
    )
    def test_malformed_bodies(self, tos: Service, body: bytes) -> None:
        assert tos.call("POST", None, "delete", body).code == "MalformedBody"

    def test_a_thousand_at_most(self, tos: Service) -> None:
        assert tos.call("POST", None, "delete", {"Objects": [{"Key": "k"}] * 1001}).code == "MalformedBody"
