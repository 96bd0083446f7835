"""From rows of an index to samples: objects are fetched ahead, in order, and transformed as they are wanted."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from tosnative.errors import TosChangedError, TosException, TosIntegrityError, TosNotFoundError
from tosnative.index import ObjectIndex
from tosnative.logs import LOG
from tosnative.options import SampleOptions, identity
from tosnative.prefetch import ByteBudget, prefetch
from tosnative.reader import TosObjectReader

if TYPE_CHECKING:
    from tosnative.client import Download, TosClient

__all__ = ["SampleStream"]

# What an object of unknown size is taken for until another of them has arrived, in bytes.
_UNKNOWN_SIZE = 256 * 1024
# Automatic look-ahead: the first parts of so many large objects bridge any latency, and more of them only take memory.
_WINDOW_PARTS = 16
# The faults of one object; whatever else goes wrong goes wrong for all of them.
_SKIPPED = (TosNotFoundError, TosChangedError, TosIntegrityError)

# From so far on, the time to first byte of a part that is asked for when it is wanted is worth hiding.
_FAR_S = 0.005

Started = tuple[TosObjectReader, "Download | None"]


class SampleStream:
    """The samples of some rows, once.

    `done` counts the rows that were yielded or skipped, not those that were fetched.
    """

    def __init__(
        self, client: TosClient, index: ObjectIndex, options: SampleOptions, on_skip: Callable[[], object] | None = None
    ) -> None:
        self.done = 0
        self._client = client
        self._index = index
        self._options = options
        self._on_skip = on_skip
        self._part = client.config.part_size
        self._guess = _UNKNOWN_SIZE
        self._probe: Download | None = None
        self._upcoming: deque[Started] = deque()  # not yielded yet

    def samples(self, rows: Iterable[int], depth: int = 0) -> Iterator[Any]:
        """Yield the samples in the order of the rows, with `depth` objects in flight; 0 is what the client advises.

        Raises: what a transform raises, and TosException.
        """
        started = prefetch(
            rows,
            self._start,
            depth=(lambda: depth) if depth else self._client.advised_depth,
            discard=_discard,
            cost=self._cost,
            budget=self._client.budget if depth else _Window(self._client.budget, _WINDOW_PARTS * self._part),
        )
        transform = self._options.transform
        skip = self._options.on_error == "skip"
        try:
            for reader, download in started:
                self._upcoming.popleft()
                if download is not None and download.done and _has_more(download):
                    self._go_on(reader.bucket)
                try:
                    if skip and download is not None:
                        download.wait()
                    sample = reader if transform is identity else transform(reader)
                except _SKIPPED as error:
                    if not skip or error.error.code == "NoSuchBucket":
                        raise
                    self.done += 1
                    self._skipped(reader, error)
                    continue
                except Exception as error:
                    _say_which(error, reader)
                    raise
                self.done += 1
                yield sample
        finally:
            started.close()  # type: ignore[attr-defined]  # prefetch is a generator

    def _start(self, rows: list[int]) -> list[Started]:
        """Make the readers of these rows and submit their first requests together."""
        client, row_of, options = self._client, self._index.row, self._options
        pin = options.pin is not None
        started: list[Started] = []
        downloads = []
        for row in rows:
            bucket, key, size, etag, crc64 = row_of(row)
            reader = TosObjectReader(
                client,
                bucket,
                key,
                size=size,
                etag=etag,
                crc64=crc64,
                reader_type=options.reader_type,
                buffer_size=options.buffer_size,
                pin=pin,
            )
            download = reader.begin()
            if download is not None:
                downloads.append(download)
            started.append((reader, download))
        self._upcoming.extend(started)
        if downloads:
            client.submit(downloads)
            if self._index.size(rows[-1]) < 0:
                self._learn(downloads[-1])
        return started

    def _cost(self, row: int) -> int:
        """Bytes that the first request of this row's object brings."""
        size = self._index.size(row)
        return min(size if size >= 0 else self._guess, self._part)

    def _learn(self, download: Download) -> None:
        """Take the size of the last object that was started a window ago for that of those whose size is not known."""
        probe, self._probe = self._probe, download
        if probe is not None and probe.done and probe.error is None:
            self._guess = max(1, probe.length)

    def _go_on(self, bucket: str) -> None:
        """Ask for more of the large objects that are wanted next; not of a service so near that it need not be waited for."""
        if self._client.least_first_byte_s(bucket) < _FAR_S:
            return
        left = _WINDOW_PARTS
        for reader, _ in self._upcoming:
            left -= max(1, reader.ahead(left))
            if left <= 0:
                break

    def _skipped(self, reader: TosObjectReader, error: TosException) -> None:
        LOG.warning("skipped: %s", error)
        reader.close()
        if self._on_skip is not None:
            self._on_skip()


class _Window:
    """A budget of which this stream takes no more than `most` bytes at a time."""

    def __init__(self, budget: ByteBudget, most: int) -> None:
        self._budget, self._left = budget, most

    def take(self, n: int, force: bool = False) -> bool:
        if (n > self._left and not force) or not self._budget.take(n, force):
            return False
        self._left -= n
        return True

    def give(self, n: int) -> None:
        self._left += n
        self._budget.give(n)


def _has_more(download: Download) -> bool:
    """Whether the first request, which is done, has not brought the whole object."""
    return download.error is None and download.length < (download.meta.size or 0)


def _discard(started: Started) -> None:
    started[0].close()


def _say_which(error: Exception, reader: TosObjectReader) -> None:
    """Add to an error of a transform which object it was about; our own errors say it themselves."""
    if not isinstance(error, TosException) and hasattr(error, "add_note"):
        error.add_note(f"in transform of tos://{reader.bucket}/{reader.key}")
