"""Proxies: absolute-form for http, CONNECT for https, NO_PROXY, a user and a password that nobody sees."""

import base64
import os
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import AK, SK, TOKEN, MakeClient, check_error
from raw_server import answer, read_request, serving

from tosnative.errors import TosAccessError, TosConnectionError
from tosnative.testing import LocalTos

BODY = os.urandom(300_000)


@pytest.fixture(scope="module")
def tls() -> Iterator[LocalTos]:
    with LocalTos(bucket="test", ak=AK, sk=SK, token=TOKEN, tls=True) as server:
        server.put("test", "k", BODY)
        yield server


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def exercise(client: Any) -> None:
    """Both planes, both ways."""
    assert client.get("test", "k").wait().getvalue() == BODY
    assert client.head("test", "k").size == len(BODY)
    client.put("test", "up", BODY).wait()
    assert "up" in [meta.key for meta in client.list_page("test").objects]
    client.delete("test", "up")


@pytest.mark.parametrize("user", ["", "user:p4ssw0rd@", "user%40x:p4ss%3Aw0rd@"])
def test_http_goes_through_in_absolute_form_by_name(tos: LocalTos, make_client: MakeClient, user: str) -> None:
    tos.put("test", "k", BODY)
    client = make_client(endpoint="http://tos.nowhere.invalid", proxy=tos.proxy_url.replace("://", f"://{user}"))
    exercise(client)
    assert all(request.proxied for request in tos.requests)
    assert {request.headers["host"] for request in tos.requests} == {"test.tos.nowhere.invalid"}
    if user:
        name, _, word = user.rstrip("@").replace("%40", "@").replace("%3A", ":").partition(":")
        expected = "Basic " + base64.b64encode(f"{name}:{word}".encode()).decode()
        sent = {request.headers.get("proxy-authorization") for request in tos.requests}
        assert sent == {expected}, sent


def test_https_goes_through_a_tunnel(tls: LocalTos, make_client: MakeClient) -> None:
    client = make_client(
        tls, endpoint="https://tos.local", proxy=tls.proxy_url.replace("https:", "http:"), ca_bundle=tls.ca_bundle
    )
    tls.clear_requests()
    exercise(client)
    assert all(request.proxied for request in tls.requests)


def test_the_environment_names_the_proxy_and_the_exceptions(
    tos: LocalTos, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    tos.put("test", "k", BODY)
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    exercise(make_client())
    assert not any(request.proxied for request in tos.requests)
    tos.clear_requests()
    monkeypatch.setenv("http_proxy", tos.proxy_url)
    monkeypatch.setenv("no_proxy", "elsewhere.com")
    exercise(make_client())
    assert all(request.proxied for request in tos.requests)


def test_a_proxy_that_is_not_there(make_client: MakeClient) -> None:
    client = make_client(
        endpoint="http://tos.nowhere.invalid", proxy="http://user:p4ssw0rd@127.0.0.1:1", max_retry_count=1
    )
    for ask in (lambda: client.get("test", "k").wait(), lambda: client.head("test", "k")):
        with pytest.raises(TosConnectionError, match="refused") as caught:
            ask()
        assert "p4ssw0rd" not in repr(caught.value) + str(caught.value)
        check_error(caught.value)


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_proxy_that_wants_a_password(make_client: MakeClient, scheme: str) -> None:
    refusal = b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    with serving(answer(refusal)) as server:
        client = make_client(
            endpoint=f"{scheme}://tos.nowhere.invalid",
            proxy=f"http://user:p4ssw0rd@127.0.0.1:{server.port}",
            max_retry_count=1,
        )
        with pytest.raises((TosAccessError, TosConnectionError), match="407") as caught:
            client.get("test", "k").wait()
        assert "p4ssw0rd" not in str(caught.value)
        check_error(caught.value)


def test_the_tunnel_is_asked_for_the_bucket_s_host_with_the_password(make_client: MakeClient) -> None:
    heads: list[bytes] = []

    def script(connection: Any) -> None:
        heads.append(read_request(connection))
        connection.sendall(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\n\r\n")

    with serving(script) as server:
        client = make_client(
            endpoint="https://tos.nowhere.invalid", proxy=f"http://u:p@127.0.0.1:{server.port}", max_retry_count=0
        )
        with pytest.raises(TosConnectionError):
            client.get("test", "k").wait()
    assert heads[0].startswith(b"CONNECT test.tos.nowhere.invalid:443 HTTP/1.")
    assert b"Basic " + base64.b64encode(b"u:p") in heads[0]
