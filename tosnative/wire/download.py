"""A GET of an object or of a range of it: received in place, resumed where it broke, checked."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import tosnative.crc64 as crc64_
from tosnative.credentials import Credentials
from tosnative.errors import TosChangedError, TosError, TosException
from tosnative.meta import TosObjectMeta
from tosnative.metrics import METRICS
from tosnative.ranges import parse_content_range, parse_unsatisfied, range_header
from tosnative.wire.answers import describe, refusal
from tosnative.wire.http1 import Head, check_header_value
from tosnative.wire.retry import Failure, Kind
from tosnative.wire.targets import Target
from tosnative.wire.transfer import MAX_ERROR_BODY, Transfer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Download"]

# A body of unknown length is taken up to here (the largest object of one PUT is 5 GiB).
MAX_UNSIZED_BODY = 5 << 30


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
        "most",
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
        # Where the whole object was asked for and is longer than this, so much of it is taken, as if that had been asked for.
        self.most: int | None = None
        self.meta: TosObjectMeta = None  # type: ignore[assignment]  # set by the first answer
        self.verified = False
        self._check = check_crc
        self._into = into
        self._pin = None if etag is None else check_header_value("etag", etag)
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
            if self.engine.inherited:
                self.done = False
                self._resubmit(self.engine)
            else:
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
            try:
                view.release()
            except BufferError:  # somebody holds an array on it
                self._view = view
                return bytes(view)
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
            if size > self._into.nbytes:
                raise Failure(Kind.FINAL, f"{size} bytes do not fit into the buffer of {self._into.nbytes}")
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
        if self.stop is None and self.most is not None and length > self.most:
            self.stop = self.most
        self.length = length if self.stop is None else min(length, self.stop)

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
        if self.meta is not None and self.got and meta.etag != self.meta.etag:
            raise self._changed("it was replaced while it was read")
        if self.meta is not None and self.got and size != self.meta.size:
            before = self.meta.size
            self._restart()  # one of the two answers was wrong, and what came may be too
            raise Failure(Kind.PROTOCOL, f"the same version has {size} bytes, an answer before said {before}")
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
        told = head.get(b"content-range") if head.status == 416 else None
        size = parse_unsatisfied(told or "")
        if told is not None and (size is None or size > self.start + self.got):
            raise Failure(Kind.PROTOCOL, f"not a 416 for byte {self.start + self.got}: {told[:100]!r}")
        if size is not None and size <= self.start and not self.got:
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
        self._view = self._buffer = self._into = None
