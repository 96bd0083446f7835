"""One request of the data plane and everything that may happen to it until it is done: what callers wait on.

A transfer is written by the thread that made it until it is submitted, then by the engine's thread until it is done, then by
whoever waits for it. `done` may be read by anybody at any time.
"""

from __future__ import annotations

import io
import json
import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tosnative import crc64 as crc64_
from tosnative.credentials import CredentialProvider, Credentials
from tosnative.errors import TosAbortedError, TosChangedError, TosError, TosException
from tosnative.meta import TosObjectMeta
from tosnative.metrics import METRICS
from tosnative.ranges import parse_content_range, parse_unsatisfied, range_header
from tosnative.wire.connections import Origin
from tosnative.wire.http1 import Head
from tosnative.wire.retry import Attempts, Failure, Kind, RetryPolicy, is_expired
from tosnative.wire.signing import Signer, quote_key

if TYPE_CHECKING:
    from typing_extensions import Self

    from tosnative.wire.channel import Channel

__all__ = ["Download", "EngineLike", "Target", "Transfer", "Upload"]

# An error's body is read up to here; what follows is cut off with the connection.
MAX_ERROR_BODY = 64 * 1024
# A body of unknown length is taken up to here (the largest object of one PUT is 5 GiB).
MAX_UNSIZED_BODY = 5 << 30


class EngineLike(Protocol):
    """What a transfer asks of the engine that it was submitted to.

    inherited: in a forked child, an engine of the parent's, of which nothing runs here.
    """

    inherited: bool

    def successor(self) -> EngineLike: ...
    def wait(self, transfer: Transfer) -> None: ...
    def cancel(self, transfer: Transfer) -> None: ...
    def abandon(self, transfer: Transfer) -> None: ...
    def submit(self, transfers: Iterable[Transfer]) -> None: ...
    def again(self, transfer: Transfer, failure: Failure) -> None: ...


@dataclass(slots=True, eq=False)
class Target:
    """All that the requests of one client to one bucket have in common.

    request_prefix: what precedes the path in the request line (scheme and host, when a plain proxy is asked).
    constant_headers: header lines that are the same in every request, each ended by CR LF.
    """

    origin: Origin
    host: str
    signer: Signer
    provider: CredentialProvider
    policy: RetryPolicy
    request_prefix: str
    constant_headers: str
    most_in_flight: int | None
    hedge_percent: float
    shorten_switch_interval: bool


