"""TosObjectReader: the io protocol over one object, once, for every way of getting its bytes."""

from __future__ import annotations

import os
from operator import index
from typing import TYPE_CHECKING, Any

from tosnative.buffers import as_bytes
from tosnative.config import ReaderType
from tosnative.content import ObjectContent

if TYPE_CHECKING:
    from tosnative.client import TosClient

__all__ = ["TosObjectReader"]

_CHUNK = 64 * 1024  # what readline looks through at a time
_Buffer = Any  # typing knows no name for "whatever has the buffer protocol" before Python 3.12


class TosObjectReader(ObjectContent):
    """An object's bytes as a file, open for reading: behaves as io.BytesIO on the same bytes does.

    Never a short read except at the end, and never a byte of another version: the first answer pins the object's ETag, and a
    version that replaces it while it is read makes the next request raise TosChangedError. An object that was overwritten
    after it was listed is read as it is now; with `pin` that raises TosChangedError too.

    What it holds: an object of at most one part whole; otherwise SEQUENTIAL up to 19 parts of its read-ahead
    (config.shared_prefetch_tasks + 3), RANGED one window of `buffer_size`, DIRECT nothing.
    `buffer_size` is in bytes, of RANGED readers only, and one part by default.

    One thread at a time; it may be handed from thread to thread, to a forked process, and, pickled, to another process, where
    it reads on from the same position of the same version.
    After an error the position is where it was, and the call can be repeated. Any call after close() raises ValueError.
    """

    # -- reading

    def read(self, size: int | None = -1, /) -> bytes:
        """The next `size` bytes, fewer only at the object's end; all that is left where size is negative or None.

        Raises: TosException kinds; ValueError after close(). Right after a readinto() that failed, for as many bytes as that
        asked for, it raises that failure again: torch.load calls it so, and would report something else.
        """
        failure = self._failure
        if failure is not None:
            self._failure = None
            if failure[1] == size:
                raise failure[0]
        self._check_open()
        want = -1 if size is None else index(size)
        if not self._version.pinned:
            self._pin(want)
        left = max(0, self._total() - self._pos)
        want = left if want < 0 else min(want, left)
        if want == 0:
            return b""
        data = self._bytes(self._pos, want)
        self._pos += want
        return data

    def read1(self, size: int | None = -1, /) -> bytes:
        """The same as read()."""
        return self.read(size)

    def readinto(self, buffer: _Buffer, /) -> int:
        """Fill a writable contiguous buffer of any item type; return the number of bytes, fewer than it holds only at the end.

        Large reads are received straight into the buffer, in parallel ranges. When it raises, nothing writes into the buffer
        any more; what the buffer holds then is undefined, and the position is unchanged.
        """
        self._failure = None
        self._check_open()
        view = as_bytes(buffer, writable=True)
        try:
            count = self._into(self._pos, view)
        except BaseException as error:
            self._failure = error, len(view)
            raise
        self._pos += count
        return count

    def readinto1(self, buffer: _Buffer, /) -> int:
        """The same as readinto()."""
        return self.readinto(buffer)

    def readline(self, size: int | None = -1, /) -> bytes:
        """The bytes up to and with the next newline, at most `size` of them where that is not negative."""
        self._check_open()
        limit = -1 if size is None else index(size)
        if limit == 0:
            return b""
        found: list[bytes] = []
        while True:
            start, chunk = self._stretch(self._pos)
            begin = self._pos - start
            stop = len(chunk) if limit < 0 else min(len(chunk), begin + limit)
            newline = chunk.find(b"\n", begin, stop)
            end = stop if newline < 0 else newline + 1
            found.append(chunk[begin:end])
            self._pos += end - begin
            limit -= end - begin if limit > 0 else 0
            if newline >= 0 or limit == 0 or end == begin:
                return found[0] if len(found) == 1 else b"".join(found)

    def readlines(self, hint: int | None = None, /) -> list[bytes]:
        """The lines that are left, or as many as it takes to pass `hint` bytes."""
        lines: list[bytes] = []
        most = -1 if hint is None else index(hint)
        total = 0
        while line := self.readline():
            lines.append(line)
            total += len(line)
            if 0 < most <= total:
                break
        return lines

    def _stretch(self, at: int) -> tuple[int, bytes]:
        """(start, bytes) that hold the byte at `at`, or no byte at all where that is past the end."""
        if not self._version.pinned:
            self._pin(_CHUNK)
        if self._data is not None:
            return (0, self._data) if at <= len(self._data) else (at, b"")
        lines = self._lines
        if lines is None or not lines[0] <= at < lines[0] + len(lines[1]):
            want = max(0, min(_CHUNK, self._total() - at))
            lines = self._lines = at, self._bytes(at, want) if want else b""
        return lines

    # -- where it is

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Move to `offset` from the start, the position or the end; past the end is allowed. Returns the new position."""
        self._failure = None
        self._check_open()
        offset = index(offset)
        if whence == os.SEEK_SET:
            if offset < 0:
                raise ValueError(f"negative seek value {offset}")
            self._pos = offset
        elif whence == os.SEEK_CUR:
            self._pos = max(0, self._pos + offset)
        elif whence == os.SEEK_END:
            self._pin()  # a listing's size may be that of another version
            self._pos = max(0, self._total() + offset)
        else:
            raise ValueError(f"invalid whence ({whence}, should be 0, 1 or 2)")
        return self._pos

    def tell(self) -> int:
        self._check_open()
        return self._pos

    def readable(self) -> bool:
        self._check_open()
        return True

    def writable(self) -> bool:
        self._check_open()
        return False

    def seekable(self) -> bool:
        self._check_open()
        return True

    def flush(self) -> None:
        """Nothing to do, as for every file that is open for reading."""
        self._check_open()

    # -- its end

    def close(self) -> None:
        """Cancel what is in flight and give up what is held. Idempotent."""
        if self._closed:
            return
        self._closed = True
        first, self._first = self._first, None
        self._data = self._lines = self._failure = None
        fill, self._fill = self._fill, None
        if first is not None:
            first.cancel()
        if fill is not None:
            fill.release()

    def __reduce__(self) -> tuple[Any, ...]:
        version = self._version
        pin = version.binding is not None
        state = (
            version.size,
            version.etag,
            version.crc64,
            version.check,
            pin,
            self._kind,
            self._buffer_size,
            self._pos,
            self._closed,
        )
        return _restore, (version.client, version.bucket, version.key, *state)


def _restore(
    client: TosClient,
    bucket: str,
    key: str,
    size: int | None,
    etag: str | None,
    crc64: int | None,
    check: bool,
    pin: bool,
    kind: ReaderType,
    buffer_size: int | None,
    position: int,
    closed: bool,
) -> TosObjectReader:
    reader = TosObjectReader(
        client,
        bucket,
        key,
        size=size,
        etag=etag,
        crc64=crc64,
        reader_type=kind,
        buffer_size=buffer_size,
        enable_crc=check,
        pin=pin,
    )
    reader.seek(position)
    if closed:
        reader.close()
    return reader
