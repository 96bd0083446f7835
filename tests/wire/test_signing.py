"""Signatures equal the official SDK's, and the known vectors."""

import hashlib
import hmac
import time
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tos.auth import CredentialProviderAuth
from tos.credential import StaticCredentialsProvider

from tosnative.credentials import Credentials
from tosnative.wire import signing
from tosnative.wire.signing import Signer, canonical_query, quote_key

NOW = 1767323045.9  # 20260102T030405Z
HOST = "bkt.localhost:8080"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r\n"), min_size=1, max_size=20)


def signature(lines: str) -> str:
    return lines.partition("Signature=")[2].strip()


def ours(method: str, key: str, query: dict[str, str], credentials: Credentials, signed: dict[str, str] | None) -> str:
    signer = Signer("cn-test")
    return signer.headers(method, quote_key(key), canonical_query(query), HOST, credentials, NOW, signed)


def of_the_sdk(
    method: str, key: str, query: dict[str, str], credentials: Credentials, signed: dict[str, str] | None
) -> str:
    auth = CredentialProviderAuth(
        StaticCredentialsProvider(credentials.ak, credentials.sk, credentials.token), "cn-test"
    )
    headers = {"host": HOST, "x-tos-content-sha256": "UNSIGNED-PAYLOAD", **(signed or {})}
    request = SimpleNamespace(method=method, path="/" + key, params=query, headers=headers, generic_input=None)
    fixed = SimpleNamespace(request_date=__import__("datetime").datetime.fromtimestamp(int(NOW)), request_host=None)
    request.generic_input = fixed
    auth.sign_request(request)
    authorization: str = request.headers["Authorization"]
    return authorization


@pytest.fixture(autouse=True)
def in_utc(monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


VECTORS = [
    (
        ("GET", "", {"list-type": "2", "prefix": "a b/+中", "delimiter": "/", "uploads": ""}, None),
        "3cbccdb8fe27084120699859a789caa4e69de2ebae22e1bc5f07100992d6c0a1",
    ),
    (
        ("PUT", "d/中 a+b~.txt", {}, {"content-type": "text/plain", "x-tos-meta-a": "1"}),
        "6139b4fe475835d78b57b53b37ac5fc8e359abc1a4ef248a5973ab0fe54ea45b",
    ),
]


@pytest.mark.parametrize(("request_", "expected"), VECTORS)
def test_known_vectors(request_: tuple, expected: str) -> None:  # type: ignore[type-arg]
    method, key, query, signed = request_
    credentials = Credentials("AKtest", "SKtest")
    assert signature(ours(method, key, query, credentials, signed)) == expected
    assert signature(of_the_sdk(method, key, query, credentials, signed)) == expected


@given(
    st.sampled_from(["GET", "PUT", "POST", "DELETE"]),
    TEXT,
    st.dictionaries(TEXT, TEXT | st.just(""), max_size=3),
    st.none() | st.from_regex(r"\A[A-Za-z0-9+/=]{1,30}\Z"),
    st.none() | st.just({"content-type": "text/plain; a=b", "x-tos-forbid-overwrite": "true"}),
)
def test_any_request_is_signed_as_the_sdk_does(
    method: str, key: str, query: dict[str, str], token: str | None, signed: dict[str, str] | None
) -> None:
    credentials = Credentials("AKtest", "SKtest", token)
    sdk = of_the_sdk(method, key, query, credentials, signed)
    lines = ours(method, key, query, credentials, signed)
    assert f"Authorization: {sdk}\r\n" in lines


def test_the_key_of_the_day_is_cached_and_renewed() -> None:
    signer = Signer("cn-test")
    one, other = Credentials("a", "s1"), Credentials("a", "s2")
    moments = [(one, NOW), (other, NOW), (one, NOW + 86_400), (one, NOW), (one, NOW + 1)]
    for credentials, now in moments:
        fresh = Signer("cn-test").headers("GET", "/a", "", HOST, credentials, now)
        assert signer.headers("GET", "/a", "", HOST, credentials, now) == fresh
    assert len({signature(signer.headers("GET", "/a", "", HOST, c, n)) for c, n in moments}) == 4


def test_headers_are_lines_with_the_date_of_the_moment() -> None:
    lines = Signer("cn-test").headers("GET", "/a", "", HOST, Credentials("ak", "sk", "tok"), NOW)
    assert lines.endswith("\r\n")
    assert "x-tos-date: 20260102T030405Z\r\n" in lines
    assert "x-tos-security-token: tok\r\n" in lines
    assert "sk" not in lines.replace("x-tos-security", "")


@given(TEXT)
def test_a_key_is_quoted_byte_by_byte(key: str) -> None:
    plain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.~/"
    assert quote_key(key) == "/" + "".join(chr(b) if chr(b) in plain else f"%{b:02X}" for b in key.encode())


def test_a_key_that_is_no_text_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="UTF-8"):
        quote_key("a\ud800")


@given(st.binary(max_size=200), st.binary(max_size=300))
def test_hmac_is_the_standard_library_s(key: bytes, message: bytes) -> None:
    made = signing._Hmac(key)
    assert made.of(message).digest() == hmac.digest(key, message, "sha256")
    assert made.of(message).hexdigest() == hmac.new(key, message, "sha256").hexdigest()


@pytest.mark.skipif(signing.sha256 is hashlib.sha256, reason="this build of Python has no SHA-256 of its own")
def test_signing_takes_no_lock_of_openssl(monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread of the parent may hold one at the moment of a fork, and the child waits for it for ever."""
    openssl = pytest.importorskip("_hashlib")

    def locked(*arguments: object, **keywords: object) -> None:
        raise AssertionError("OpenSSL was called")

    for name in [name for name in dir(openssl) if name.startswith(("openssl_", "hmac_", "new"))]:
        monkeypatch.setattr(openssl, name, locked)
    for module in (hashlib, hmac):
        for name in ("sha256", "new", "digest"):
            if hasattr(module, name):
                monkeypatch.setattr(module, name, locked)
    with pytest.raises(AssertionError, match="OpenSSL"):
        hmac.digest(b"key", b"message", "sha256")
    signer = Signer("cn-beijing")
    for signed in (None, {"x-tos-forbid-overwrite": "true"}):
        assert "Signature=" in signer.headers("GET", "/key", "", "host", Credentials("ak", "sk"), 1e9, signed)
