"""The local server's signature check, against vectors computed elsewhere and against the official SDK's signatures."""

import calendar
import time

import pytest

from tosnative.testing.auth import Verifier, canonical_query
from tosnative.testing.errors import ServiceError
from tosnative.testing.messages import Request, ServerOptions
from tosnative.testing.routing import Router

DATE = "20260102T030405Z"
NOW = calendar.timegm(time.strptime(DATE, "%Y%m%dT%H%M%SZ"))
HOST = "bkt.localhost:8080"
UNSIGNED = {"x-tos-content-sha256": "UNSIGNED-PAYLOAD"}
SCOPE = "AKtest/20260102/cn-test/tos/request"

VECTORS = {
    "python-list": (
        "GET",
        "/?list-type=2&prefix=a+b%2F%2B%E4%B8%AD&delimiter=%2F&uploads",
        UNSIGNED,
        "3cbccdb8fe27084120699859a789caa4e69de2ebae22e1bc5f07100992d6c0a1",
    ),
    "python-put": (
        "PUT",
        "/d/%E4%B8%AD%20a%2Bb~.txt",
        {"content-type": "text/plain", "x-tos-meta-a": "1", **UNSIGNED},
        "6139b4fe475835d78b57b53b37ac5fc8e359abc1a4ef248a5973ab0fe54ea45b",
    ),
    "rust-head": ("HEAD", "/", {}, "47755bdd9654d6b31cfc094bc5c8bbcdb6b601f8a8f8a32e3f69b97769d29914"),
    "rust-token": (
        "GET",
        "/?continuation-token=d%2Fe&list-type=2",
        {"x-tos-security-token": "STStok/+="},
        "a6fc5b4cb4c7d55912b882ea54fa5f7f9871e5fc303a9090ba29504ed5af0fb9",
    ),
}
PRESIGNED = (
    "/a%20b.txt?versionId=v%201&X-Tos-Algorithm=TOS4-HMAC-SHA256"
    "&X-Tos-Credential=AKtest%2F20260102%2Fcn-test%2Ftos%2Frequest"
    "&X-Tos-Date=20260102T030405Z&X-Tos-Expires=60&X-Tos-SignedHeaders=host"
    "&X-Tos-Signature=7ef0270771df8a62fa8c6ef32e44297b237a4220df37cf8119ac328848c707ff"
)


def request_of(method, target, headers, host=HOST):
    headers = {"host": host, **headers}
    route = Router(("localhost",)).route(target, host)
    return Request(method, route.bucket, route.key, route.query, headers, path_style=route.path_style)


def signed(name, separator=", ", **extra):
    method, target, headers, signature = VECTORS[name]
    headers = {"x-tos-date": DATE, **headers}
    names = ";".join(sorted(["host", *headers]))
    parts = [f"TOS4-HMAC-SHA256 Credential={SCOPE}", f"SignedHeaders={names}", f"Signature={signature}"]
    return request_of(method, target, {**headers, "authorization": separator.join(parts), **extra})


def verify(request, now=NOW, token=None, **options):
    credentials = {"AKtest": ("SKtest", token), "AKother": ("SKother", None)}
    Verifier(ServerOptions(credentials=credentials, **options), clock=lambda: now).verify(request)


def refused(request, **options):
    with pytest.raises(ServiceError) as caught:
        verify(request, **options)
    assert caught.value.status == 403
    return caught.value


def token_of(name):
    return VECTORS[name][2].get("x-tos-security-token")


@pytest.mark.parametrize("separator", [", ", ","], ids=["python-rust", "go"])
@pytest.mark.parametrize("name", VECTORS)
def test_known_signatures_are_accepted(name, separator):
    verify(signed(name, separator), token=token_of(name))


def test_known_presigned_url_is_accepted_until_it_expires():
    request = request_of("GET", PRESIGNED, {"range": "bytes=0-1", "x-extra": "fine"})
    verify(request, now=NOW + 60)
    assert refused(request, now=NOW + 61).code == "AccessDenied"
    verify(request, now=NOW + 10**6, check_dates=False)


@pytest.mark.parametrize("name", VECTORS)
def test_a_changed_request_is_refused(name):
    for change in ({"key": "other"}, {"query": {"x": "y"}}, {"method": "DELETE"}):
        request = signed(name)
        for attribute, value in change.items():
            setattr(request, attribute, value)
        error = refused(request, token=token_of(name))
        assert error.code == "SignatureDoesNotMatch"
        assert error.extra["StringToSign"].startswith(f"TOS4-HMAC-SHA256\n{DATE}\n")
        assert error.extra["canonical_request"].startswith(f"{request.method}\n/")


