"""torch.distributed.checkpoint on TOS: a checkpoint is `.metadata`, which names its shards, and one shard for each rank.

    writer = TosStorageWriter("tos://bucket/run-7/step-1000/")
    torch.distributed.checkpoint.save(state, storage_writer=writer)
    reader = TosStorageReader("tos://bucket/run-7/step-1000/")
    torch.distributed.checkpoint.load(state, storage_reader=reader)

Shards are never overwritten: every save writes new ones, under names of its own. `.metadata` is written when all of them are
there, in one request, and only then are those of earlier saves deleted. So a save that dies at any point leaves the checkpoint
that was there before, whole, and whoever loads gets all of one save or an error.
"""

from __future__ import annotations

import os
import pickle
import uuid
from concurrent.futures import Future as AsyncResult
from concurrent.futures import wait as wait_for
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch.distributed
from torch.distributed.checkpoint import staging, state_dict_saver
from torch.distributed.checkpoint.metadata import Metadata, MetadataIndex, StorageMeta
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner, SavePlan, SavePlanner
from torch.distributed.checkpoint.storage import StorageReader, StorageWriter, WriteResult
from torch.futures import Future
from torch.utils._pytree import tree_map_only

from tosnative.dcp_items import StorageInfo, crc64_of, size_of, write_item
from tosnative.dcp_place import CheckpointPlace
from tosnative.dcp_reads import fetch_reads, plan_read
from tosnative.errors import (
    TosChangedError,
    TosException,
    TosExistsError,
    TosIntegrityError,
    TosNotFoundError,
)
from tosnative.logs import LOG
from tosnative.options import ConnectionKeywords
from tosnative.reader import TosObjectReader
from tosnative.version import ObjectVersion
from tosnative.writer import TosObjectWriter

if TYPE_CHECKING:
    from torch.distributed import ProcessGroup
    from typing_extensions import Unpack

__all__ = ["TosStorageReader", "TosStorageWriter"]

_METADATA = ".metadata"


class _Saving(AsyncResult[Metadata]):
    """What an asynchronous save comes to. seen: somebody was told."""

    def __init__(self) -> None:
        super().__init__()
        self.seen = False

    def result(self, timeout: float | None = None) -> Metadata:
        self._look(timeout)
        return super().result(0)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._look(timeout)
        return super().exception(0)

    def _look(self, timeout: float | None) -> None:
        wait_for([self], timeout)
        self.seen = self.done()

    def follow(self, saving: AsyncResult[Metadata]) -> None:
        error = saving.exception()
        if error is None:
            self.set_result(saving.result())
        else:
            self.set_exception(error)


