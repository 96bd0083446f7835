"""What users write: URIs, endpoints, the environment, proxies, files of credentials. One clear ValueError, or what was meant."""

from __future__ import annotations

import contextlib
import ipaddress
import os
import re
import urllib.parse
from collections.abc import Iterator

from tests.fuzz.target import Target, take_text
from tosnative.config import (
    ConnectionOptions,
    environment_credentials,
    proxy_for,
    resolve_endpoint,
    with_environment,
)
from tosnative.credential_files import Credentials, parse_credentials, parse_time
from tosnative.credentials import EnvironmentCredentials
from tosnative.endpoint import Endpoint, endpoint_of_region, parse_endpoint, region_in
from tosnative.uri import check_bucket, check_key, format_uri, join_key, parse_uri
from tosnative.wire.signing import quote_key

__all__ = ["TARGETS"]

_NAMES = ("TOS_ENDPOINT", "TOS_REGION", "TOS_ACCESS_KEY", "TOS_SECRET_KEY", "TOS_SECURITY_TOKEN", "HTTPS_PROXY",
          "HTTP_PROXY", "ALL_PROXY", "NO_PROXY", "SSL_CERT_FILE")  # fmt: skip


def uri(data: bytes) -> None:
    """A bucket that may be one and the key as it stands, which come back from the URI that they make; or a ValueError."""
    for text in take_text(data):
        try:
            bucket, key = parse_uri(text)
        except ValueError as error:
            assert "\n" not in str(error)
            continue
        assert re.fullmatch(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]", bucket)
        assert text.endswith(key)
        assert parse_uri(format_uri(bucket, key)) == (bucket, key)
        assert check_bucket(bucket) == bucket
        try:
            check_key(bucket, key)
        except ValueError:
            continue
        path = quote_key(key)
        assert path.isascii()
        assert path.isprintable()
        assert " " not in path
        assert urllib.parse.unquote(path, errors="strict") == "/" + key
        assert "//" not in join_key(key, "/x")[-3:]


def _check_endpoint(found: Endpoint) -> None:
    assert found.scheme in ("http", "https")
    assert 0 < found.port < 65536
    assert re.fullmatch(r"[A-Za-z0-9-]+", found.region)
    # It becomes the Host header and the address to connect to.
    assert re.fullmatch(r"[A-Za-z0-9._:%-]+", found.host), found.host
    parts = urllib.parse.urlsplit(found.url)
    assert parts.hostname == found.host
    assert (parts.port or {"http": 80, "https": 443}[parts.scheme]) == found.port
    assert parse_endpoint(found.url, found.region) == found
    host, port = found.address_of("bkt")
    assert port == found.port
    assert host.endswith(found.host)


def endpoint(data: bytes) -> None:
    """An endpoint that comes back from its own URL, or a ValueError of one line."""
    text, region = (*take_text(data), "")[:2]
    for ask in (lambda: parse_endpoint(text, region or None), lambda: endpoint_of_region(text)):
        try:
            found = ask()
        except ValueError as error:
            assert "\n" not in str(error)
            _shows_none(str(error), *([text.partition("@")[0]] if "@" in text else []))
            continue
        _check_endpoint(found)
        assert region_in(found.url) in (None, found.region)


@contextlib.contextmanager
def _environment(values: dict[str, str]) -> Iterator[None]:
    """Just these variables, but what the interpreter itself needs."""
    before = dict(os.environ)
    os.environ.clear()
    os.environ.update(values)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def environment(data: bytes) -> None:
    """Any values of the variables that are read: what was meant, or a ValueError that shows no secret."""
    texts = data.split(b"\0")
    values = {name: os.fsdecode(text) for name, text in zip(_NAMES, texts, strict=False) if text}
    with _environment(values):
        try:
            found = environment_credentials()
            if found is not None:
                credentials = EnvironmentCredentials().current()
                assert credentials.ak == found[0].strip()
                _check_credentials(credentials)
        except ValueError as error:
            _shows_none(str(error), values.get("TOS_SECRET_KEY", ""), values.get("TOS_SECURITY_TOKEN", ""))
        try:
            endpoint = resolve_endpoint(None, None)
            _check_endpoint(endpoint)
        except ValueError:
            endpoint = parse_endpoint("https://tos-cn-beijing.volces.com")
        try:
            with_environment(ConnectionOptions())
        except ValueError:
            pass
        _check_proxy(endpoint)


def _check_proxy(endpoint: Endpoint) -> None:
    try:
        proxy = proxy_for(endpoint, ConnectionOptions())
    except ValueError as error:
        password = next(iter(re.findall(r"//[^/]*:([^/@]{6,})@", os.environ.get("HTTPS_PROXY", ""))), "")
        _shows_none(str(error), password)
        return
    if proxy is not None:
        parts = urllib.parse.urlsplit(proxy)
        assert parts.scheme in ("http", "https")
        assert parts.hostname
        assert parts.port != 0
        assert proxy.isprintable()
        assert " " not in proxy


