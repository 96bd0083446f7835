"""Endpoints: each form works, or is one clear ValueError when the client is made."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig, proxy_for, resolve_endpoint
from tosnative.credentials import CredentialProvider
from tosnative.endpoint import endpoint_of_region, parse_endpoint, region_in

CRED = CredentialProvider("ak", "sk")


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOS_ENDPOINT", "TOS_REGION", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize(
    ("text", "region", "url", "found", "address"),
    [
        (
            "tos-cn-beijing.volces.com",
            None,
            "https://tos-cn-beijing.volces.com",
            "cn-beijing",
            ("bkt.tos-cn-beijing.volces.com", 443),
        ),
        (
            "https://tos-cn-beijing.volces.com/",
            None,
            "https://tos-cn-beijing.volces.com",
            "cn-beijing",
            ("bkt.tos-cn-beijing.volces.com", 443),
        ),
        (
            " HTTPS://TOS-cn-beijing.VOLCES.com ",
            None,
            "https://tos-cn-beijing.volces.com",
            "cn-beijing",
            ("bkt.tos-cn-beijing.volces.com", 443),
        ),
        (
            "tos-cn-beijing.ivolces.com",
            "cn-beijing",
            "https://tos-cn-beijing.ivolces.com",
            "cn-beijing",
            ("bkt.tos-cn-beijing.ivolces.com", 443),
        ),
        (
            "tos-ap-southeast-1.bytepluses.com",
            None,
            "https://tos-ap-southeast-1.bytepluses.com",
            "ap-southeast-1",
            ("bkt.tos-ap-southeast-1.bytepluses.com", 443),
        ),
        (
            "http://tos-cn-beijing.volces.com:8080",
            None,
            "http://tos-cn-beijing.volces.com:8080",
            "cn-beijing",
            ("bkt.tos-cn-beijing.volces.com", 8080),
        ),
        (
            "https://tos-cn-beijing.volces.com:443",
            None,
            "https://tos-cn-beijing.volces.com",
            "cn-beijing",
            ("bkt.tos-cn-beijing.volces.com", 443),
        ),
        ("http://127.0.0.1:9000", "r", "http://127.0.0.1:9000", "r", ("127.0.0.1", 9000)),
        ("http://127.0.0.1", "r", "http://127.0.0.1", "r", ("127.0.0.1", 80)),
        ("http://[::1]:9000", "r", "http://[::1]:9000", "r", ("::1", 9000)),
        ("http://[::1]", "r", "http://[::1]", "r", ("::1", 80)),
        ("http://localhost:9000/", "r", "http://localhost:9000", "r", ("localhost", 9000)),
        ("http://tos.localhost:9000", "r", "http://tos.localhost:9000", "r", ("tos.localhost", 9000)),
        ("storage.example.com", "r-1", "https://storage.example.com", "r-1", ("bkt.storage.example.com", 443)),
    ],
)
def test_endpoints_that_work(text: str, region: str | None, url: str, found: str, address: tuple[str, int]) -> None:
    client = TosClient(endpoint=text, region=region, cred=CRED)
    assert (client.endpoint.url, client.endpoint.region) == (url, found)
    assert client.endpoint.address_of("bkt") == address
    assert client.endpoint.host_header("bkt") == f"bkt.{url.partition('://')[2]}"


@pytest.mark.parametrize(
    ("text", "region", "what"),
    [
        ("bkt.tos-cn-beijing.volces.com", None, "begins with a bucket's name"),
        ("https://bkt.tos-cn-beijing.volces.com", None, "'https://tos-cn-beijing.volces.com'"),
        ("tos-s3-cn-beijing.volces.com", None, "speaks the S3 protocol"),
        ("https://s3.us-east-1.amazonaws.com", "us-east-1", "is not a TOS endpoint"),
        ("tos-cn-beijing.volces.com", "cn-guangzhou", "contradicts"),
        ("http://127.0.0.1:9000", None, "no region"),
        ("storage.example.com", None, "pass region= or set TOS_REGION"),
        ("ftp://tos-cn-beijing.volces.com", None, "http or https"),
        ("http://127.0.0.1:9000/bucket", "r", "has a path"),
        ("http://127.0.0.1:9000?x", "r", "has a path"),
        ("http://ak:sk@127.0.0.1:9000", "r", "no user name or password"),
        ("http://127.0.0.1:", "r", "port is missing"),
        ("http://127.0.0.1:http", "r", "no port number"),
        ("http://127.0.0.1:0", "r", "no port number"),
        ("http://127.0.0.1:65536", "r", "no port number"),
        ("http://::1:9000", "r", "brackets"),
        ("http://[::1", "r", "brackets"),
        ("http://[::1]9000", "r", "brackets"),
        ("http://[::1]:", "r", "brackets"),
        ("http://[127.0.0.1]:1", "r", "brackets"),
        ("https://", "r", "no host name"),
        ("https://-a", "r", "no host name"),
        ("https://a b", "r", "no host name"),
        ("http://127.0.0.1:9000", "no region", "no region's name"),
        ("http://[::1%\r\nX-Evil: 1]:9000", "r", "no host name"),
        ("ftp://ak:sk@127.0.0.1:9000", "r", "no user name or password"),
        ("http://127.0.0.1:9000", "http://ak:sk@host", "no region's name"),
        (None, None, "TOS_ENDPOINT"),
        (None, "a b", "no region's name"),
        (None, "s3-cn-beijing", "speaks the S3 protocol"),
    ],
)
def test_endpoints_that_are_one_clear_value_error(text: str | None, region: str | None, what: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        TosClient(endpoint=text, region=region, cred=CRED)
    assert what in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "sk@" not in str(caught.value)


@given(st.text(max_size=40))
def test_any_text_is_an_endpoint_or_a_value_error(text: str) -> None:
    try:
        endpoint = parse_endpoint(text, "r")
    except ValueError:
        return
    assert parse_endpoint(endpoint.url, endpoint.region) == endpoint
    assert 0 < endpoint.port < 65536


def test_a_region_is_the_same_in_capitals() -> None:
    assert endpoint_of_region("CN-Beijing") == endpoint_of_region("cn-beijing")
    assert parse_endpoint("tos-cn-beijing.volces.com", "CN-Beijing").region == "cn-beijing"


def test_an_address_may_name_its_zone() -> None:
    assert parse_endpoint("http://[fe80::1%eth0]:9000", "r").host == "fe80::1%eth0"


def test_a_region_alone_means_its_public_endpoint() -> None:
    assert TosClient(region="cn-shanghai", cred=CRED).endpoint == endpoint_of_region("cn-shanghai")
    assert endpoint_of_region("cn-shanghai").url == "https://tos-cn-shanghai.volces.com"
    assert region_in("tos-cn-shanghai.volces.com") == "cn-shanghai"
    assert region_in("127.0.0.1") is None


def test_the_environment_fills_in_what_is_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOS_ENDPOINT", "http://127.0.0.1:9000")
    monkeypatch.setenv("TOS_REGION", "cn-test")
    assert resolve_endpoint(None, None).url == "http://127.0.0.1:9000"
    assert resolve_endpoint("", "").region == "cn-test"
    assert resolve_endpoint(None, "other") == parse_endpoint("http://127.0.0.1:9000", "other")
    assert resolve_endpoint("localhost:1", None).region == "cn-test"
    assert resolve_endpoint("tos-cn-beijing.volces.com", None).region == "cn-beijing", "what is passed goes before"
    monkeypatch.setenv("TOS_ENDPOINT", "tos-cn-beijing.volces.com")
    with pytest.raises(ValueError, match="contradicts"):
        resolve_endpoint(None, "cn-guangzhou")
    with pytest.raises(ValueError, match="contradicts"):
        resolve_endpoint(None, None)


@pytest.mark.parametrize(
    ("rule", "direct"), [("10.0.0.0/8", True), ("10.1.0.0/16", False), ("::1, 10.0.0.5", True), ("x/8", False)]
)
def test_no_proxy_may_name_a_network(monkeypatch: pytest.MonkeyPatch, rule: str, direct: bool) -> None:
    monkeypatch.setenv("http_proxy", "http://web:3128")
    monkeypatch.setenv("no_proxy", rule)
    endpoint = parse_endpoint("http://10.0.0.5:9000", "r")
    assert (proxy_for(endpoint, ConnectionOptions()) is None) is direct


def options(proxy: str | None) -> TosClientConfig:
    return TosClientConfig(connection=ConnectionOptions(proxy=proxy))


HTTP, HTTPS = parse_endpoint("http://tos.example.com:81", "r"), parse_endpoint("https://tos.example.com", "r")


def test_a_proxy_is_taken_from_the_options_then_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    assert proxy_for(HTTP, ConnectionOptions()) is None
    monkeypatch.setenv("http_proxy", "http://web:3128")
    monkeypatch.setenv("https_proxy", "secure:3129")
    assert proxy_for(HTTP, ConnectionOptions()) == "http://web:3128"
    assert proxy_for(HTTPS, ConnectionOptions()) == "http://secure:3129"
    assert proxy_for(HTTP, ConnectionOptions(proxy="http://mine:1")) == "http://mine:1"
    assert proxy_for(HTTP, ConnectionOptions(proxy="")) is None


@pytest.mark.parametrize(
    "rule", ["tos.example.com", ".example.com", "example.com", "tos.example.com:81", "*", "x, .example.com"]
)
def test_no_proxy_is_heeded(monkeypatch: pytest.MonkeyPatch, rule: str) -> None:
    monkeypatch.setenv("http_proxy", "http://web:3128")
    monkeypatch.setenv("no_proxy", rule)
    assert proxy_for(HTTP, ConnectionOptions()) is None
    monkeypatch.setenv("no_proxy", "other.com")
    assert proxy_for(HTTP, ConnectionOptions()) == "http://web:3128"


@pytest.mark.parametrize(
    ("proxy", "what"),
    [
        ("https://user:secret@proxy:1", "cannot carry an https endpoint"),
        ("socks5://user:secret@proxy:1", "not supported"),
        ("http://user:secret@proxy:port", "no address"),
        ("http://user:secret@proxy:99999", "no address"),
        ("http://user:secret@", "no address"),
        ("http://user:secret@[::1", "no address"),
        ("http://proxy:1/path", "no address"),
        ("http://user:secret@proxy\r\n:1", "blanks or control characters"),
        ("http://user:secret@pro xy:1", "blanks or control characters"),
        ("http:x//user:secret@proxy:http://", "address is none"),
    ],
)
def test_proxies_that_cannot_work_are_refused_at_construction(proxy: str, what: str) -> None:
    with pytest.raises(ValueError, match=r".") as caught:
        TosClient(endpoint="https://tos.example.com", region="r", cred=CRED, config=options(proxy))
    assert what in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_plain_endpoint_may_go_through_an_https_proxy() -> None:
    assert proxy_for(HTTP, ConnectionOptions(proxy="https://proxy:1")) == "https://proxy:1"
