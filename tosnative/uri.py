"""tos://bucket/key: the only place that splits, checks or builds one."""

from __future__ import annotations

import functools
import re

__all__ = ["SCHEME", "check_bucket", "check_key", "format_uri", "join_key", "parse_tos_url", "parse_uri"]

SCHEME = "tos://"
# 3 to 63 of a-z, 0-9 and '-', no '-' at either end: the rule that the official SDK checks.
_BUCKET = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")


def parse_uri(uri: str) -> tuple[str, str]:
    """Split `tos://bucket/key` or `bucket/key` into (bucket, key); key is "" where the URI names a bucket alone.

    The key is taken as it stands: nothing is unquoted, a '?' or '#' belongs to it, and a second slash begins it
    (`tos://bucket//a` is the key `/a`).

    Raises: ValueError for another scheme, or a bucket name that TOS does not allow.
    """
    if not isinstance(uri, str):
        raise TypeError(f"a TOS URI is a str like tos://bucket/key, not {type(uri).__name__}")
    rest = uri
    found = _SCHEME.match(uri)
    if found:
        if found.group().lower() != SCHEME:
            raise ValueError(f"{uri!r} is not a TOS URI: expected tos://bucket/key, not the scheme {found.group()!r}")
        rest = uri[len(SCHEME) :]
    bucket, _, key = rest.partition("/")
    try:
        check_bucket(bucket)
    except ValueError as error:
        raise ValueError(f"{uri!r} is not a TOS URI (tos://bucket/key): {error}") from None
    return bucket, key


def parse_tos_url(url: str) -> tuple[str, str]:
    """Split a URL into (bucket, key): `parse_uri` under the name that tostorchconnector gives it."""
    return parse_uri(url)


@functools.lru_cache(maxsize=1024)
def check_bucket(bucket: str) -> str:
    """Return the bucket's name. Raises: ValueError where TOS does not allow it."""
    if not _BUCKET.fullmatch(bucket):
        raise ValueError(
            f"bucket name {bucket!r} is not 3 to 63 characters of a-z, 0-9 and '-', without '-' at its ends"
        )
    return bucket


def check_key(bucket: str, key: str) -> str:
    """Return the object's key. Raises: ValueError where it is empty or cannot be written as UTF-8."""
    if not key:
        raise ValueError(f"tos://{bucket}/ names a bucket; an object's key is missing")
    try:
        key.encode()
    except UnicodeEncodeError:
        raise ValueError(f"the key {key!r} of bucket {bucket!r} cannot be written as UTF-8") from None
    return key


def format_uri(bucket: str, key: str = "") -> str:
    """The inverse of `parse_uri`."""
    return f"{SCHEME}{bucket}/{key}"


def join_key(prefix: str, *names: str) -> str:
    """Join names under a prefix with single slashes: join_key("a/", "b") == join_key("a", "b") == "a/b"."""
    key = prefix
    for name in names:
        key = f"{key.rstrip('/')}/{name.lstrip('/')}" if key else name.lstrip("/")
    return key
