"""The local server over TLS, through tunnels, and with clients that sign."""

import contextlib
import os
import urllib.request

import pytest
import tos as official
import urllib3
from server_wire import Wire

from tosnative.testing import LocalTos


def fetch(tos, key):
    with urllib.request.urlopen(f"{tos.endpoint}/bkt/{key}", timeout=20) as answer:
        return answer.read()


def test_tls_and_plain_on_one_port():
    with LocalTos(bucket="bkt", check_signatures=False, tls=True) as tos:
        data = bytes(range(256)) * 20_000
        assert tos.endpoint.startswith("https://127.0.0.1:")
        with urllib3.PoolManager(ca_certs=tos.ca_bundle, retries=False) as pool:
            for endpoint in (tos.endpoint, tos.localhost_endpoint):
                assert pool.request("PUT", f"{endpoint}/bkt/key", body=data).status == 200
                assert pool.request("GET", f"{endpoint}/bkt/key").data == data
        with urllib3.PoolManager(retries=False) as pool:
            assert pool.request("GET", f"{tos.proxy_url}/bkt/key").data == data
            with pytest.raises(urllib3.exceptions.SSLError):
                pool.request("GET", f"{tos.endpoint}/bkt/key")
        assert fetch_after_failed_handshake(tos) == data
    assert not os.path.exists(tos.ca_bundle)


def fetch_after_failed_handshake(tos):
    with urllib3.PoolManager(ca_certs=tos.ca_bundle, retries=False) as pool:
        return pool.request("GET", f"{tos.endpoint}/bkt/key").data


def test_https_through_a_tunnel():
    with LocalTos(bucket="bkt", check_signatures=False, tls=True, process=True) as tos:
        tos.put("bkt", "key", b"tunnelled")
        with urllib3.ProxyManager(tos.proxy_url, ca_certs=tos.ca_bundle, retries=False) as pool:
            assert pool.request("GET", "https://bkt.tos.local/key").data == b"tunnelled"
            assert pool.request("GET", "http://bkt.tos.local/key").data == b"tunnelled"
        found = [(record.method, record.proxied) for record in tos.requests]
        assert found == [("CONNECT", True), ("GET", True), ("GET", True)]


def test_large_bodies_over_tls_and_slowly():
    with LocalTos(bucket="bkt", check_signatures=False, tls=True) as tos:
        data = os.urandom(300_000)
        tos.faults.add(bandwidth_bytes_s=3_000_000)
        with urllib3.PoolManager(ca_certs=tos.ca_bundle, retries=False) as pool:
            assert pool.request("PUT", f"{tos.endpoint}/bkt/key", body=data).status == 200
            assert pool.request("GET", f"{tos.endpoint}/bkt/key").data == data
            assert (
                pool.request("PUT", f"{tos.endpoint}/bkt/chunks", body=iter([data, data]), chunked=True).status == 200
            )
        assert tos.get("bkt", "chunks") == data + data


def test_public_objects_need_no_signature():
    with LocalTos(bucket="bkt", token="T/+=") as local, sdk(local) as client:
        client.put_object("bkt", "public", content=b"x", acl=official.ACLType.ACL_Public_Read)
        client.put_object("bkt", "private", content=b"x")
        with Wire(local) as wire:
            assert wire.ask("GET", "/public").status == 200
            assert wire.ask("GET", "/private").status == 403
            assert wire.ask("PUT", "/public", b"y").status == 403


@contextlib.contextmanager
def sdk(local, **changed):
    """The official SDK, through the server as its proxy."""
    found = {"ak": local.ak, "sk": local.sk, "region": local.region, "security_token": local.token, **changed}
    proxy = {"proxy_host": local.host, "proxy_port": local.port}
    client = official.TosClientV2(endpoint="http://no.such.host", dns_cache_time=0, max_retry_count=0, **found, **proxy)
    try:
        yield client
    finally:
        client.close()


def test_the_official_client_is_let_in_and_strangers_are_not():
    with LocalTos(bucket="bkt", token="T/+=") as local:
        key = "d/中 a+b~.txt"
        with sdk(local) as client:
            client.put_object("bkt", key, content=(b"y" * 1000 for _ in range(100)))
            assert client.get_object("bkt", key).read() == b"y" * 100_000
            assert [found.key for found in client.list_objects_type2("bkt", prefix="d/中 ").contents] == [key]
            query = {"response-content-type": "a b/+x"}
            url = client.pre_signed_url(official.HttpMethodType.Http_Method_Get, "bkt", key, query=query).signed_url
            with urllib3.ProxyManager(local.proxy_url, retries=False) as pool:
                assert pool.request("GET", url).headers["content-type"] == "a b/+x"
                assert pool.request("GET", url + "0").status == 403
        for wrong, code in [
            ({"sk": "another"}, "SignatureDoesNotMatch"),
            ({"ak": "another"}, "InvalidAccessKeyId"),
            ({"security_token": "another"}, "InvalidSecurityToken"),
            ({"security_token": None}, "InvalidSecurityToken"),
            ({"region": "cn-other"}, "AccessDenied"),
        ]:
            with sdk(local, **wrong) as client, pytest.raises(official.exceptions.TosServerError) as caught:
                client.get_object("bkt", key)
            assert (caught.value.status_code, caught.value.code) == (403, code)
