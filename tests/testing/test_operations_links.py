"""Symlinks, access by everybody, life times and times of modification on the local server."""

from __future__ import annotations

import pytest
from operations_service import Service, service

from tosnative.testing.attributes import allows_anonymous
from tosnative.testing.messages import Request


@pytest.fixture
def tos() -> Service:
    return service()


class TestSymlinks:
    def test_reads_go_to_the_target(self, tos: Service) -> None:
        target = tos.put("target/中", b"data")
        made = tos.call("PUT", "link", "symlink", x_tos_symlink_target="target/%E4%B8%AD")
        assert made.headers["ETag"] != target.headers["ETag"]
        got = tos.call("GET", "link")
        assert (got.body, got.headers["x-tos-object-type"]) == (b"data", "Symlink")
        assert got.headers["x-tos-symlink-target-size"] == "4"
        assert tos.call("GET", "link", "symlink").headers["x-tos-symlink-target"] == "target/%E4%B8%AD"
        assert tos.call("GET", None, "prefix=link").json["Contents"][0]["Type"] == "Symlink"

    def test_a_copy_is_a_link_too(self, tos: Service) -> None:
        tos.put("target", b"data")
        tag = tos.call("PUT", "link", "symlink", x_tos_symlink_target="target").headers["ETag"]
        assert tos.call("PUT", "copy", x_tos_copy_source="demo/link").json["ETag"] == tag
        assert tos.call("GET", "copy", "symlink").headers["x-tos-symlink-target"] == "target"

    def test_links_that_lead_nowhere(self, tos: Service) -> None:
        tos.call("PUT", "link", "symlink", x_tos_symlink_target="nothing")
        broken = tos.call("GET", "link")
        assert (broken.status, broken.ec) == (400, "0015-00000008")
        tos.put("plain")
        assert tos.call("GET", "plain", "symlink").code == "InvalidArgument"
        assert tos.call("PUT", "k", "symlink").code == "InvalidArgument"


class TestAnonymousAccess:
    def allowed(self, tos: Service, method: str, key: str | None, bucket: str = "demo") -> bool:
        return allows_anonymous(tos.store, Request(method, bucket, key, {}, {}))

    def test_private_unless_told(self, tos: Service) -> None:
        tos.put("private")
        tos.put("open", x_tos_acl="public-read")
        assert not self.allowed(tos, "GET", "private")
        assert self.allowed(tos, "GET", "open")
        assert not self.allowed(tos, "PUT", "open")
        assert not self.allowed(tos, "GET", None)
        assert not self.allowed(tos, "GET", "k", "nowhere")

    def test_the_bucket_decides_where_the_object_does_not(self, tos: Service) -> None:
        tos.call("PUT", bucket="open", x_tos_acl="public-read-write")
        tos.call("PUT", "closed", bucket="open", x_tos_acl="private")
        assert self.allowed(tos, "PUT", "new", "open")
        assert self.allowed(tos, "GET", None, "open")
        assert not self.allowed(tos, "GET", "closed", "open")

    def test_grants_are_kept(self, tos: Service) -> None:
        tos.put("k", x_tos_acl="public-read")
        assert len(tos.call("GET", "k", "acl").json["Grants"]) == 2
        stated = {"Owner": {"ID": "1"}, "Grants": []}
        assert tos.call("PUT", "k", "acl", stated).status == 200
        assert tos.call("GET", "k", "acl").json == stated
        assert tos.call("PUT", "k", "acl", {"Grants": []}).code == "MalformedBody"


def test_life_times(tos: Service) -> None:
    tos.put("k", x_tos_object_expires="3")
    assert "expiry-date" in tos.call("HEAD", "k").headers["x-tos-expiration"]
    assert tos.call("POST", "k", "objectExpires", {"ObjectExpires": 0}).status == 200
    assert "x-tos-expiration" not in tos.call("HEAD", "k").headers
    assert tos.call("POST", "k", "objectExpires", {"ObjectExpires": -1}).code == "MalformedBody"
    assert tos.call("PUT", "k", x_tos_object_expires="soon").code == "InvalidArgument"


def test_times_of_modification(tos: Service) -> None:
    tos.put("k")
    assert tos.call("POST", "k", "time", x_modify_timestamp="1000", x_modify_timestamp_ns="5").status == 200
    headers = tos.call("HEAD", "k").headers
    assert headers["Last-Modified"] == "Thu, 01 Jan 1970 00:16:40 GMT"
    assert headers["x-tos-last-modified-ns"] == "5"
    assert tos.call("POST", "k", "time", x_modify_timestamp="now").code == "InvalidArgument"