def test_signature_errors_show_what_was_to_be_signed():
    request = signed("python-put")
    request.headers["x-tos-meta-a"] = "2"
    error = refused(request)
    assert error.extra["canonical_request"] == (
        "PUT\n/d/%E4%B8%AD%20a%2Bb~.txt\n\ncontent-type:text/plain\nhost:bkt.localhost:8080\n"
        "x-tos-content-sha256:UNSIGNED-PAYLOAD\nx-tos-date:20260102T030405Z\nx-tos-meta-a:2\n\n"
        "content-type;host;x-tos-content-sha256;x-tos-date;x-tos-meta-a\nUNSIGNED-PAYLOAD"
    )


@pytest.mark.parametrize("minutes", [-14.9, 0, 14.9])
def test_clocks_may_differ_by_fifteen_minutes(minutes):
    verify(signed("rust-head"), now=NOW + minutes * 60)


@pytest.mark.parametrize("minutes", [-16, 16])
def test_clocks_may_not_differ_by_more(minutes):
    assert refused(signed("rust-head"), now=NOW + minutes * 60).code == "RequestTimeTooSkewed"
    verify(signed("rust-head"), now=NOW + minutes * 60, check_dates=False)


def test_a_presigned_url_from_the_future_is_refused():
    assert refused(request_of("GET", PRESIGNED, {}), now=NOW - 16 * 60).code == "RequestTimeTooSkewed"


def test_the_token_must_be_the_right_one():
    assert refused(signed("rust-token"), token=None).code == "InvalidSecurityToken"
    assert refused(signed("rust-token"), token="another").code == "InvalidSecurityToken"
    assert refused(signed("rust-head"), token="wanted").code == "InvalidSecurityToken"


def test_strangers_and_anonymous_requests_are_refused():
    request = signed("rust-head")
    request.headers["authorization"] = request.headers["authorization"].replace("AKtest", "AKnobody")
    assert refused(request).code == "InvalidAccessKeyId"
    assert refused(request_of("GET", "/key", {})).code == "AccessDenied"


def test_another_key_pair_cannot_use_the_signature():
    request = signed("rust-head")
    request.headers["authorization"] = request.headers["authorization"].replace("AKtest", "AKother")
    assert refused(request).code == "SignatureDoesNotMatch"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("cn-test", "cn-elsewhere"),
        ("/tos/", "/s3/"),
        ("20260102/", "20260103/"),
        ("TOS4-HMAC-SHA256", "AWS4-HMAC-SHA256"),
        ("host;", ""),
        ("SignedHeaders=host", "SignedHeaders=absent;host"),
        ("Signature=4", "Signature=X"),
        ("/request", ""),
    ],
)
def test_malformed_authorizations_are_refused_in_words(old, new):
    request = signed("rust-head")
    assert old in request.headers["authorization"]
    request.headers["authorization"] = request.headers["authorization"].replace(old, new)
    error = refused(request)
    assert error.code == "AccessDenied"
    assert "cannot be used" in error.message


@pytest.mark.parametrize("date", ["", "2026-01-02", "20261302T030405Z", "Fri, 02 Jan 2026 03:04:05 GMT"])
def test_dates_that_are_none_are_refused(date):
    request = signed("rust-head")
    request.headers["x-tos-date"] = date
    request.headers["authorization"] = request.headers["authorization"].replace("20260102", date[:8] or "20260102")
    assert refused(request).code == "AccessDenied"


@pytest.mark.parametrize("expires", ["0", "604801", "-5", "1e3", ""])
def test_presigned_expiry_is_bounded(expires):
    target = PRESIGNED.replace("X-Tos-Expires=60", f"X-Tos-Expires={expires}")
    assert refused(request_of("GET", target, {})).code == "AccessDenied"


def test_path_style_is_signed_with_or_without_the_bucket():
    import hashlib
    import hmac

    def authorization(path):
        canonical = (
            f"GET\n{path}\n\nhost:127.0.0.1:8080\nx-tos-date:{DATE}\n\nhost;x-tos-date\n{hashlib.sha256().hexdigest()}"
        )
        key = b"SKtest"
        for step in ("20260102", "cn-test", "tos", "request"):
            key = hmac.digest(key, step.encode(), "sha256")
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        text = f"TOS4-HMAC-SHA256\n{DATE}\n20260102/cn-test/tos/request\n{digest}"
        proof = hmac.digest(key, text.encode(), "sha256").hex()
        return f"TOS4-HMAC-SHA256 Credential={SCOPE}, SignedHeaders=host;x-tos-date, Signature={proof}"

    for path in ("/bkt/a/b", "/a/b"):
        headers = {"x-tos-date": DATE, "authorization": authorization(path)}
        verify(request_of("GET", "/bkt/a/b", headers, host="127.0.0.1:8080"))
    headers = {"x-tos-date": DATE, "authorization": authorization("/b")}
    assert refused(request_of("GET", "/bkt/a/b", headers, host="127.0.0.1:8080")).code == "SignatureDoesNotMatch"


def test_canonical_query_sorts_by_decoded_name():
    query = {"b": "1", "a b": "/", "a": "", "X-Tos-Signature": "s", "中": "~"}
    assert canonical_query(query) == "a=&a%20b=%2F&b=1&%E4%B8%AD=~"