def _shows_none(text: str, *secrets: str) -> None:
    assert "\n" not in text
    for known in ("[user:password@]host:port", *_NAMES):  # what messages say by themselves
        text = text.replace(known, "")
    assert not any(len(secret) >= 6 and secret in text for secret in secrets), text


def _check_credentials(found: Credentials) -> None:
    for value in (found.ak, found.sk, found.token or "x"):
        assert value
        assert value.isprintable()
        assert " " not in value
        value.encode()
    assert found.expires_at is None or abs(found.expires_at) < 1e12
    _shows_none(repr(found), found.sk, found.token or "")


def credentials_file(data: bytes) -> None:
    """Keys that may stand in a header, or a ValueError that names the file and quotes nothing of it."""
    try:
        found = parse_credentials(data, "/the/file")
    except ValueError as error:
        assert str(error).isprintable()
        assert "/the/file" in str(error)
        assert error.__cause__ is None or error.__suppress_context__
        return
    _check_credentials(found)


def moment(data: bytes) -> None:
    """Seconds since 1970 that are a number, or a ValueError."""
    for text in take_text(data):
        try:
            found = parse_time(text)
        except ValueError:
            continue
        assert found is None or abs(found) < 1e12


def no_proxy(data: bytes) -> None:
    """Any exceptions: an address is in a network that is named or is not, and nothing is raised."""
    exceptions, host = (*take_text(data), "")[:2]
    if "\0" in exceptions or not re.fullmatch(r"[a-z0-9.:]{1,40}", host):
        return
    try:
        exceptions.encode()
        endpoint = parse_endpoint(f"http://[{host}]" if ":" in host else f"http://{host}", "r")
    except ValueError:
        return
    with _environment({"HTTP_PROXY": "http://proxy:3128", "NO_PROXY": exceptions}):
        proxy = proxy_for(endpoint, ConnectionOptions())
    assert proxy in (None, "http://proxy:3128")
    if exceptions == "*" or exceptions.strip() == endpoint.host:
        assert proxy is None
    with contextlib.suppress(ValueError):
        if ipaddress.ip_address(endpoint.host) in ipaddress.ip_network(exceptions.strip(), strict=False):
            assert proxy is None


TARGETS = {
    "uri": Target(
        uri, (b"tos://bucket/a/b", b"bucket//a?b#c", b"s3://bucket/a", "tos://bucket/\u4e2d".encode()), (b"tos://", b"//", b"\0")
    ),
    "endpoint": Target(
        endpoint,
        (b"https://tos-cn-beijing.volces.com/", b"http://[::1%eth0]:9000\0r", b"127.0.0.1:9000\0r", b"a.localhost.\0r",
         b"http://user:secret@host\0r", b"bucket.tos-cn-beijing.ivolces.com", b"[::1%\r\nx: y]\0r"),
        (b"http://", b"https://", b"[", b"]", b"::1", b"%", b"\0", b".volces.com", b"tos-", b"\r\n", b"@"),
    ),
    "environment": Target(
        environment,
        (b"tos-cn-beijing.volces.com\0cn-beijing\0AK\0SECRETKEY\0TOKENTOKEN\0http://u:password@proxy:3128\0\0\0*",
         b"http://10.0.0.1:80\0r\0AK\0S\r\nX: y\0\0\0proxy:80\0socks5://p\0" b"10.0.0.0/8,host\0/nowhere",
         b"\0\0\0\0\0https://u:password@p\r\n:99999"),
        (b"\0", b"http://", b"@", b":", b"\r\n", b"10.0.0.0/8", b"[::1]"),
    ),
    "credentials_file": Target(
        credentials_file,
        (b'{"ak": "AK", "sk": "SECRETKEY", "token": "TOKEN", "expires_at": 1767323045}', b'\xef\xbb\xbf{"ak": 1, "sk": []}',
         b"[default]\nak = AK\nsk: SECRETKEY\n  more\n", b"[x]\n[default]\nak\n", b'{"ak":' * 3000,
         b'{"AccessKeyId": "A", "SecretAccessKey": "\\ud800", "Expiration": "2026-01-02T03:04:05Z"}'),
        (b'"ak"', b'"sk"', b'"token"', b"[default]", b"\n", b"=", b'"expires_at": ', b"NaN", b"1e999", b"\\n"),
    ),
    "moment": Target(moment, (b"1767323045", b"2026-01-02T03:04:05.25Z", b"nan", b"1e999", b"0001-01-01T00:00:00+23:59"),
                     (b"-", b":", b"T", b"Z", b"+", b".", b"e", b"inf", b"_")),
    "no_proxy": Target(no_proxy, (b"10.0.0.0/8,host\0" b"10.1.2.3", b"*\0host", b"::1/64\0::1", b".b.c\0a.b.c", b"[::1]:80\0::1"),
                       (b",", b"/", b"*", b".", b":", b"\0")),
}  # fmt: skip
