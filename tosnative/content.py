"""An object's bytes by offset: its first request, which pins the version, and the strategy that gets the others."""

from __future__ import annotations

import contextlib
import io
import os
import time
from typing import TYPE_CHECKING

import tosnative.reaper as reaper
from tosnative.buffers import copy
from tosnative.config import ReaderType
from tosnative.errors import TosException, TosIntegrityError
from tosnative.fills import DirectFill, Fill, RangedFill
from tosnative.readahead import SequentialFill
from tosnative.uri import format_uri
from tosnative.version import ObjectVersion

if TYPE_CHECKING:
    from tosnative.client import Download, TosClient

__all__ = ["ObjectContent"]


class ObjectContent(io.BufferedIOBase):
    """What a TosObjectReader knows and holds of its object; the io protocol is there.

    The first answer pins the object's version. It is a GET that brings bytes, never a HEAD: the whole object where that is
    known to be small, otherwise the first range that is wanted.
    """

    __slots__ = (
        "_buffer_size",
        "_closed",
        "_data",
        "_failure",
        "_fill",
        "_first",
        "_kind",
        "_lines",
        "_pid",
        "_pos",
        "_version",
    )

    def __init__(
        self,
        client: TosClient,
        bucket: str,
        key: str,
        *,
        size: int | None = None,
        etag: str | None = None,
        crc64: int | None = None,
        reader_type: ReaderType | None = None,
        buffer_size: int | None = None,
        enable_crc: bool | None = None,
        pin: bool = False,
    ) -> None:
        self._closed = False
        self._fill: Fill | None = None
        self._first: Download | None = None
        self._pid = 0  # of the process that has something in flight or held here
        check = client.config.enable_crc if enable_crc is None else enable_crc
        self._version = ObjectVersion(client, bucket, key, size, etag, crc64, check, pin)
        self._kind = reader_type or ReaderType.SEQUENTIAL
        if buffer_size is not None and buffer_size < 1:
            raise ValueError(f"buffer_size must be at least 1 byte, not {buffer_size}")
        self._buffer_size = buffer_size
        self._pos = 0
        self._data: bytes | None = None  # the whole object
        self._failure: tuple[BaseException, int] | None = None  # of the last readinto(), and the size it was asked for
        self._lines: tuple[int, bytes] | None = None  # a stretch that readline looks through, and where it begins

    # -- what is known of the object

    @property
    def bucket(self) -> str:
        return self._version.bucket

    @property
    def key(self) -> str:
        return self._version.key

    @property
    def name(self) -> str:
        """tos://bucket/key."""
        return format_uri(self._version.bucket, self._version.key)

    @property
    def size(self) -> int:
        """The object's size in bytes; asks for the first bytes where nobody knows it yet."""
        if self._version.size is None:
            self._pin()
        return self._version.size or 0

    @property
    def etag(self) -> str | None:
        """The ETag of the version that is read, before the first answer that of the listing; None where it has none."""
        if self._version.etag is None and not self._closed:
            self._pin()
        return self._version.etag

    @property
    def crc64(self) -> int | None:
        """The service's CRC64 of the whole object; None where the service tells none."""
        if self._version.crc64 is None and not self._closed:
            self._pin()
        return self._version.crc64

    @property
    def verified(self) -> bool:
        """Whether every byte of the object was received and their CRC64 is the service's."""
        return self._version.verified

    @property
    def closed(self) -> bool:
        return self._closed

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"at {self._pos}"
        return f"<TosObjectReader {self.name} {self._kind.name} {state}>"

    # -- the first request

    def begin(self) -> Download | None:
        """The first request of this object, not submitted, or None where this kind of reader starts at the first read.

        Whoever asks for it submits it; the reader waits for it when it is read. For starting many readers at once.
        """
        version = self._version
        if self._first is None and not version.pinned and not self._closed and version.size != 0:
            eager = self._kind is ReaderType.SEQUENTIAL or self._fits()
            self._first = self._ask(0, 1) if eager else None
            self._pid = os.getpid()
        return self._first

    def ahead(self, most: int) -> int:
        """Ask for up to `most` parts of a large object before it is read; returns how many there are or will be.

        Nothing is asked for before the first request has been answered. What goes wrong is told when it is read.
        """
        first = self._first
        if self._closed or self._kind is not ReaderType.SEQUENTIAL or self._data is not None:
            return 0
        if first is not None:
            if not first.done or first.error is not None:
                return 0
            with contextlib.suppress(TosException):
                self._pin()
        fill = self._fill
        return fill.ahead(most) if isinstance(fill, SequentialFill) else 0

    def _fits(self) -> bool:
        """Whether the object is known to come whole in one answer that this kind of reader may hold."""
        size = self._version.size
        if size is None or self._kind is ReaderType.DIRECT:
            return False
        most = self._version.client.config.part_size
        if self._kind is ReaderType.RANGED and self._buffer_size is not None:
            most = min(most, self._buffer_size)
        return size <= most

    def _ask(self, at: int, want: int) -> Download:
        """The first request, for a read of `want` bytes (-1: all) at `at`."""
        version = self._version
        part = version.client.config.part_size
        if self._fits():
            return version.whole()
        if self._kind is ReaderType.SEQUENTIAL:
            start = at - at % part
            return version.range(start, start + part)
        if self._kind is ReaderType.RANGED:
            return version.range(at, at + min(self._buffer_size or part, part))
        if want < 0 and at == 0 and version.size is not None and version.size <= part:
            return version.whole()
        return version.range(at, at + (part if want < 0 else min(max(1, want), part)))

    def _pin(self, want: int = 1) -> None:
        """Make the first request for a read at the position, if none was made, and wait: then size and version are known."""
        version = self._version
        if version.pinned:
            return
        self._check_open()
        first = self._first
        if first is None:
            first = self._ask(self._pos, want)
        began = time.perf_counter() if first.engine is None else None
        if began is not None:
            version.client.submit([first])
        self._first = None  # whatever happens: a later call asks anew
        version.learn(first.wait())
        took = None if began is None else time.perf_counter() - began
        if not version.pinned:  # past the end of an object without an ETag in the answer; size is known all the same
            if version.size is None:
                first = version.range(0, version.client.config.part_size)
                version.client.submit([first])
                version.learn(first.wait())
            version.size = version.size or 0
        if first.start == 0 and first.length == version.size and self._kind is not ReaderType.DIRECT:
            self._data = first.getvalue()
        else:
            self._strategy().adopt(first, took)

    def _strategy(self) -> Fill:
        fill = self._fill
        if fill is None:
            if self._kind is ReaderType.SEQUENTIAL:
                fill = SequentialFill(self._version)
            elif self._kind is ReaderType.RANGED:
                fill = RangedFill(self._version, self._buffer_size or self._version.client.config.part_size)
            else:
                fill = DirectFill(self._version)
            self._fill = fill
            self._pid = os.getpid()
        return fill

    def _total(self) -> int:
        return len(self._data) if self._data is not None else self._version.size or 0

    def _bytes(self, at: int, want: int) -> bytes:
        """[at, at + want), which lies inside the object."""
        data = self._data
        if data is not None:
            return data if want == len(data) else data[at : at + want]
        fill = self._strategy()
        held = fill.view(at, want)
        if held is not None:
            return bytes(held)
        room = self._version.client.rooms.of(want)
        if self._into(at, room.view) != want:  # what is not filled may be another object's
            raise AssertionError(f"{self.name}: bytes {at} to {at + want} came short")
        return room.seal()

    def _into(self, at: int, view: memoryview) -> int:
        """Fill `view` from `at`. Where one call covers the object and its checksum is wrong, all is asked for once more."""
        try:
            return self._fill_from(at, view)
        except TosIntegrityError:
            if at or len(view) < self._total() or not self._version.forgive():
                raise  # bytes of before were handed out already, or it is damaged in the service
        fill, self._fill = self._fill, None
        if fill is not None:
            fill.release()
        return self._fill_from(at, view)

    def _fill_from(self, at: int, view: memoryview) -> int:
        if not len(view):
            return 0
        version = self._version
        if not version.pinned:
            if len(view) >= version.client.config.part_size and self._first is None and not self._fits():
                return self._begin_into(at, view)
            self._pin(len(view))
        data = self._data
        if data is None:
            return self._strategy().readinto(at, view)
        count = max(0, min(len(view), len(data) - at))
        copy(view, memoryview(data)[at : at + count])
        return count

    def _begin_into(self, at: int, view: memoryview) -> int:
        """The first request of a reader that is large: straight into the caller's memory, up to the end of a part."""
        version = self._version
        part = version.client.config.part_size
        first = version.range(at, at + part - at % part, view[: part - at % part])
        try:
            version.client.submit([first])
            version.learn(first.wait())
        except BaseException:
            first.cancel()
            raise
        if not version.pinned:
            self._pin()
        done = first.length
        return done + self._strategy().readinto(at + done, view[done:])

    def __del__(self) -> None:
        # May run in a thread that holds the engine's or the budget's lock: takes none. See reaper.
        try:
            fill, first = self._fill, self._first
        except AttributeError:  # __init__ raised
            return
        if first is not None and self._pid == os.getpid():
            first.abandon()
        if fill is not None:
            reaper.later(self._pid, fill.release)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError("I/O operation on closed file.")
