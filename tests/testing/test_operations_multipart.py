"""Multipart uploads of the local server."""

from __future__ import annotations

from typing import Any

import pytest
from operations_service import MIB, Service, service

from tosnative.testing.crc64 import crc64


@pytest.fixture
def tos() -> Service:
    return service(min_part_size_bytes=4)


def complete(tos: Service, key: str, upload_id: str, parts: list[dict[str, Any]], **headers: str) -> Any:
    return tos.call("POST", key, f"uploadId={upload_id}", {"Parts": parts}, **headers)


def test_the_parts_become_the_object(tos: Service) -> None:
    upload_id, parts = tos.upload("k", b"first", b"second", b"3", content_type="text/x", x_tos_storage_class="IA")
    assert tos.call("GET", "k").status == 404
    done = complete(tos, "k", upload_id, parts)
    assert done.status == 200
    assert done.json["ETag"].endswith('-3"')
    assert [part["PartNumber"] for part in done.json["CompletedParts"]] == [1, 2, 3]
    assert done.headers["x-tos-hash-crc64ecma"] == str(crc64(b"firstsecond3"))
    got = tos.call("GET", "k")
    assert got.body == b"firstsecond3"
    assert got.headers["x-tos-hash-crc64ecma"] == str(crc64(b"firstsecond3"))
    assert (got.headers["content-type"], got.headers["x-tos-storage-class"]) == ("text/x", "IA")
    assert complete(tos, "k", upload_id, parts).code == "NoSuchUpload"


@pytest.mark.parametrize("span", [(0, 4), (3, 7), (5, 5), (4, 11), (0, 11), (11, 11)])
def test_ranges_across_parts(tos: Service, span: tuple[int, int]) -> None:
    upload_id, parts = tos.upload("k", b"first", b"second", b"3")
    complete(tos, "k", upload_id, parts)
    got = tos.call("GET", "k", range=f"bytes={span[0]}-{span[1]}")
    assert (got.status, got.body) == (206, b"firstsecond3"[span[0] : span[1] + 1])


def test_parts_may_come_in_any_order_and_without_quotes(tos: Service) -> None:
    upload_id, parts = tos.upload("k", b"first", b"second")
    shuffled = [{**part, "ETag": part["ETag"].strip('"')} for part in reversed(parts)]
    assert complete(tos, "k", upload_id, shuffled).status == 200
    assert tos.call("GET", "k").body == b"firstsecond"


def test_the_order_of_parts_is_a_switch() -> None:
    tos = service(min_part_size_bytes=1, unsorted_parts=False, multipart_etag_dashed=False)
    upload_id, parts = tos.upload("k", b"first", b"second")
    assert complete(tos, "k", upload_id, parts[::-1]).code == "InvalidPartOrder"
    assert "-" not in complete(tos, "k", upload_id, parts).json["ETag"]


def test_a_part_uploaded_again_takes_the_place_of_the_first(tos: Service) -> None:
    upload_id, _ = tos.upload("k", b"wrong")
    again = tos.call("PUT", "k", f"partNumber=1&uploadId={upload_id}", b"right")
    complete(tos, "k", upload_id, [{"PartNumber": 1, "ETag": again.headers["ETag"]}])
    assert tos.call("GET", "k").body == b"right"


def test_only_the_listed_parts_count(tos: Service) -> None:
    upload_id, parts = tos.upload("k", b"first", b"second", b"third")
    assert complete(tos, "k", upload_id, [parts[0], parts[2]]).status == 200
    assert tos.call("GET", "k").body == b"firstthird"


def test_complete_all(tos: Service) -> None:
    upload_id, _ = tos.upload("k", b"first", b"second")
    done = tos.call("POST", "k", f"uploadId={upload_id}", x_tos_complete_all="yes")
    assert len(done.json["CompletedParts"]) == 2
    assert tos.call("GET", "k").body == b"firstsecond"