class Transfer:
    """The common part of Download and Upload; see the module."""

    __slots__ = (
        "__weakref__",
        "attempts",
        "bucket",
        "channels",
        "credentials",
        "done",
        "engine",
        "error",
        "key",
        "path",
        "settled",
        "target",
        "waiter",
    )
    operation = ""
    hedged = False

    def __init__(self, target: Target, bucket: str, key: str) -> None:
        self.target = target
        self.bucket = bucket
        self.key = key
        self.path = quote_key(key)
        self.done = False
        self.error: TosException | None = None
        self.engine: EngineLike | None = None
        self.attempts: Attempts | None = None
        self.channels: list[Channel] = []  # where it is under way: one, or two while it is hedged
        self.credentials: Credentials | None = None  # those of the last attempt
        self.waiter: threading.Condition | None = None
        self.settled = False  # the engine is through with it, and about to say `done`

    # -- for callers

    def wait(self) -> Self:
        """Return when done. Raises: the error, at every call.

        When the wait itself is interrupted (KeyboardInterrupt), the transfer is cancelled, and the engine has let go of
        every buffer before the interruption goes on.
        """
        if not self.done:
            engine = self.engine
            if engine is None:
                raise RuntimeError("this transfer was never submitted")
            if engine.inherited:
                engine = self._resubmit(engine)
            try:
                engine.wait(self)
            except BaseException:
                self.cancel()
                raise
        if self.error is not None:
            raise self.error
        return self

    def cancel(self) -> None:
        """Stop it. When this returns the engine has let go of its buffers. Idempotent; nothing happens when done."""
        if not self.done and self.engine is not None and not self.engine.inherited:
            self.engine.cancel(self)

    def abandon(self) -> None:
        """Stop it soon, without waiting and without taking a lock (for finalizers)."""
        if not self.done and self.engine is not None and not self.engine.inherited:
            self.engine.abandon(self)

    def _resubmit(self, inherited: EngineLike) -> EngineLike:
        """In a forked child, of a transfer that was under way at the fork: the parent's goes on there, ours starts again."""
        engine = inherited.successor()
        self.channels, self.waiter, self.attempts, self.settled = [], None, None, False
        engine.submit([self])
        return engine

    # -- for the engine

    def request(self, credentials: Credentials, now: float) -> bytes:
        """The request's head, signed at this moment (seconds since 1970)."""
        raise NotImplementedError

    @property
    def body(self) -> memoryview | None:
        """What follows the head."""
        return None

    def accept(self, head: Head) -> memoryview:
        """Where this answer's body goes, as long as the body is. Raises: Failure."""
        raise NotImplementedError

    def finish(self) -> None:
        """The answer's body has arrived where `accept` said. Raises: Failure."""

    def most_unsized(self, head: Head) -> int:
        """The most bytes that a body of unknown length may have."""
        return MAX_ERROR_BODY

    def progressed(self, size: int) -> None:
        """An attempt broke after `size` more bytes of the body had arrived where they belong."""

    def fail(self, error: TosException) -> None:
        """The last word: there is no further attempt."""
        self.error = error

    def cancelled_error(self) -> TosException:
        return TosAbortedError(
            TosError("the transfer was cancelled", operation=self.operation, bucket=self.bucket, key=self.key)
        )


def refusal(head: Head, body: bytes) -> Failure:
    """What an error answer says."""
    details: dict[str, object] = {}
    try:
        parsed = json.loads(body) if body else {}
        details = parsed if isinstance(parsed, dict) else {}
    except ValueError:
        details = {"Message": body[:200].decode("utf-8", "replace")}

    def text(name: str) -> str | None:
        value = details.get(name)
        return value[:1000] if isinstance(value, str) and value else None

    code = text("Code")
    ec = text("EC") or head.get(b"x-tos-ec")
    request_id = head.get(b"x-tos-request-id") or text("RequestId")
    retry_after = head.get(b"retry-after")
    kind = Kind.EXPIRED if head.status == 403 and is_expired(code) else Kind.STATUS
    return Failure(
        kind,
        text("Message") or f"the service answered {head.status}",
        status=head.status,
        code=code,
        ec=ec,
        request_id=request_id,
        retry_after_s=float(retry_after) if retry_after and retry_after.isdigit() and len(retry_after) < 6 else None,
    )


def _unquote(etag: str | None) -> str | None:
    return etag.strip('"') if etag else None


def describe(bucket: str, key: str, head: Head, size: int | None) -> TosObjectMeta:
    """The object as an answer's head describes it. Raises: Failure where its numbers are none."""
    crc = head.headers.get(b"x-tos-hash-crc64ecma")
    if crc is not None and not (crc.isdigit() and len(crc) <= 20):
        raise Failure(Kind.PROTOCOL, f"not a CRC64: {crc[:40]!r}")
    return TosObjectMeta(bucket, key, size, _unquote(head.get(b"etag")), int(crc) if crc else None)