class TosStorageWriter(CheckpointPlace, StorageWriter):
    """The storage_writer of torch.distributed.checkpoint.save and async_save. Every rank makes one. Pickles.

    url: tos://bucket/prefix/ of the checkpoint; the checkpoint_id of a save replaces it. overwrite=False: a save where a
    checkpoint is already raises TosExistsError. connection: region, endpoint, cred, client_conf, enable_crc as in TosCheckpoint.

    Each rank writes what it has as one object, its shard, in parallel parts; what that holds in memory is said at
    TosObjectWriter, and beside it one tensor at a time where it has to be copied off its device. After a save `.metadata`
    and the shards that it names are all there is: shards of earlier saves, by however many ranks and whether they succeeded
    or not, are deleted, and where they cannot be, a warning in the log says how many are left. After a save that failed the
    checkpoint is what it was before; shards of the failed save stay until the next one succeeds.
    One save at a time for each checkpoint. A second one at the same time makes one of the two fail, and never a mixture.
    use_collectives=False is refused: without the ranks agreeing nobody can say that a checkpoint is whole.
    """

    def __init__(
        self, url: str | os.PathLike[str], *, overwrite: bool = True, **connection: Unpack[ConnectionKeywords]
    ) -> None:
        super().__init__(url, connection)
        self._overwrite = overwrite
        self._save_id = uuid.uuid4().hex
        self._is_coordinator = False
        self._saving: _Saving | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_saving": None}

    # -- asynchronous saves whose failure nobody can miss

    def async_save(
        self,
        state_dict: dict[str, Any],
        *,
        checkpoint_id: str | os.PathLike[str] | None = None,
        planner: SavePlanner | None = None,
        process_group: ProcessGroup | None = None,
    ) -> AsyncResult[Metadata]:
        """torch.distributed.checkpoint.async_save through this writer, one at a time.

        Waits for the one before. Raises: what that one failed with, unless its result was asked for; this save was not begun
        then, on any rank, and the call can be repeated.
        """
        self.wait()
        saving = state_dict_saver.async_save(
            state_dict,
            checkpoint_id=checkpoint_id,
            storage_writer=self,
            planner=planner,
            process_group=process_group,
        )
        self._saving = _Saving()
        saving.add_done_callback(self._saving.follow)  # type: ignore[union-attr,unused-ignore]  # a response only with an own stager
        return self._saving

    def wait(self) -> None:
        """Return when the last `async_save` is done. Raises: what it failed with, once, unless its result was asked for."""
        saving, self._saving = self._saving, None
        if saving is not None and not saving.seen:
            saving.result()

    if not hasattr(staging, "DefaultStager"):  # older torch: async_save would go on reading tensors in main memory
        _synchronize_after_execute = should_synchronize_after_execute = False

        def stage(self, state_dict: dict[str, Any]) -> Any:
            return tree_map_only(torch.Tensor, lambda tensor: tensor.detach().to("cpu", copy=True), state_dict)

        def synchronize_staging(self) -> None:
            """Nothing to wait for."""

    # -- what torch.distributed.checkpoint calls, in this order

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new save begins, to checkpoint_id if one is given. Raises: ValueError for what is no tos:// URL with a prefix."""
        self._move(checkpoint_id)
        self._save_id = uuid.uuid4().hex

    def set_up_storage_writer(self, is_coordinator: bool, *args: Any, **kwargs: Any) -> None:
        """Raises: ValueError for use_collectives=False; what an `async_save` failed with, if nobody was told yet."""
        if not kwargs.get("use_collectives", True):
            raise ValueError("TosStorageWriter needs use_collectives=True: a checkpoint is whole when all ranks say so")
        saving = self._saving
        if saving is not None and saving.done():
            self.wait()
        self._is_coordinator = is_coordinator

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        """Raises, on the coordinator: TosExistsError where a checkpoint is, and `overwrite` is off."""
        if self._is_coordinator and not self._overwrite:
            try:
                self._client.head(self._bucket, self._key(_METADATA))
            except TosNotFoundError:
                return plan
            raise self._error(TosExistsError, "a checkpoint is here already", hint="overwrite=True replaces it")
        return plan

    def prepare_global_plan(self, plans: list[SavePlan]) -> list[SavePlan]:
        return plans

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> Future[list[WriteResult]]:
        """Write this rank's shard; it is there when this returns, whole. Raises: TosException; what the planner raises."""
        done: Future[list[WriteResult]] = Future()
        done.set_result(self._write_shard(plan, planner) if plan.items else [])
        return done

    def _write_shard(self, plan: SavePlan, planner: SavePlanner) -> list[WriteResult]:
        rank = torch.distributed.get_rank() if torch.distributed.is_initialized() else 0
        # Named anew at each save, here: planners may keep plans, and what they hold, from one save to the next.
        shard = f"__{rank}_{uuid.uuid4().hex}.distcp"
        check = self._client.config.enable_crc
        with TosObjectWriter(self._client, self._bucket, self._key(shard), size_hint=size_of(plan)) as writer:
            return [write_item(writer, item, planner.resolve_data(item), shard, check) for item in plan.items]

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """On the coordinator, when all shards are written: make them the checkpoint, and delete those of earlier saves.

        Raises: TosException. The checkpoint is then as it was before, or, where the answer to the last request was lost and
        cannot be established (TosOutcomeUnknownError), one of the two, whole.
        """
        written = {result.index: result.storage_data for of_rank in results for result in of_rank}
        found = self._shards()
        self._check_shards(written, found)
        metadata.storage_data = written
        metadata.storage_meta = self.storage_meta()
        self._commit(pickle.dumps(metadata))
        self._delete_stale(found.keys() - {info.relative_path for info in written.values()})

    def _commit(self, content: bytes) -> None:
        key = self._key(_METADATA)
        try:
            with TosObjectWriter(self._client, self._bucket, key, forbid_overwrite=not self._overwrite) as writer:
                writer.write(content)
        except TosExistsError:
            # It may be our own: a request whose answer was lost is sent again. No two saves have the same content.
            with TosObjectReader(self._client, self._bucket, key) as reader:
                if reader.read() != content:
                    raise

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(checkpoint_id=self.checkpoint_id, save_id=self._save_id)

    def _check_shards(self, written: dict[MetadataIndex, StorageInfo], found: dict[str, int | None]) -> None:
        """What is committed must be there: another save to the same checkpoint would take these shards for stale ones."""
        sizes: dict[str, int] = {}
        for info in written.values():
            sizes[info.relative_path] = max(sizes.get(info.relative_path, 0), info.offset + info.length)
        wrong = sorted(name for name, size in sizes.items() if found.get(name) != size)
        if wrong:
            text = f"{len(wrong)} of the {len(sizes)} shards of this save are gone, such as {wrong[0]}; not committed"
            raise self._error(TosIntegrityError, text, hint="another save to this checkpoint was under way; save again")

    def _delete_stale(self, names: set[str]) -> None:
        if not names:
            return
        try:
            self._client.delete_many(self._bucket, [self._key(name) for name in sorted(names)])
        except TosException as error:
            # The checkpoint is committed: raising would say that it is not. The next save finds them again.
            LOG.warning(
                "%s: up to %d shards of earlier saves could not be deleted: %s", self.checkpoint_id, len(names), error
            )


