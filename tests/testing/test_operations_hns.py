"""Buckets of the local server, and those with directories."""

from __future__ import annotations

import pytest
from operations_service import Service, service


@pytest.fixture
def tos() -> Service:
    tos = service(hierarchical=True)
    tos.put("a/b/file", b"data")
    return tos


class TestDirectories:
    def test_they_come_with_their_files_and_stay(self, tos: Service) -> None:
        assert tos.all_keys() == ["a/", "a/b/", "a/b/file"]
        tos.call("DELETE", "a/b/file")
        assert tos.all_keys() == ["a/", "a/b/"]
        for key in ("a", "a/", "a/b"):
            got = tos.call("GET", key)
            assert (got.status, got.body, got.headers["x-tos-directory"]) == (200, b"", "true")

    def test_making_one(self, tos: Service) -> None:
        assert tos.call("PUT", "d/e/").status == 200
        assert tos.call("PUT", "d/e/").status == 200
        assert tos.call("PUT", "d/e/", body=b"x").code == "ContentLengthMustBeZero"
        assert tos.call("PUT", "a/b/file/").code == "DuplicateObject"
        assert {"d/", "d/e/"} <= set(tos.all_keys())

    def test_files_and_directories_exclude_each_other(self, tos: Service) -> None:
        under_a_file = tos.call("PUT", "a/b/file/c", body=b"x")
        assert (under_a_file.status, under_a_file.ec) == (409, "0026-00000020")
        assert tos.call("PUT", "a/b", body=b"x").status == 409
        assert tos.call("PUT", "a/b", x_tos_copy_source="demo/a/b/file").status == 409
        assert tos.call("PUT", "to", x_tos_copy_source="demo/a/b").ec == "0026-00000021"

    def test_deleting(self, tos: Service) -> None:
        refused = tos.call("DELETE", "a")
        assert (refused.status, refused.code, refused.ec) == (409, "CannotDelete", "0026-00000013")
        answer = tos.call("POST", None, "delete", {"Objects": [{"Key": "a/"}]}).json
        assert [error["Code"] for error in answer["Error"]] == ["CannotDelete"]
        assert tos.call("DELETE", "a", "recursive=true").status == 204
        assert tos.all_keys() == []
        assert tos.call("DELETE", "a").status == 204

    def test_listing(self, tos: Service) -> None:
        tos.call("PUT", "a/empty/")
        top = tos.call("GET", None, "list-type=2&delimiter=/").json
        assert [entry["Prefix"] for entry in top["CommonPrefixes"]] == ["a/"]
        assert top["CommonPrefixes"][0]["LastModified"].endswith("Z")
        inside = tos.call("GET", None, "list-type=2&delimiter=/&prefix=a/").json
        assert [entry["Prefix"] for entry in inside["CommonPrefixes"]] == ["a/b/", "a/empty/"]
        assert inside["Contents"] == []
        assert tos.call("GET", None, "delimiter=x").code == "InvalidDelimiter"
        flat = tos.call("GET", None, "list-type=2&prefix=a/b/f").json
        assert [entry["Key"] for entry in flat["Contents"]] == ["a/b/file"]

    def test_flat_lists_are_a_switch(self) -> None:
        tos = service(hierarchical=True, flat_list_on_hns=False)
        assert tos.call("GET", None, "list-type=2").code == "InvalidArgument"
        assert tos.call("GET", None, "list-type=2&delimiter=/").status == 200

    def test_modify_appends(self, tos: Service) -> None:
        answer = tos.call("POST", "a/b/file", "modify&offset=4", b" more")
        assert answer.headers["x-tos-next-modify-offset"] == "9"
        assert tos.call("GET", "a/b/file").body == b"data more"
        assert tos.call("POST", "a/b/file", "modify&offset=4", b"x").code == "OffsetNotMatched"
        assert tos.call("POST", "nothing", "modify&offset=0", b"x").code == "NoSuchKey"
        assert tos.call("POST", "a/b/file", "append&offset=9", b"x").status == 405

    def test_versions_are_refused(self, tos: Service) -> None:
        assert tos.call("GET", "a/b/file", "versionId=1").status == 400


