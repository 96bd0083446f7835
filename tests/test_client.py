"""TosClient: made without a thread or a socket, pickled as its recipe, and every call of the control plane."""

import pickle
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from tosnative import crc64
from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig
from tosnative.credentials import CredentialProvider
from tosnative.errors import (
    TosException,
    TosNotFoundError,
)
from tosnative.testing import LocalTos

ODD_KEYS = ["plain", "a b+c%20d", "中文/ключ", "q?x=1&y#z", "~._-", "a//b", "'\"<>", "x" * 700, "tab\tkey", "/lead"]
DOTTED = ["a/../b", "./a", "..", "a/.", "a/./b"]


def connect(tos: LocalTos, **settings: Any) -> TosClient:
    of_connection = {n: settings.pop(n) for n in list(settings) if n in ConnectionOptions.__dataclass_fields__}
    config = TosClientConfig(connection=ConnectionOptions(**of_connection), **settings)
    return TosClient(endpoint=tos.endpoint, region=tos.region, cred=tos.cred, config=config)


@pytest.fixture
def client(local_tos: LocalTos) -> Iterator[TosClient]:
    with connect(local_tos) as made:
        yield made


def test_making_one_opens_nothing_and_starts_nothing() -> None:
    code = """
import os, threading
before = len(os.listdir("/proc/self/fd"))
from tosnative.client import TosClient
from tosnative.credentials import CredentialProvider
client = TosClient(endpoint="http://127.0.0.1:1", region="r", cred=CredentialProvider("ak", "sk"))
client.download("test", "k")
assert threading.active_count() == 1, threading.enumerate()
assert len(os.listdir("/proc/self/fd")) == before
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_no_credentials_is_one_clear_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOS_ACCESS_KEY", raising=False)
    monkeypatch.delenv("TOS_SECRET_KEY", raising=False)
    with pytest.raises(ValueError, match="no credentials: pass cred=CredentialProvider"):
        TosClient(endpoint="http://127.0.0.1:1", region="r")


def test_a_copy_by_pickle_does_the_same(local_tos: LocalTos, client: TosClient) -> None:
    local_tos.put("test", "k", b"body")
    client.get("test", "k").wait()
    copy = pickle.loads(pickle.dumps(client))
    assert copy.get("test", "k").wait().getvalue() == b"body"
    assert copy.head("test", "k").size == 4
    assert (copy.endpoint, copy.config) == (client.endpoint, client.config)
    assert "TosClient(http://127.0.0.1" in repr(copy)


def test_clients_of_one_limit_share_a_budget() -> None:
    cred = CredentialProvider("ak", "sk")
    one, other = (TosClient(endpoint="http://127.0.0.1:1", region="r", cred=cred) for _ in range(2))
    assert one.budget is other.budget
    assert one.budget.limit == one.config.memory_budget_bytes
    assert one.advised_depth() == 32


@pytest.mark.parametrize("key", ODD_KEYS)
def test_keys_of_every_kind_on_both_planes(local_tos: LocalTos, client: TosClient, key: str) -> None:
    body = key.encode() * 3
    client.put("test", key, body).wait()
    assert local_tos.get("test", key) == body
    assert client.get("test", key).wait().getvalue() == body
    if key.startswith("/"):
        return  # the SDK refuses it: tested below
    assert client.head("test", key).size == len(body)
    assert [meta.key for meta in client.list_page("test", key).objects] == [key]
    upload_id = client.create_upload("test", key)
    part = client.upload_part("test", key, upload_id, 1, memoryview(body)).wait()
    assert [(u.key, u.upload_id) for u in client.list_uploads("test")] == [(key, upload_id)]
    client.complete_upload("test", key, upload_id, [(1, part.etag)], crc64=crc64.update(body))
    client.copy("test", key, "test", "copied")
    assert local_tos.get("test", "copied") == body
    client.delete("test", key)
    client.delete_many("test", ["copied", key])
    assert local_tos.keys("test") == []


@pytest.mark.parametrize("key", DOTTED)
def test_dotted_keys_reach_exactly_themselves_or_are_refused(local_tos: LocalTos, client: TosClient, key: str) -> None:
    client.put("test", key, b"dotted").wait()
    assert local_tos.keys("test") == [key]
    assert client.get("test", key).wait().getvalue() == b"dotted"
    assert client.get("test", key, 1, 3).wait().getvalue() == b"ot"
    before = len(local_tos.requests)
    for ask in (
        lambda: client.head("test", key),
        lambda: client.delete("test", key),
        lambda: client.create_upload("test", key),
        lambda: client.copy("test", "a", "test", key),
    ):
        with pytest.raises(ValueError, match="segments are not supported"):
            ask()
    assert len(local_tos.requests) == before
    client.delete_many("test", [key])  # keys in a body are safe
    assert local_tos.keys("test") == []


def test_bad_arguments_are_value_errors_before_any_request(local_tos: LocalTos, client: TosClient) -> None:
    for ask in (
        lambda: client.get("test", ""),
        lambda: client.put("test", "", b""),
        lambda: client.head("test", ""),
        lambda: client.delete("test", ""),
        lambda: client.get("No_Bucket", "k"),
        lambda: client.get("test", "a\ud800"),
        lambda: client.put("test", "k", b"", content_type="a\nb"),
        lambda: client.create_upload("test", "k", content_type="a\nb"),
    ):
        with pytest.raises(ValueError, match=r"\w"):
            ask()
    assert local_tos.requests == []


def test_head_tells_what_is_known(local_tos: LocalTos, client: TosClient) -> None:
    local_tos.put("test", "k", b"body")
    meta = client.head("test", "k")
    assert (meta.bucket, meta.key, meta.size, meta.crc64) == ("test", "k", 4, crc64.update(b"body"))
    assert meta.etag
    assert '"' not in meta.etag
    assert meta.last_modified is not None


def test_what_is_missing_is_told_apart(client: TosClient) -> None:
    for ask in (lambda: client.head("test", "no"), lambda: client.get("test", "no").wait()):
        with pytest.raises(TosNotFoundError, match="keys are case-sensitive") as caught:
            ask()
        assert caught.value.error.request_id
    for ask in (
        lambda: client.head("nobucket", "k"),
        lambda: client.head_bucket("nobucket"),
        lambda: client.get("nobucket", "k").wait(),
        lambda: client.list_page("nobucket"),
        lambda: client.create_upload("nobucket", "k"),
    ):
        with pytest.raises(TosNotFoundError, match="check the bucket's name") as caught:
            ask()
        assert "\n" not in str(caught.value)
    client.head_bucket("test")


def test_buckets(local_tos: LocalTos, client: TosClient) -> None:
    client.create_bucket("another")
    client.head_bucket("another")
    with pytest.raises(TosException, match="409"):
        client.create_bucket("another")


def test_listing_pages_and_prefixes(local_tos: LocalTos, client: TosClient) -> None:
    keys = [*(f"{a}/{b}" for a in "abc" for b in "123"), "d"]
    for key in keys:
        local_tos.put("test", key, b"x")
    found, token = [], None
    while True:
        page = client.list_page("test", max_keys=4, token=token)
        found += [meta.key for meta in page.objects]
        token = page.token
        if token is None:
            break
    assert found == keys
    page = client.list_page("test", delimiter="/")
    assert (page.prefixes, [meta.key for meta in page.objects]) == (["a/", "b/", "c/"], ["d"])
    assert [meta.key for meta in client.list_page("test", "b/", start_after="b/1").objects] == ["b/2", "b/3"]


def test_open_uploads_over_many_pages(local_tos: LocalTos, client: TosClient) -> None:
    made = sorted((f"k{n:04}", client.create_upload("test", f"k{n:04}")) for n in range(30))
    assert [(upload.key, upload.upload_id) for upload in client.list_uploads("test")] == made
    assert len(list(client.list_uploads("test", "k000"))) == 10
    assert all(upload.initiated for upload in client.list_uploads("test"))
    for key, upload_id in made:
        client.abort_upload("test", key, upload_id)
        client.abort_upload("test", key, upload_id)
    assert local_tos.uploads("test") == []


def test_deleting_many_names_the_first_that_failed(local_tos: LocalTos, client: TosClient) -> None:
    keys = [f"k{n}" for n in range(1500)]
    for key in keys:
        local_tos.put("test", key, b"")
    client.delete_many("test", [*keys, "was-never-there"])
    assert local_tos.keys("test") == []
    assert len([r for r in local_tos.requests if r.method == "POST"]) == 2
    client.delete_many("test", [])


def test_deleting_many_does_not_take_an_error_inside_a_200_for_success(local_tos: LocalTos, client: TosClient) -> None:
    local_tos.put("test", "k", b"")
    once = local_tos.faults.add(method="POST", times=1, error_in_200="InternalError")
    client.delete_many("test", ["k", "k", "was-never-there"])
    assert once.hits == 1
    assert local_tos.keys("test") == []
    local_tos.put("test", "k", b"")
    local_tos.faults.add(method="POST", error_in_200="InternalError")
    with pytest.raises(TosException, match="200 to the deletion of 1 objects, and told of 0") as caught:
        client.delete_many("test", ["k"])
    assert (caught.value.error.bucket, bool(caught.value.error.request_id)) == ("test", True)
    assert local_tos.keys("test") == ["k"]