class TosStorageReader(CheckpointPlace, StorageReader):
    """The storage_reader of torch.distributed.checkpoint.load. Every rank makes one. Pickles.

    url: tos://bucket/prefix/ of the checkpoint; the checkpoint_id of a load replaces it. connection: as for TosStorageWriter.
    Reads what TosStorageWriter wrote, and what torch's FileSystemWriter wrote and somebody copied, from any number of ranks.

    Each rank fetches the ranges that it needs and little else, many in flight; large tensors are received right into the
    state dict's memory. What was saved with CRC64 and is read whole is checked with it. All ranks read the same save, or the load
    fails. A load that fails may have filled part of the state dict.
    `.metadata` is a pickle, as with every storage of torch.distributed.checkpoint: load only what you trust.
    """

    def __init__(self, url: str | os.PathLike[str], **connection: Unpack[ConnectionKeywords]) -> None:
        super().__init__(url, connection)
        self._load_id = uuid.uuid4().hex
        self._stored: dict[MetadataIndex, StorageInfo] = {}
        self._read_from: str | None = None  # the ETag of the .metadata that was read

    # -- what torch.distributed.checkpoint calls, in this order

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """A new load begins, of checkpoint_id if one is given. Raises: ValueError for what is no tos:// URL with a prefix."""
        self._move(checkpoint_id)
        self._stored, self._read_from = {}, None
        self._load_id = uuid.uuid4().hex

    def read_metadata(self, *args: Any, **options: Any) -> Metadata:
        """Raises: TosNotFoundError where no checkpoint is; TosException."""
        with TosObjectReader(self._client, self._bucket, self._key(_METADATA)) as reader:
            try:
                metadata: Metadata = pickle.load(reader)  # noqa: S301 - the format of torch.distributed.checkpoint
            except TosNotFoundError as error:
                hint = f"no checkpoint was ever committed under {self.checkpoint_id}"
                raise TosNotFoundError(replace(error.error, hint=hint)) from error
            self._read_from = reader.etag
        metadata.storage_meta = getattr(metadata, "storage_meta", None) or StorageMeta()
        metadata.storage_meta.load_id = self._load_id
        return metadata

    def set_up_storage_reader(self, metadata: Metadata, is_coordinator: bool, *args: Any, **options: Any) -> None:
        self._stored = metadata.storage_data

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return replace(plan, storage_data=self._read_from)

    def prepare_global_plan(self, plans: list[LoadPlan]) -> list[LoadPlan]:
        """On the coordinator. Raises: TosChangedError where ranks have read the metadata of different saves."""
        if len({plan.storage_data for plan in plans} - {None}) > 1:
            text = "the checkpoint was replaced while the ranks read its metadata"
            raise self._error(TosChangedError, text, hint="load again")
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Fetch what the plan needs, and hand it to the planner. Raises: as `fetch_reads`."""
        reads = [plan_read(item, self._stored[item.storage_index]) for item in plan.items]
        # Items that carry a checksum of their own need not be summed up for that of their shard.
        summed = {info.relative_path for info in self._stored.values() if crc64_of(info) is not None}
        check = self._client.config.enable_crc
        versions = {
            shard: ObjectVersion(
                self._client, self._bucket, self._key(shard), None, None, None, check and shard not in summed, False
            )
            for shard in {read.shard for read in reads}
        }
        fetch_reads(reads, planner, versions)
        done: Future[None] = Future()
        done.set_result(None)
        return done
