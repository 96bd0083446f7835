"""A GET on a bucket whose answer is a document, such as a page of a listing, through the engine.

The official SDK spends tens of microseconds on each listed key (it builds an object and parses a date for each); a listing of a
million keys is worth more care.
"""

from __future__ import annotations

from tosnative.credentials import Credentials
from tosnative.wire.answers import refusal
from tosnative.wire.http1 import Head
from tosnative.wire.retry import Failure, Kind
from tosnative.wire.signing import canonical_query
from tosnative.wire.targets import Target
from tosnative.wire.transfer import MAX_ERROR_BODY, Transfer

__all__ = ["Query"]

# A page of 1,000 keys of 1 KiB each with all their fields stays below 3 MiB.
_MAX_DOCUMENT = 16 << 20


class Query(Transfer):
    """GET /?query. After `wait()`, `document` is the answer's body."""

    __slots__ = ("_head", "_query", "document")
    operation = "LIST"

    def __init__(self, target: Target, bucket: str, prefix: str, query: dict[str, str]) -> None:
        Transfer.__init__(self, target, bucket, prefix)
        self.path = "/"
        self._query = canonical_query(query)
        self._head: Head | None = None
        self.document = bytearray()

    def request(self, credentials: Credentials, now: float) -> bytes:
        target = self.target
        lines = target.signer.headers("GET", "/", self._query, target.host, credentials, now)
        return f"GET {target.request_prefix}/?{self._query} HTTP/1.1\r\n{lines}{target.constant_headers}\r\n".encode()

    def accept(self, head: Head) -> memoryview:
        assert head.length is not None
        if head.status == 200 and head.length > _MAX_DOCUMENT:
            raise Failure(Kind.PROTOCOL, f"a document of {head.length} bytes, more than {_MAX_DOCUMENT}")
        self._head = head
        self.document = bytearray(head.length if head.status == 200 else min(head.length, MAX_ERROR_BODY))
        return memoryview(self.document)

    def most_unsized(self, head: Head) -> int:
        return _MAX_DOCUMENT if head.status == 200 else MAX_ERROR_BODY

    def finish(self) -> None:
        assert self._head is not None
        if self._head.status != 200:
            raise refusal(self._head, bytes(self.document))
