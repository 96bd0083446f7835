"""One version of one object: what a reader pinned with its first answer, and what has been checked of it since."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

import tosnative.crc64 as crc64_
from tosnative.errors import TosChangedError, TosError, TosIntegrityError
from tosnative.metrics import METRICS

if TYPE_CHECKING:
    from tosnative.client import Download, TosClient

__all__ = ["ObjectVersion"]


class ObjectVersion:
    """Makes the requests for an object, all but the first with If-Match, and adds up the checksums of what came.

    Before the first answer (`pinned` False) size, etag and crc64 are what a listing said, or None; afterwards they are this
    version's. With `pin`, the listing's ETag already binds the first request.
    verified: every byte of the object has arrived, and their CRC64 is the one that the service keeps for the object.
    """

    __slots__ = (
        "_damage",
        "_forgiven",
        "_match",
        "_sums",
        "bucket",
        "check",
        "client",
        "crc64",
        "etag",
        "key",
        "pinned",
        "size",
        "verified",
    )

    def __init__(
        self,
        client: TosClient,
        bucket: str,
        key: str,
        size: int | None,
        etag: str | None,
        crc64: int | None,
        check: bool,
        pin: bool,
    ) -> None:
        self.client = client
        self.bucket = bucket
        self.key = key
        self.size = size
        self.etag = etag
        self.crc64 = crc64
        self.check = check
        self.pinned = False
        self.verified = False
        self._match = etag if pin else None
        self._sums: list[tuple[int, int, int]] | None = None
        self._damage: TosIntegrityError | None = None
        self._forgiven = False

    @property
    def binding(self) -> str | None:
        """The ETag that every request from now on carries."""
        return self._match

    def whole(self) -> Download:
        """A download of the whole object without a Range, not submitted yet; its first part, if it has grown past one."""
        download = self.client.download(self.bucket, self.key, etag=self._match, check_crc=self.check)
        download.most = self.client.config.part_size
        return download

    def range(self, start: int, stop: int, into: memoryview | None = None) -> Download:
        """A download of [start, stop), not submitted yet. Raises: TosIntegrityError once the object was found damaged."""
        if self._damage is not None:
            raise self._damage
        return self.client.download(
            self.bucket, self.key, start, stop, into=into, etag=self._match, check_crc=self.check
        )

    def forgive(self) -> bool:
        """After damage was found, once: forget what came, so that all of it may be asked for again. Returns whether it may."""
        if self._damage is None or self._forgiven:
            return False
        self._sums = self._damage = None
        self._forgiven = True
        return True

    def learn(self, download: Download) -> None:
        """Take note of a download that is done; to be called once for each, while its bytes are in place.

        Raises: TosChangedError where it is of another version, TosIntegrityError where the object's bytes have all come and
        do not have the object's CRC64.
        """
        meta = download.meta
        if not self.pinned:
            # A listing's checksum still counts for the version that was listed.
            listed = self.crc64 if meta.etag is not None and meta.etag == self.etag else None
            self.size, self.etag = meta.size, meta.etag or self._match
            self.crc64 = listed if meta.crc64 is None else meta.crc64
            # An answer about no bytes at all (416) may come without an ETag; then the next one pins.
            self.pinned = meta.size is not None and (meta.etag is not None or download.length > 0 or meta.size == 0)
            self._match = self._match or meta.etag
        elif meta.size != self.size or meta.etag != self.etag:
            text = "the object was replaced while it was read"
            raise TosChangedError(
                TosError(text, operation="GET", bucket=self.bucket, key=self.key, hint="read it again")
            )
        if download.verified:
            self.verified = True
        elif self.check and self.crc64 is not None and not self.verified and download.length:
            self._add(download.start, download.start + download.length, download)

    def _add(self, start: int, stop: int, download: Download) -> None:
        """Invariant: _sums is sorted; its ranges neither overlap nor touch. What overlaps is left out, and with it `verified`."""
        sums = self._sums
        if sums is None:
            sums = self._sums = []
        at = bisect_left(sums, (start,))
        if (at and sums[at - 1][1] > start) or (at < len(sums) and sums[at][0] < stop):
            return
        crc = download.crc64()
        if at and sums[at - 1][1] == start:
            at -= 1
            first = sums.pop(at)
            start, crc = first[0], crc64_.combine(first[2], crc, stop - start)
        if at < len(sums) and sums[at][0] == stop:
            last = sums.pop(at)
            crc, stop = crc64_.combine(crc, last[2], last[1] - stop), last[1]
        sums.insert(at, (start, stop, crc))
        if start == 0 and stop == self.size:
            self._compare(crc)

    def _compare(self, crc: int) -> None:
        self._sums = None
        if crc == self.crc64:
            self.verified = True
            return
        METRICS.integrity_failures += 1
        text = f"all {self.size} bytes came, with CRC64 {crc} where the service keeps {self.crc64}; do not use what was read"
        self._damage = TosIntegrityError(TosError(text, operation="GET", bucket=self.bucket, key=self.key))
        raise self._damage
