"""The objects of TOS as PyTorch datasets: by position (TosMapDataset), or as a stream (TosIterableDataset)."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NoReturn

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torch.utils.data._utils.collate import default_collate_fn_map

from tosnative.index import ObjectIndex
from tosnative.options import DatasetKeywords, IterableKeywords, SampleOptions, check_keywords, make_client
from tosnative.position import EpochPosition, SkipCounter, check_state, make_state
from tosnative.reader import TosObjectReader
from tosnative.samples import SampleStream
from tosnative.sampling import Consumed, consumed_by_worker, epoch_order, extended, rows_of
from tosnative.sharding import (
    UNEVEN,
    Shard,
    check_sharding,
    current_rank,
    current_worker,
    doubly_sharded,
    portable,
    unsharded_ranks,
)
from tosnative.shared import is_spawning
from tosnative.source import ObjectSource, from_index, from_local_files, from_prefix, from_urls

if TYPE_CHECKING:
    import os

    from typing_extensions import Self, Unpack

    from tosnative.client import TosClient

__all__ = ["TosIterableDataset", "TosMapDataset"]

_PIECE = 4096


class _ObjectDataset:
    """What both datasets share: objects from a source, a client to fetch them with, and how they become samples.

    A prefix is listed when it is first needed, once for this process and all that it forks or starts. Usable in any
    process it is forked or pickled into. After close() every use raises ValueError.
    """

    def __init__(self, source: ObjectSource, keywords: DatasetKeywords, allowed: type) -> None:
        check_keywords(type(self).__name__, keywords, allowed)
        self._source = source
        self._options = SampleOptions.from_keywords(keywords)
        self._client: TosClient = make_client(keywords)
        self._skips = SkipCounter() if self._options.on_error == "skip" else None
        self._closed = False

    @property
    def index(self) -> ObjectIndex:
        """The objects, in the order of their positions; save it to reuse a listing. Raises: TosException."""
        self._check_open()
        return self._source.index(self._client)

    @property
    def skipped(self) -> int:
        """Objects that on_error="skip" left out so far, in this process and in all DataLoader workers."""
        return 0 if self._skips is None else self._skips.total

    def close(self) -> None:
        """Let go of the client. Idempotent."""
        if not self._closed:
            self._closed = True
            self._client.close()

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        known = self._source.known
        size = "not listed yet" if known is None else f"{len(known)} objects"
        return f"{type(self).__name__}({self._source.label}, {size})"

    def __getstate__(self) -> dict[str, Any]:
        if is_spawning() and not self._closed:
            # Before the workers start, so that it is done once for all of them.
            self._source.list_before_start(self._client)
        return dict(self.__dict__)

    def _check_open(self) -> None:
        if self._closed:
            raise ValueError(f"{type(self).__name__} is closed")

    def _stream(self, options: SampleOptions) -> SampleStream:
        return SampleStream(self._client, self.index, options, self._note_skip)

    def _note_skip(self) -> None:
        if self._skips is not None:
            info = get_worker_info()
            self._skips.add(None if info is None else info.id)


class TosMapDataset(_ObjectDataset, Dataset[Any]):
    """Objects by position: `len(ds)`, `ds[i]`, and whole batches of a DataLoader, fetched at the same time.

    Made by from_prefix, from_urls, from_local_files or from_index, with the keywords of DatasetKeywords. Without
    `transform` a sample is a TosObjectReader.
    """

    def __init__(self, source: ObjectSource, **keywords: Unpack[DatasetKeywords]) -> None:
        super().__init__(source, keywords, DatasetKeywords)

    @classmethod
    def from_urls(cls, urls: str | Iterable[str], **keywords: Unpack[DatasetKeywords]) -> Self:
        """The objects that URLs name (tos://bucket/key), in their order; an iterator is read to its end now."""
        return cls(from_urls(urls), **keywords)

    @classmethod
    def from_prefix(cls, prefix: str, *, delimiter: str | None = None, **keywords: Unpack[DatasetKeywords]) -> Self:
        """The objects under tos://bucket/prefix in key order, without directory markers.

        delimiter: leave out keys that hold it after the prefix.
        """
        return cls(from_prefix(prefix, delimiter), **keywords)

    @classmethod
    def from_local_files(
        cls, local_files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]], **keywords: Unpack[DatasetKeywords]
    ) -> Self:
        """The objects named in text files, one URL a line."""
        return cls(from_local_files(local_files), **keywords)

    @classmethod
    def from_index(cls, index: ObjectIndex | str | os.PathLike[str], **keywords: Unpack[DatasetKeywords]) -> Self:
        """The objects of an index, or of the file it was saved to."""
        return cls(from_index(index), **keywords)

    def __len__(self) -> int:
        return len(self.index)

    def __getitem__(self, i: int) -> Any:
        """The sample at a position; negative positions count from the end. Raises: IndexError, TosException."""
        row = range(len(self))[operator.index(i)]
        # A single sample cannot be left out: on_error="skip" holds for batches.
        return next(self._stream(replace(self._options, on_error="raise")).samples([row], 1))

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at these positions, in their order, fetched at the same time: what a DataLoader asks for a batch.

        With on_error="skip" the list is shorter by what was left out; where nothing would be left, the error is raised.
        """
        positions = range(len(self))
        rows = [positions[operator.index(i)] for i in indices]
        depth = self._options.prefetch_concurrency or len(rows)
        samples = list(self._stream(self._options).samples(rows, depth))
        return samples if samples or not rows else [self[rows[0]]]


class TosIterableDataset(_ObjectDataset, IterableDataset[Any]):
    """Objects as a stream: in the index's order or shuffled, fetched ahead of the loop that uses them.

    DataLoader workers always split the samples; ranks only when `sharding` says so. Made by from_prefix, from_urls,
    from_local_files or from_index, with the keywords of IterableKeywords. Without `transform` a sample is a
    TosObjectReader. It has no length: what a DataLoader would make of it is wrong as soon as several workers end with
    short batches.
    """

    def __init__(self, source: ObjectSource, **keywords: Unpack[IterableKeywords]) -> None:
        super().__init__(source, keywords, IterableKeywords)
        self._sharding = check_sharding(keywords.get("sharding"))
        self._uneven = keywords.get("uneven", "exact")
        if self._uneven not in UNEVEN:
            raise ValueError(f"uneven must be one of {', '.join(UNEVEN)}, not {self._uneven!r}")
        self._seed = int(keywords.get("seed", 0)) if keywords.get("shuffle") else None
        self._position = EpochPosition()
        self._loaded: dict[str, Any] | None = None
        self._run: tuple[int, Shard, tuple[Consumed, ...], SampleStream] | None = None

    @classmethod
    def from_urls(cls, urls: str | Iterable[str], **keywords: Unpack[IterableKeywords]) -> Self:
        """The objects that URLs name (tos://bucket/key), in their order; an iterator is read to its end now."""
        return cls(from_urls(urls), **keywords)

    @classmethod
    def from_prefix(cls, prefix: str, *, delimiter: str | None = None, **keywords: Unpack[IterableKeywords]) -> Self:
        """The objects under tos://bucket/prefix in key order, without directory markers.

        delimiter: leave out keys that hold it after the prefix.
        """
        return cls(from_prefix(prefix, delimiter), **keywords)

    @classmethod
    def from_local_files(
        cls,
        local_files: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        **keywords: Unpack[IterableKeywords],
    ) -> Self:
        """The objects named in text files, one URL a line."""
        return cls(from_local_files(local_files), **keywords)

    @classmethod
    def from_index(cls, index: ObjectIndex | str | os.PathLike[str], **keywords: Unpack[IterableKeywords]) -> Self:
        """The objects of an index, or of the file it was saved to."""
        return cls(from_index(index), **keywords)

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch begins next: shuffle by it. Reaches workers that live on (persistent_workers) as well."""
        self._position.epoch = epoch

    def __iter__(self) -> Iterator[Any]:
        self._warn_of_ranks()
        info = get_worker_info()
        # All workers of one iteration share the loader's seed, from which each one's own is counted up.
        history = self._position.begin(None if info is None else info.seed - info.id)
        shard = Shard(*current_rank(self._sharding), *current_worker())
        stream = self._stream(self._options)
        rows = rows_of(self._order(), history, shard, self._uneven)
        self._run = self._position.epoch, shard, history, stream
        return stream.samples(_numbers(rows), self._options.prefetch_concurrency)

    def state_dict(self) -> dict[str, Any]:
        """Where the iteration that began last in this process is, by what it yielded, not by what it fetched.

        In the main process without workers, this is the whole state. In a DataLoader worker it is the state of that
        worker, to be loaded in the same worker of as many (as torchdata's StatefulDataLoader does). For a DataLoader
        with workers, take `state_after` in the main process.
        """
        if self._run is None:
            return make_state(self._position.epoch, len(self.index), self._seed, self._position.pending)
        epoch, shard, history, stream = self._run
        counts: list[int | None] = [None] * shard.workers
        counts[shard.worker] = stream.done
        return make_state(epoch, len(self.index), self._seed, extended(history, shard, self._uneven, counts))

    def state_after(self, loader: DataLoader[Any], batches: int) -> dict[str, Any]:
        """The state after a DataLoader over this dataset gave out so many batches of the epoch that `set_epoch` named.

        Counted from where that epoch began, or from the state that was loaded for it. Holds for every rank if all ranks
        took as many batches, and for loaders that keep the order (in_order=True) without skipped objects. It can be
        resumed with other workers, batch sizes and ranks: what is left of the epoch then comes exactly once.
        Raises: ValueError where the epoch has not so many batches.
        """
        history = self._position.pending
        workers = max(1, loader.num_workers)
        shard = Shard(*current_rank(self._sharding), 0, workers)
        order = self._order()
        lengths = [len(rows_of(order, history, shard._replace(worker=w), self._uneven)) for w in range(workers)]
        counts, following = consumed_by_worker(lengths, batches, loader.batch_size, loader.drop_last)
        after = extended(history, shard, self._uneven, counts, following)
        return make_state(self._position.epoch, len(self.index), self._seed, after)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state in the iteration that begins next; the ones after it are whole epochs again.

        Before a DataLoader starts its workers: workers that live on do not learn of it. Sets the epoch to the state's.
        Raises: ValueError where it is no state of these objects in this order.
        """
        self._check_open()
        self._position.load(state)
        self._loaded = dict(state)
        self._run = None

    def _order(self) -> torch.Tensor:
        count = len(self.index)
        if self._loaded is not None:
            check_state(self._loaded, count, self._seed)
        return epoch_order(count, self._seed, self._position.epoch)

    def _warn_of_ranks(self) -> None:
        if self._sharding is None:
            unsharded_ranks(self._position.first_warning)
        else:
            doubly_sharded(current_rank(self._sharding)[1], self._position.first_warning)

    def __getstate__(self) -> dict[str, Any]:
        if is_spawning():
            # A process that is started knows no process groups.
            self._warn_of_ranks()
        state = super().__getstate__()
        state["_run"] = None
        if is_spawning() or not isinstance(self._sharding, bool):
            state["_sharding"] = portable(self._sharding)
        return state


def _numbers(rows: torch.Tensor) -> Iterator[int]:
    """The rows as ints, without a list of a million of them."""
    for start in range(0, len(rows), _PIECE):
        yield from rows[start : start + _PIECE].tolist()


def _refuse(batch: Sequence[object], **_: object) -> NoReturn:
    raise TypeError(
        "a batch of TosObjectReader cannot be collated: pass transform= to the dataset, such as a function that "
        "returns reader.read() or a tensor made of it, or pass collate_fn= to the DataLoader"
    )


# torch's own table of how to collate what: without an entry its error would not name the remedy.
default_collate_fn_map[TosObjectReader] = _refuse
