"""TLS: verified by default, with a CA of one's own, both ways, in every size; a socket's hidden bytes never hang."""

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from conftest import AK, SK, TOKEN, MakeClient, check_error
from raw_server import serving

from tosnative import crc64
from tosnative.errors import TosConnectionError
from tosnative.testing import LocalTos

BODY = os.urandom(5_000_000)


@pytest.fixture(scope="module")
def tls() -> Iterator[LocalTos]:
    with LocalTos(bucket="test", ak=AK, sk=SK, token=TOKEN, tls=True) as server:
        server.put("test", "big", BODY)
        for size in SIZES:
            server.put("test", f"of{size}", BODY[:size])
        yield server


@pytest.fixture
def tos(tls: LocalTos) -> Iterator[LocalTos]:
    yield tls
    tls.faults.clear()
    tls.clear_requests()


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)


SIZES = (0, 1, 16_383, 16_384, 16_385, 100_000, 262_144, 1_000_000)


def both_planes(client: Any) -> list[Any]:
    return [lambda: client.get("test", "of1").wait(), lambda: client.head("test", "of1")]


def test_an_unknown_authority_is_refused_at_once_with_the_remedy(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client()
    assert client.endpoint.scheme == "https"
    for ask in both_planes(client):
        with pytest.raises(TosConnectionError, match="set ca_bundle") as caught:
            ask()
        assert caught.value.error.attempts == ()
        check_error(caught.value)
    assert tos.requests == []


@pytest.mark.parametrize("how", ["option", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"])
def test_a_ca_of_one_s_own(tos: LocalTos, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    settings = {"ca_bundle": tos.ca_bundle} if how == "option" else {}
    if not settings:
        assert tos.ca_bundle
        monkeypatch.setenv(how, tos.ca_bundle)
    client = make_client(**settings)
    for ask in both_planes(client):
        ask()


def test_verification_can_be_switched_off(make_client: MakeClient) -> None:
    client = make_client(verify=False)
    assert client.get("test", "of1").wait().getvalue() == BODY[:1]
    with pytest.warns(match="Unverified HTTPS request"):
        client.head("test", "of1")


def test_a_certificate_of_another_host_is_refused(tmp_path: Any, make_client: MakeClient) -> None:
    trustme = pytest.importorskip("trustme")
    authority = trustme.CA()
    certificate = authority.issue_cert("other.example.com")
    chain, key, bundle = (str(tmp_path / name) for name in ("chain.pem", "key.pem", "ca.pem"))
    certificate.private_key_pem.write_to_path(key)
    certificate.cert_chain_pems[0].write_to_path(chain)
    authority.cert_pem.write_to_path(bundle)
    with LocalTos(bucket="test", ak=AK, sk=SK, token=TOKEN, tls=(chain, key)) as other:
        client = make_client(other, ca_bundle=bundle)
        for ask in both_planes(client):
            with pytest.raises(TosConnectionError, match=r"127\.0\.0\.1") as caught:
                ask()
            assert caught.value.error.attempts == ()
            check_error(caught.value)
        assert other.requests == []


@pytest.mark.parametrize("size", SIZES)
def test_downloads_of_every_size(tos: LocalTos, make_client: MakeClient, size: int) -> None:
    client = make_client(ca_bundle=tos.ca_bundle)
    batch = [client.download("test", f"of{size}") for _ in range(20)]
    client.submit(batch)
    for download in batch:
        assert download.wait().getvalue() == BODY[:size]


@pytest.mark.parametrize("size", [*SIZES, 5_000_000])
def test_uploads_of_every_size(tos: LocalTos, make_client: MakeClient, size: int) -> None:
    client = make_client(ca_bundle=tos.ca_bundle)
    data = bytearray(BODY[:size])
    uploads = [client.put("test", f"up{n}", data, crc64=crc64.update(data)) for n in range(4)]
    for number, upload in enumerate(uploads):
        upload.wait()
        assert tos.get("test", f"up{number}") == BODY[:size]


def test_large_ranges_into_one_buffer(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(ca_bundle=tos.ca_bundle)
    buffer = bytearray(len(BODY))
    view = memoryview(buffer)
    edges = range(0, len(BODY), 700_001)
    batch = [client.download("test", "big", at, at + 700_001, into=view[at : at + 700_001]) for at in edges]
    client.submit(batch)
    for download in batch:
        download.wait()
    assert buffer == BODY


@pytest.mark.parametrize(
    "fault",
    [
        {"reset": "before"},
        {"reset_after_bytes": 300_000},
        {"truncate_after_bytes": 300_000},
        {"chunk_bytes": 1000},
        {"interim": (103,)},
        {"close": True},
        {"status": 503},
        {"flip_byte_at": 5},
    ],
)
def test_faults_over_tls(tos: LocalTos, make_client: MakeClient, fault: dict[str, Any]) -> None:
    client = make_client(ca_bundle=tos.ca_bundle)
    client.get("test", "of1").wait()
    tos.faults.add(method="GET", times=2, **fault)
    for _ in range(3):
        assert client.get("test", "of1000000").wait().getvalue() == BODY[:1_000_000]


def test_idle_connections_closed_as_they_are_used(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(ca_bundle=tos.ca_bundle, max_retry_count=0)
    for _ in range(3):
        client.get("test", "of1").wait()
        tos.faults.add(reused=True, reset="before", times=1)
        assert client.get("test", "of100000").wait().getvalue() == BODY[:100_000]


def test_a_stall_over_tls(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(ca_bundle=tos.ca_bundle, stall_timeout_s=0.3)
    tos.faults.add(method="GET", times=1, stall_after_bytes=100_000)
    assert client.get("test", "of1000000").wait().getvalue() == BODY[:1_000_000]


def test_https_to_a_service_that_speaks_http(make_client: MakeClient) -> None:
    with serving(lambda connection: connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")) as server:
        client = make_client(endpoint=f"https://127.0.0.1:{server.port}", max_retry_count=0)
        with pytest.raises(TosConnectionError) as caught:
            client.get("test", "k").wait()
        check_error(caught.value)


def test_the_switch_interval_is_put_back(tos: LocalTos, make_client: MakeClient) -> None:
    before = 0.005  # Python's own
    while sys.getswitchinterval() != before:  # a test before this one may have left transfers behind
        os.sched_yield()
    client = make_client(ca_bundle=tos.ca_bundle)
    tos.faults.add(method="GET", delay_s=0.1)
    client.get("test", "of1").wait()
    while sys.getswitchinterval() != before:
        os.sched_yield()
    other = make_client(ca_bundle=tos.ca_bundle, shorten_switch_interval=False, max_connections=7)
    late = tos.faults.add(method="GET", delay_s=0.6)  # longer than the loop takes to look again
    getting = other.get("test", "of1")
    while not getting.done:
        assert sys.getswitchinterval() == before, "idle connections of another client do not count"
        os.sched_yield()
    assert late.hits


def test_forks_over_tls(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client(ca_bundle=tos.ca_bundle)
    for _ in range(5):
        got = client.get("test", "of1000000")
        pid = os.fork()
        if pid == 0:
            fine = False
            try:
                fine = got.wait().getvalue() == BODY[:1_000_000]
            finally:
                os._exit(0 if fine else 1)
        assert got.wait().getvalue() == BODY[:1_000_000]
        assert os.waitpid(pid, 0)[1] == 0