class TestRefusals:
    def test_small_parts(self, tos: Service) -> None:
        upload_id, parts = tos.upload("k", b"123", b"4")
        refused = complete(tos, "k", upload_id, parts)
        assert (refused.status, refused.code) == (400, "EntityTooSmall")
        assert tos.call("GET", "k").status == 404
        assert complete(tos, "k", upload_id, parts[:1]).status == 200

    def test_the_documented_minimum(self) -> None:
        tos = service()
        upload_id, parts = tos.upload("k", bytes(4 * MIB - 1), b"x")
        assert complete(tos, "k", upload_id, parts).code == "EntityTooSmall"
        upload_id, parts = tos.upload("k", bytes(4 * MIB), b"x")
        assert complete(tos, "k", upload_id, parts).status == 200

    @pytest.mark.parametrize("number", ["0", "10001", "x", "", "-1"])
    def test_part_numbers(self, tos: Service, number: str) -> None:
        upload_id, _ = tos.upload("k")
        assert tos.call("PUT", "k", f"partNumber={number}&uploadId={upload_id}", b"x").code == "InvalidArgument"

    def test_parts_that_are_not_there(self, tos: Service) -> None:
        upload_id, parts = tos.upload("k", b"first")
        assert complete(tos, "k", upload_id, [{"PartNumber": 2, "ETag": parts[0]["ETag"]}]).code == "InvalidPart"
        assert complete(tos, "k", upload_id, [{"PartNumber": 1, "ETag": "other"}]).code == "InvalidPart"
        assert complete(tos, "k", upload_id, []).code == "InvalidPart"
        assert tos.call("POST", "k", f"uploadId={upload_id}", {"Parts": [{}]}).code == "MalformedBody"

    def test_uploads_that_are_not_there(self, tos: Service) -> None:
        upload_id, parts = tos.upload("k", b"first")
        assert complete(tos, "other", upload_id, parts).code == "NoSuchUpload"
        assert tos.call("PUT", "k", "partNumber=1&uploadId=none", b"x").code == "NoSuchUpload"
        assert tos.call("DELETE", "k", f"uploadId={upload_id}").status == 204
        assert complete(tos, "k", upload_id, parts).code == "NoSuchUpload"
        assert tos.call("GET", "k", f"uploadId={upload_id}").code == "NoSuchUpload"

    def test_overwriting(self, tos: Service) -> None:
        upload_id, parts = tos.upload("k", b"first")
        tos.put("k", b"there")
        assert tos.call("POST", "k", "uploads", x_tos_forbid_overwrite="true").status == 409
        assert complete(tos, "k", upload_id, parts, x_tos_forbid_overwrite="true").status == 409
        assert tos.call("GET", "k").body == b"there"

    def test_a_bucket_with_an_upload_stays(self, tos: Service) -> None:
        upload_id, _ = tos.upload("k")
        assert tos.call("DELETE").code == "BucketNotEmpty"
        tos.call("DELETE", "k", f"uploadId={upload_id}")
        assert tos.call("DELETE").status == 204


def test_parts_are_copied_from_objects(tos: Service) -> None:
    tos.put("source", b"0123456789")
    upload_id, _ = tos.upload("k")
    listed = []
    for number, span in ((1, "bytes=0-4"), (2, None)):
        headers = {"x_tos_copy_source": "demo/source"} | ({"x_tos_copy_source_range": span} if span else {})
        answer = tos.call("PUT", "k", f"partNumber={number}&uploadId={upload_id}", **headers)
        listed.append({"PartNumber": number, "ETag": answer.json["ETag"]})
    done = complete(tos, "k", upload_id, listed)
    assert tos.call("GET", "k").body == b"012340123456789"
    assert done.headers["x-tos-hash-crc64ecma"] == str(crc64(b"012340123456789"))


@pytest.mark.parametrize(("span", "code"), [("bytes=10-12", "InvalidRange"), ("0-3", "InvalidArgument")])
def test_ranges_of_copied_parts(tos: Service, span: str, code: str) -> None:
    tos.put("source", b"0123456789")
    upload_id, _ = tos.upload("k")
    query = f"partNumber=1&uploadId={upload_id}"
    refused = tos.call("PUT", "k", query, x_tos_copy_source="demo/source", x_tos_copy_source_range=span)
    assert refused.code == code


def test_parts_are_listed_in_pages(tos: Service) -> None:
    upload_id, parts = tos.upload("k", b"first", b"second", b"third")
    first = tos.call("GET", "k", f"uploadId={upload_id}&max-parts=2").json
    assert (first["IsTruncated"], first["NextPartNumberMarker"], first["MaxParts"]) == (True, 2, 2)
    assert [(part["PartNumber"], part["Size"]) for part in first["Parts"]] == [(1, 5), (2, 6)]
    second = tos.call("GET", "k", f"uploadId={upload_id}&part-number-marker=2").json
    assert second["IsTruncated"] is False
    assert [part["ETag"] for part in second["Parts"]] == [parts[2]["ETag"]]
