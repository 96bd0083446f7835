"""Which bucket and key a request is for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.testing.http import BadRequest
from tosnative.testing.routing import Router, parse_query

ROUTER = Router(("localhost", "tos.local"))


@pytest.mark.parametrize(
    ("host", "target", "bucket", "key", "path_style"),
    [
        ("bkt.localhost:8080", "/a/b", "bkt", "a/b", False),
        ("bkt.tos.local", "/", "bkt", None, False),
        ("bkt.any.name.example:80", "/k", "bkt", "k", False),
        ("bkt.127.0.0.1:9000", "/k", "bkt", "k", False),
        ("bkt.[::1]:9000", "/k", "bkt", "k", False),
        ("bkt.tos-cn-beijing.volces.com", "/k", "bkt", "k", False),
        ("bkt.localhost.", "/k", "bkt", "k", False),
        ("127.0.0.1:9000", "/bkt/a/b", "bkt", "a/b", True),
        ("127.0.0.1", "/bkt", "bkt", None, True),
        ("127.0.0.1", "/bkt/", "bkt", None, True),
        ("[::1]:9000", "/bkt/k", "bkt", "k", True),
        ("[::1]", "/bkt/k", "bkt", "k", True),
        ("LOCALHOST:1", "/bkt/k", "bkt", "k", True),
        ("tos.local", "/", None, None, True),
        ("tos-cn-beijing.volces.com", "/", None, None, True),
        ("storage", "/bkt/k", "bkt", "k", True),
        ("127.0.0.1:9000/bkt", "/bkt/a/b", "bkt", "a/b", False),
        ("127.0.0.1:9000/bkt", "/bkt", "bkt", None, False),
        ("bkt.localhost", "//lead", "bkt", "/lead", False),
        ("bkt.localhost", "/a//b/../c/", "bkt", "a//b/../c/", False),
        ("bkt.localhost", "/%E4%B8%AD+a%2Bb%2F", "bkt", "中+a+b/", False),
        ("bkt.localhost", "http://bkt.localhost/k?x=y", "bkt", "k", False),
        ("bkt.localhost", "http://bkt.localhost", "bkt", None, False),
        ("", "https://bkt.tos.local:80/k", "bkt", "k", False),
    ],
)
def test_routes(host, target, bucket, key, path_style):
    route = ROUTER.route(target, host)
    assert (route.bucket, route.key, route.path_style) == (bucket, key, path_style)
    assert ROUTER.route(target, host) == route


@pytest.mark.parametrize("target", ["*", "key", "ftp://bkt.localhost/k", "/%FF", "/a%80"])
def test_unroutable_targets(target):
    with pytest.raises(BadRequest):
        ROUTER.route(target, "bkt.localhost")


def test_query_decoding():
    query = parse_query("a+b=c%2Bd&uploads&x=&y=1=2&&%E4%B8%AD=%7E&x=last")
    assert query == {"a b": "c+d", "uploads": "", "x": "last", "y": "1=2", "中": "~"}


@given(st.text(min_size=1).filter(lambda key: not any(0xD800 <= ord(c) < 0xE000 for c in key)))
def test_every_key_survives_its_encoding(key):
    from urllib.parse import quote

    assert ROUTER.route("/" + quote(key, safe="/-_.~"), "bkt.localhost").key == key
