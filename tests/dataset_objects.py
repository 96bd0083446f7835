"""What the tests of datasets share: objects whose bytes tell their key, and transforms that other processes can import."""

import hashlib
from collections import Counter
from typing import Any

from tosnative.config import TosClientConfig
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos

Sample = tuple[str, bytes]


def connection(tos: LocalTos) -> dict[str, Any]:
    """The keywords by which a dataset reaches this server. No request is raced, so that they can be counted."""
    config = TosClientConfig(hedge_percent=0)
    return {"region": tos.region, "endpoint": tos.endpoint, "cred": tos.cred, "client_conf": config}


def content(key: str, size: int) -> bytes:
    """Bytes that no other key has."""
    seed = hashlib.sha256(key.encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]


def fill(tos: LocalTos, prefix: str, count: int, size: int = 100) -> dict[str, bytes]:
    """Store `count` objects under the prefix; returns them by key."""
    objects = {f"{prefix}{number:04d}": content(f"{prefix}{number:04d}", size) for number in range(count)}
    for key, data in objects.items():
        tos.put(tos.bucket, key, data)
    return objects


def key_and_bytes(reader: TosObjectReader) -> Sample:
    return reader.key, reader.read()


def key_only(reader: TosObjectReader) -> str:
    return reader.key


def as_is(batch: Any) -> Any:
    return batch


def asked(tos: LocalTos) -> Counter[str]:
    """Requests by kind: LIST, or the method of those that name an object."""
    return Counter("LIST" if request.key is None else request.method for request in tos.requests)
