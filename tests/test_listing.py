"""Listings: every key once, in order, a page ahead, and never for ever."""

import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from tosnative.client import TosClient
from tosnative.credentials import CredentialProvider
from tosnative.errors import TosException, TosNotFoundError
from tosnative.listing import list_objects, list_pages
from tosnative.testing import LocalTos


def client_of(tos: LocalTos) -> TosClient:
    return TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred)


KEYS = ["a/", "a/1", "a/2", "a/b/3", "a/b/4", "a/c/5", "a/é", "a/~", "b/6"]


@pytest.fixture
def tos(local_tos: LocalTos) -> LocalTos:
    for key in KEYS:
        local_tos.put("test", key, b"" if key.endswith("/") else key.encode())
    return local_tos


@pytest.mark.parametrize("page_size", [1, 2, 8, 9, 1000])
def test_every_key_once_in_key_order(tos: LocalTos, page_size: int) -> None:
    pages = list(list_pages(client_of(tos), "test", "", page_size=page_size))
    assert [meta.key for page in pages for meta in page.objects] == sorted(KEYS, key=str.encode)
    assert len(tos.requests) == len(pages) == -(-len(KEYS) // page_size)


def test_prefix_delimiter_and_start_after(tos: LocalTos) -> None:
    client = client_of(tos)
    assert [meta.key for meta in list_objects(client, "test", "a/b/")] == ["a/b/3", "a/b/4"]
    assert [meta.key for meta in list_objects(client, "test", "a/", start_after="a/c/5")] == ["a/~", "a/é"]
    (page,) = list_pages(client, "test", "a/", delimiter="/")
    assert [meta.key for meta in page.objects] == ["a/", "a/1", "a/2", "a/~", "a/é"]
    assert page.prefixes == ["a/b/", "a/c/"]
    assert list(list_objects(client, "test", "nothing/")) == []


def test_objects_come_with_size_etag_and_checksum(tos: LocalTos) -> None:
    client = client_of(tos)
    for meta in list_objects(client, "test", "a/b/"):
        assert (meta.bucket, meta.size) == ("test", 5)
        assert meta.etag == client.head("test", meta.key).etag
        assert meta.crc64 == client.head("test", meta.key).crc64
        assert meta.last_modified is not None


def test_the_next_page_is_under_way_while_one_is_used(tos: LocalTos) -> None:
    pages = list_pages(client_of(tos), "test", "", page_size=2)
    next(pages)
    arrived = threading.Event()
    while len(tos.requests) < 2:
        arrived.wait(0.001)
    pages.close()  # type: ignore[attr-defined]
    assert len(tos.requests) == 2


def test_progress_is_told_after_each_page(tos: LocalTos) -> None:
    told: list[int] = []
    list(list_pages(client_of(tos), "test", "", page_size=4, on_progress=told.append))
    assert told == [4, 8, 9]


def test_long_listings_are_logged(
    tos: LocalTos, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tosnative.listing._LOG_EVERY", 5)
    with caplog.at_level(logging.INFO, "tosnative"):
        list(list_pages(client_of(tos), "test", "", page_size=2))
    assert [record.getMessage() for record in caplog.records] == ["listing tos://test/: 6 objects so far"]


def test_a_page_that_fails_is_retried_and_a_missing_bucket_is_named(tos: LocalTos) -> None:
    tos.faults.add(method="GET", query_has="continuation-token", times=2, status=503)
    assert len(list(list_objects(client_of(tos), "test", "a/"))) == 8
    with pytest.raises(TosNotFoundError, match="missing-bucket"):
        list(list_objects(client_of(tos), "missing-bucket", "a/"))


class _Repeating(BaseHTTPRequestHandler):
    """A service whose continuation tokens go round in a circle of three."""

    protocol_version = "HTTP/1.1"
    served = 0

    def do_GET(self) -> None:
        type(self).served += 1
        item = {"Key": f"k{self.served}", "Size": 1, "ETag": '"e"', "LastModified": "2024-01-01T00:00:00.000Z"}
        page = {"Contents": [item], "IsTruncated": True, "NextContinuationToken": f"token-{self.served % 3}"}
        body = json.dumps(page).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: object) -> None:
        return None


@pytest.fixture
def repeating() -> Iterator[str]:
    _Repeating.served = 0
    with HTTPServer(("127.0.0.1", 0), _Repeating) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def test_a_token_that_repeats_is_an_error(repeating: str) -> None:
    client = TosClient(region="cn-test", endpoint=repeating, cred=CredentialProvider("ak", "sk"))
    with pytest.raises(TosException, match="second time after 3 pages") as caught:
        list(list_objects(client, "test", "p/"))
    assert caught.value.error.key == "p/"
    assert _Repeating.served == 4