class Download(Transfer):
    """The bytes [start, stop) of an object, clamped to its end; stop None: to its end.

    start 0 and stop None asks without a Range header. After `wait()`: `length` bytes are in `view`, `meta` describes the
    whole object, and `verified` says whether the whole object was received and its CRC64 compared with the service's.
    An attempt that breaks is resumed where it broke, pinned to the first answer's ETag.
    """

    __slots__ = (
        "_buffer",
        "_check",
        "_into",
        "_pin",
        "_refused",
        "_view",
        "got",
        "length",
        "meta",
        "start",
        "stop",
        "verified",
    )
    operation = "GET"
    hedged = True

    def __init__(
        self,
        target: Target,
        bucket: str,
        key: str,
        start: int = 0,
        stop: int | None = None,
        into: memoryview | None = None,
        etag: str | None = None,
        check_crc: bool = True,
    ) -> None:
        Transfer.__init__(self, target, bucket, key)
        self.start = start
        self.stop = stop
        self.length = -1
        self.got = 0
        self.meta: TosObjectMeta = None  # type: ignore[assignment]  # set by the first answer
        self.verified = False
        self._check = check_crc
        self._into = into
        self._pin = etag
        self._buffer: io.BytesIO | None = None
        self._view: memoryview | None = None
        self._refused: tuple[Head, bytearray] | None = None

    # -- for callers

    def wait(self) -> Self:
        while True:
            Transfer.wait(self)
            if self.verified or not self._check or self._intact():
                return self
            METRICS.integrity_failures += 1
            failure = Failure(Kind.CORRUPT, "the CRC64 of the received bytes is not the service's")
            self._restart()
            assert self.engine is not None
            self.engine.again(self, failure)

    def _intact(self) -> bool:
        meta = self.meta
        if meta.crc64 is None or self.length != meta.size:
            return True  # nothing to compare with, or a part: the reader combines the parts' checksums
        self.verified = self.crc64() == meta.crc64
        return self.verified

    def _restart(self) -> None:
        self.got, self.length = 0, -1
        self._view = None

    @property
    def view(self) -> memoryview:
        """The received bytes, writable."""
        if self.length == 0:
            return memoryview(bytearray())
        if self._view is None:
            assert self._buffer is not None
            self._view = self._buffer.getbuffer()
        return self._view

    def getvalue(self) -> bytes:
        """The received bytes, without a copy where the transfer owns the buffer and nobody holds a view of it."""
        if self._buffer is None or self._into is not None:
            return bytes(self.view[: self.length])
        view, self._view = self._view, None
        if view is not None:
            view.release()
        return self._buffer.getvalue()

    def crc64(self) -> int:
        """CRC64 of the received bytes, computed now."""
        if self._buffer is not None and self._view is None:
            return crc64_.update(self._buffer.getvalue())
        return crc64_.update(self.view[: self.length])

    # -- for the engine

    def request(self, credentials: Credentials, now: float) -> bytes:
        target = self.target
        lines = target.signer.headers("GET", self.path, "", target.host, credentials, now)
        start = self.start + self.got
        if start or self.stop is not None:
            lines += f"Range: {range_header(start, self.stop)}\r\n"
        if self._pin is not None:
            lines += f'If-Match: "{self._pin}"\r\n'
        return f"GET {target.request_prefix}{self.path} HTTP/1.1\r\n{lines}{target.constant_headers}\r\n".encode()

    def accept(self, head: Head) -> memoryview:
        status, length = head.status, head.length
        assert length is not None
        if status == 206:
            self._accept_part(head, length)
        elif status == 200:
            self._accept_whole(head, length)
        else:
            refused = bytearray(min(length, MAX_ERROR_BODY))
            self._refused = head, refused
            return memoryview(refused)
        if self._view is None:
            self._view = self._allocate(self.length)
        return self._view[self.got : self.length]

    def _allocate(self, size: int) -> memoryview:
        if self._into is not None:
            return self._into[:size]
        # Sized first, filled in place, and handed out by getvalue() without a copy.
        self._buffer = buffer = io.BytesIO()
        if size:
            buffer.seek(size - 1)
            buffer.write(b"\0")
        return buffer.getbuffer()

    def _accept_whole(self, head: Head, length: int) -> None:
        if self.start + self.got:
            raise Failure(Kind.PROTOCOL, "asked for a range, the service sent the whole object")
        if self.stop is not None and length > self.stop:
            raise Failure(Kind.PROTOCOL, f"asked for {self.stop} bytes, the service sends {length}")
        self._describe(head, length)
        self.length = length

    def _accept_part(self, head: Head, length: int) -> None:
        if not self.start and not self.got and self.stop is None:
            raise Failure(Kind.PROTOCOL, "asked for the whole object, the service sent a part")
        try:
            start, stop, size = parse_content_range(head.get(b"content-range") or "")
        except ValueError as error:
            raise Failure(Kind.PROTOCOL, str(error)) from None
        end = size if self.stop is None else min(self.stop, size)
        if start != self.start + self.got or stop != end or length != stop - start:
            raise Failure(
                Kind.PROTOCOL,
                f"asked for [{self.start + self.got}, {end}), the service sends [{start}, {stop}) in {length} bytes",
            )
        self._describe(head, size)
        self.length = end - self.start

    def _describe(self, head: Head, size: int) -> None:
        meta = describe(self.bucket, self.key, head, size)
        if self._pin is not None and meta.etag is not None and meta.etag != self._pin:
            raise self._changed("another ETag came than was asked for")
        if self.meta is not None and self.got and (meta.etag != self.meta.etag or size != self.meta.size):
            raise self._changed("it was replaced while it was read")
        self.meta = meta
        if self._pin is None:
            self._pin = meta.etag

    def _changed(self, how: str) -> Failure:
        hint = "read it again from the start"
        return Failure(Kind.CHANGED, how, exception=TosChangedError(TosError(f"the object changed: {how}", hint=hint)))

    def finish(self) -> None:
        if self._refused is None:
            self.got = self.length
            METRICS.bytes_received += self.length
            if self._into is None:
                self._view = None
            return
        (head, body), self._refused = self._refused, None
        if head.status == 416 and (size := parse_unsatisfied(head.get(b"content-range") or "")) is not None:
            if size <= self.start and not self.got:
                self.meta = describe(self.bucket, self.key, head, size)
                self.length = 0
                return
        failure = refusal(head, bytes(body))
        if head.status == 412:
            failure = self._changed("it is no longer the version that was asked for")
            failure.status, failure.request_id = 412, head.get(b"x-tos-request-id")
        raise failure

    def progressed(self, size: int) -> None:
        self.got += size
        self._refused = None

    def most_unsized(self, head: Head) -> int:
        if head.status not in (200, 206):
            return MAX_ERROR_BODY
        return MAX_UNSIZED_BODY if self.stop is None else self.stop - self.start

    def fail(self, error: TosException) -> None:
        self.error = error
        self._view = self._buffer = None


class Upload(Transfer):
    """One PUT, of an object or a part. After `wait()`: `etag` and `crc64` are what the service answered.

    `data` must stay as it is until the transfer is done. A crc64 that is given and differs from the answer's is a failed attempt.
    """

    __slots__ = ("_data", "_headers", "_query", "_refused", "_sent_crc", "_signed", "crc64", "etag")
    operation = "PUT"

    def __init__(
        self,
        target: Target,
        bucket: str,
        key: str,
        data: memoryview,
        crc64: int | None = None,
        query: str = "",
        signed: dict[str, str] | None = None,
    ) -> None:
        Transfer.__init__(self, target, bucket, key)
        self._data = data
        self._query = query
        self._signed = signed
        self._sent_crc = crc64
        self._headers: Head | None = None
        self._refused = bytearray()
        self.etag = ""
        self.crc64: int | None = None

    @property
    def body(self) -> memoryview | None:
        return self._data if self._data.nbytes else None

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
            f"PUT {target.request_prefix}{self.path}{query} HTTP/1.1\r\n{lines}Content-Length: {self._data.nbytes}\r\n"
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
        meta = describe(self.bucket, self.key, head, self._data.nbytes)
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
        METRICS.bytes_sent += self._data.nbytes