class TestRename:
    def test_a_file_replaces_a_file(self, tos: Service) -> None:
        tos.put("a/other", b"old")
        assert tos.call("PUT", "a/b/file", "rename&name=a/other", x_tos_forbid_overwrite="true").status == 409
        assert tos.call("PUT", "a/b/file", "rename&name=a/other").status == 204
        assert tos.call("GET", "a/other").body == b"data"
        assert tos.all_keys() == ["a/", "a/b/", "a/other"]

    def test_a_directory_goes_with_all_below(self, tos: Service) -> None:
        missing = tos.call("PUT", "a/b", "rename&name=new/place")
        assert (missing.status, missing.code) == (404, "NoSuchKey")
        assert tos.call("PUT", "a/b", "rename&name=new/place", x_tos_recursive_mkdir="true").status == 204
        assert tos.all_keys() == ["a/", "new/", "new/place/", "new/place/file"]
        assert tos.call("GET", "new/place/file").body == b"data"

    @pytest.mark.parametrize(
        ("old", "new", "ec"),
        [
            ("a/", "d/", "0026-00000025"),
            ("a/", "a/b/c/", "0026-00000026"),
            ("a/b/file", "d", "0026-00000027"),
            ("a/", "file", "0026-00000027"),
        ],
    )
    def test_what_cannot_be(self, tos: Service, old: str, new: str, ec: str) -> None:
        tos.call("PUT", "d/")
        tos.put("file")
        before = tos.all_keys()
        refused = tos.call("PUT", old, f"rename&name={new}")
        assert (refused.status, refused.ec) == (409, ec)
        assert tos.all_keys() == before


class TestBuckets:
    def test_facts(self) -> None:
        tos = service()
        made = tos.call("PUT", bucket="other", x_tos_storage_class="IA", x_tos_project_name="p")
        assert made.headers["Location"]
        head = tos.call("HEAD", bucket="other").headers
        assert head["x-tos-bucket-region"] == "cn-test"
        assert (head["x-tos-storage-class"], head["x-tos-bucket-type"]) == ("IA", "fns")
        assert tos.call("GET", None, "location").json["Region"] == "cn-test"
        assert tos.call("GET", None, "bucketInfo").json["Bucket"]["Name"] == "demo"

    def test_the_list(self) -> None:
        tos = service()
        tos.call("PUT", bucket="deep", x_tos_bucket_type="hns")
        tos.call("PUT", bucket="other", x_tos_project_name="p")
        service_wide = Service(tos.options, tos.store, bucket="")

        def names(**headers: str) -> list[str]:
            return [entry["Name"] for entry in service_wide.call("GET", **headers).json["Buckets"]]

        assert names() == ["deep", "demo", "other"]
        assert names(x_tos_bucket_type="hns") == ["deep"]
        assert names(x_tos_project_name="p") == ["other"]
        assert service_wide.call("PUT").status == 405

    def test_refusals(self) -> None:
        tos = service()
        assert tos.call("PUT").code == "BucketAlreadyOwnedByYou"
        for name in ("ab", "-abc", "abc-", "a_b", "Abc", "a" * 64):
            assert tos.call("PUT", bucket=name).code == "InvalidBucketName"
        assert tos.call("PUT", bucket="deep", x_tos_bucket_type="hns", x_tos_az_redundancy="multi-az").status == 400
        tos.put("k")
        refused = tos.call("DELETE")
        assert (refused.status, refused.code) == (409, "BucketNotEmpty")
        assert tos.call("DELETE", bucket="nowhere").code == "NoSuchBucket"

    def test_rename_and_tags_are_kept(self) -> None:
        tos = service()
        assert tos.call("GET", None, "rename").json == {"RenameEnable": False}
        tos.call("PUT", None, "rename", {"RenameEnable": True})
        assert tos.call("GET", None, "rename").json == {"RenameEnable": True}
        assert tos.call("DELETE", None, "rename").status == 204
        assert tos.call("GET", None, "tagging").code == "NoSuchTagSet"
        tags = {"TagSet": {"Tags": [{"Key": "a", "Value": "b"}]}}
        tos.call("PUT", None, "tagging", tags)
        assert tos.call("GET", None, "tagging").json == tags
