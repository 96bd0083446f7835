"""A PUT of an object or of a part, checked by the CRC64 that the service answers."""

from __future__ import annotations

from collections.abc import Sequence

from tosnative.credentials import Credentials
from tosnative.errors import TosAbortedError, TosError
from tosnative.metrics import METRICS
from tosnative.wire.answers import describe, refusal
from tosnative.wire.http1 import Head, check_header_value
from tosnative.wire.retry import Failure, Kind
from tosnative.wire.targets import Target
from tosnative.wire.transfer import MAX_ERROR_BODY, EngineLike, Transfer

__all__ = ["Upload", "write_headers"]


class Upload(Transfer):
    """One PUT, of an object or a part. After `wait()`: `etag` and `crc64` are what the service answered.

    `data`, one buffer or its pieces one after the other, must stay as it is until the transfer is done. A crc64 that is given
    and differs from the answer's is a failed attempt.
    """

    __slots__ = ("_headers", "_pieces", "_query", "_refused", "_sent_crc", "_signed", "_size", "crc64", "etag")
    operation = "PUT"

    def __init__(
        self,
        target: Target,
        bucket: str,
        key: str,
        data: bytes | bytearray | memoryview | Sequence[memoryview],
        crc64: int | None = None,
        query: str = "",
        signed: dict[str, str] | None = None,
    ) -> None:
        Transfer.__init__(self, target, bucket, key)
        pieces = (memoryview(data),) if isinstance(data, bytes | bytearray | memoryview) else data
        self._pieces = tuple(piece.cast("B") for piece in pieces if piece.nbytes)
        self._size = sum(len(piece) for piece in self._pieces)
        self._query = query
        self._signed = signed
        self._sent_crc = crc64
        self._headers: Head | None = None
        self._refused = bytearray()
        self.etag = ""
        self.crc64: int | None = None

    @property
    def body(self) -> tuple[memoryview, ...]:
        return self._pieces

    def _resubmit(self, inherited: EngineLike) -> EngineLike:
        raise TosAbortedError(
            TosError(
                "this upload belongs to the process that forked", operation="PUT", bucket=self.bucket, key=self.key
            )
        )

    def request(self, credentials: Credentials, now: float) -> bytes:
        target = self.target
        lines = target.signer.headers("PUT", self.path, self._query, target.host, credentials, now, self._signed)
        query = f"?{self._query}" if self._query else ""
        return (
            f"PUT {target.request_prefix}{self.path}{query} HTTP/1.1\r\n{lines}Content-Length: {self._size}\r\n"
            f"{target.constant_headers}\r\n"
        ).encode()

    def accept(self, head: Head) -> memoryview:
        assert head.length is not None
        self._headers = head
        self._refused = bytearray(min(head.length, MAX_ERROR_BODY))
        return memoryview(self._refused)

    def finish(self) -> None:
        head = self._headers
        assert head is not None
        if head.status != 200:
            raise refusal(head, bytes(self._refused))
        meta = describe(self.bucket, self.key, head, self._size)
        if meta.etag is None:
            raise Failure(
                Kind.PROTOCOL,
                "the service acknowledged an upload without an ETag",
                request_id=head.get(b"x-tos-request-id"),
            )
        if self._sent_crc is not None and meta.crc64 is not None and meta.crc64 != self._sent_crc:
            METRICS.integrity_failures += 1
            text = f"sent bytes with CRC64 {self._sent_crc}, the service received {meta.crc64}"
            raise Failure(Kind.CORRUPT, text, request_id=head.get(b"x-tos-request-id"))
        self.etag, self.crc64 = meta.etag, meta.crc64
        METRICS.bytes_sent += self._size


def write_headers(content_type: str | None, forbid_overwrite: bool) -> dict[str, str]:
    """The signed headers of a request that makes an object."""
    headers = {"x-tos-forbid-overwrite": "true"} if forbid_overwrite else {}
    if content_type is not None:
        headers["content-type"] = check_header_value("content_type", content_type)
    return headers
