"""LocalTos as users hold it: its contents, its requests, its life."""

import doctest
import json
import os
import socket
import threading
import urllib.request

import pytest
from server_wire import Wire

import tosnative.testing.local
from tosnative.testing import LocalTos
from tosnative.testing.errors import ServiceError


@pytest.fixture(params=[False, True], ids=["thread", "process"])
def tos(request):
    with LocalTos(bucket="bkt", hns_buckets=["tree"], check_signatures=False, process=request.param) as server:
        yield server


def fetch(tos, key):
    with urllib.request.urlopen(f"{tos.endpoint}/bkt/{key}", timeout=20) as answer:
        return answer.read()


def test_contents_are_at_hand(tos):
    tos.put("bkt", "b", memoryview(b"2"))
    tos.put("bkt", "a/中", b"1")
    assert tos.keys("bkt") == ["a/中", "b"]
    assert tos.keys("bkt", "a/") == ["a/中"]
    assert tos.get("bkt", "a/中") == b"1"
    tos.delete("bkt", "b")
    tos.delete("bkt", "b")
    assert tos.keys("bkt") == ["a/中"]
    tos.create_bucket("more", bucket_type="hns")
    tos.create_bucket("more", bucket_type="hns")
    assert tos.keys("more") == []
    with pytest.raises(ServiceError, match="NoSuchKey") as caught:
        tos.get("bkt", "missing")
    assert caught.value.status == 404
    with pytest.raises(ServiceError, match="NoSuchBucket"):
        tos.keys("missing")


def test_examples_in_the_docstrings():
    found = doctest.testmod(tosnative.testing.local)
    assert (found.attempted >= 2, found.failed) == (True, 0)


def test_the_serving_process_is_known(tos):
    with Wire(tos) as wire:
        wire.ask("GET", "/key")
    assert os.path.isdir(f"/proc/{tos.pid}") or not os.path.isdir("/proc")


def test_more_keys_than_a_page_holds():
    with LocalTos(bucket="bkt") as tos:
        names = [f"{i:05d}" for i in range(2345)]
        for name in names:
            tos.put("bkt", name, b"")
        assert tos.keys("bkt") == names


def test_put_takes_a_copy():
    with LocalTos(bucket="bkt") as tos:
        data = bytearray(b"before")
        tos.put("bkt", "key", data)
        data[:] = b"after!"
        assert tos.get("bkt", "key") == b"before"


def test_uploads_are_listed(tos):
    with Wire(tos) as wire:
        upload = json.loads(wire.ask("POST", "/big?uploads").body)["UploadId"]
        assert tos.uploads("bkt") == [("big", upload)]
        assert wire.ask("DELETE", f"/big?uploadId={upload}").status == 204
    assert tos.uploads("bkt") == []


def test_requests_are_recorded(tos):
    tos.put("bkt", "key", b"0123456789")
    with Wire(tos) as wire:
        wire.ask("GET", "/key?versionId=", Range="bytes=2-4", User_Agent="me/1")
        wire.ask("PUT", "/other", b"abc")
        peer = wire.socket.getsockname()
    first, second = tos.requests
    assert (first.method, first.bucket, first.key, first.range) == ("GET", "bkt", "key", "bytes=2-4")
    assert (first.status, first.sent_bytes, first.query, first.user_agent) == (206, 3, {"versionId": ""}, "me/1")
    assert (second.method, second.body_bytes, second.status) == ("PUT", 3, 200)
    assert first.connection == second.connection
    assert tuple(first.peer) == peer
    tos.clear_requests()
    assert tos.requests == []


def test_restart_comes_back_at_the_same_place(tos):
    tos.put("bkt", "key", b"kept")
    with Wire(tos) as wire:
        wire.ask("GET", "/key")
        tos.restart()
        with pytest.raises((EOFError, ConnectionError)):
            wire.ask("GET", "/key")
    assert fetch(tos, "key") == b"kept"


def test_stop_refuses_until_start(tos):
    tos.put("bkt", "key", b"kept")
    tos.stop()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((tos.host, tos.port), timeout=20)
    assert tos.get("bkt", "key") == b"kept"
    tos.start()
    assert fetch(tos, "key") == b"kept"


def test_close_ends_everything(tos):
    threads = threading.active_count()
    tos.close()
    tos.close()
    assert threading.active_count() <= threads
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((tos.host, tos.port), timeout=20)
    with pytest.raises(RuntimeError, match="closed"):
        tos.keys("bkt")


def test_addresses():
    with LocalTos(buckets=["one", "two"], ak="A", sk="S", token="T", region="cn-here") as tos:
        assert tos.bucket == "one"
        assert tos.endpoint == f"http://127.0.0.1:{tos.port}"
        assert tos.localhost_endpoint == f"http://localhost:{tos.port}"
        assert (tos.cred.ak, tos.cred.sk, tos.cred.security_token) == (tos.ak, tos.sk, tos.token) == ("A", "S", "T")
        assert "S" not in repr(tos.cred).replace("LocalCredentials", "")
        assert tos.environ() == {
            "TOS_ENDPOINT": tos.endpoint,
            "TOS_REGION": "cn-here",
            "TOS_ACCESS_KEY": "A",
            "TOS_SECRET_KEY": "S",
            "TOS_SECURITY_TOKEN": "T",
        }


def test_ipv6_loopback():
    if not socket.has_ipv6:
        pytest.skip("no IPv6 here")
    try:
        tos = LocalTos(bucket="bkt", check_signatures=False, host="::1")
    except OSError as error:
        pytest.skip(f"no IPv6 loopback here: {error}")
    with tos:
        tos.put("bkt", "key", b"six")
        assert tos.endpoint == f"http://[::1]:{tos.port}"
        assert fetch(tos, "key") == b"six"


def test_unsigned_requests_are_refused_by_default():
    with LocalTos(bucket="bkt") as tos, Wire(tos) as wire:
        reply = wire.ask("GET", "/key")
        assert (reply.status, json.loads(reply.body)["Code"]) == (403, "AccessDenied")
        assert wire.ask("HEAD", "/key").status == 403


def test_root_keeps_what_is_stored(tmp_path):
    for process in (False, True):
        with LocalTos(bucket="bkt", root=tmp_path, process=process, check_signatures=False) as tos:
            tos.put("bkt", f"key-{process}", b"kept")
    with LocalTos(root=tmp_path, check_signatures=False) as tos:
        assert tos.keys("bkt") == ["key-False", "key-True"]
        assert fetch(tos, "key-True") == b"kept"


def test_a_port_that_is_taken_is_an_error():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        for process in (False, True):
            with pytest.raises(OSError, match="in use"):
                LocalTos(port=port, process=process)


def test_a_wrong_switch_is_an_error():
    with pytest.raises(TypeError, match="chekc_signatures"):
        LocalTos(chekc_signatures=False)
