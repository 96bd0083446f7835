"""The bytes of one object on their way out: part buffers, and the multipart upload once there is more than one part."""

from __future__ import annotations

import logging
import os
from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import tosnative.crc64 as crc64_
import tosnative.reaper as reaper
from tosnative.buffers import allocate
from tosnative.creation import Creation
from tosnative.errors import TosException
from tosnative.filling import Filling
from tosnative.meta import TosObjectMeta
from tosnative.parts import MAX_PARTS, PartPlan
from tosnative.uri import format_uri

if TYPE_CHECKING:
    from tosnative.client import TosClient, Upload

__all__ = ["ObjectUpload"]

_LOG = logging.getLogger("tosnative")
# Parts of one writer in flight where the configuration leaves it open, and the share of the memory budget they may take.
_IN_FLIGHT = 16
_BUDGET_SHARE = 2
# How long giving up waits for the service to forget the upload; after that it goes on in another thread.
_ABORT_WAIT_S = 10.0
# The same for writers that were dropped: other clean-up waits behind it.
_DROPPED_WAIT_S = 1.0


class _Flying(NamedTuple):
    """A part in flight; the buffer is its memory until it is done."""

    number: int
    size: int
    crc64: int | None
    buffer: memoryview
    upload: Upload


class ObjectUpload:
    """Owns everything that a writer must give back: buffers, their share of the budget, parts in flight, the upload's id.

    Invariants: `len(flying) <= limit`; every buffer is free, in flight, or the one that the writer fills; their sizes
    add up to what was taken from the budget. The first buffer is always admitted.
    """

    def __init__(
        self,
        client: TosClient,
        bucket: str,
        key: str,
        plan: PartPlan,
        check: bool,
        content_type: str | None,
        forbid_overwrite: bool,
    ) -> None:
        config = client.config
        self.client = client
        self.bucket = bucket
        self.key = key
        self.check = check
        self.upload_id: str | None = None
        self.crc64: int | None = None  # of the whole, once that has been sent
        self._plan = plan
        self._content_type = content_type
        self._forbid_overwrite = forbid_overwrite
        most = max(2, config.memory_budget_bytes // (_BUDGET_SHARE * plan.first))
        self._limit = config.shared_upload_part_tasks or min(_IN_FLIGHT, most)
        self._number = 1  # of the part that is being filled
        self._flying: deque[_Flying] = deque()
        self._free: list[memoryview] = []
        self._taken = 0
        self._done: list[tuple[int, str, int | None, int]] = []  # (number, ETag, CRC64, size)
        self._pid = os.getpid()
        self._aborting = False
        self._creation: Creation | None = None  # under way
        self._whole: Upload | None = None  # a PUT of all
        self._completing = False

    # -- parts

    def part(self) -> Filling:
        """The next part, empty. Waits for a part in flight where as many are under way as may be.

        Raises: ValueError past 10,000 parts; the first failure of a part.
        """
        if self._number > MAX_PARTS:
            raise ValueError(
                f"{format_uri(self.bucket, self.key)}: more than {self._plan.largest_object} bytes; pass size_hint to the writer"
            )
        size = self._plan.size(self._number)
        self.check_parts()
        while True:
            if self._free:
                found = self._free.pop()
                if len(found) == size:
                    return Filling(found, self.check)
                self._give(len(found))  # parts have grown
            elif len(self._flying) <= self._limit and self._take(size, not self._flying):
                return Filling(allocate(size), self.check)
            else:
                self._settle(self._flying[0])

    def send(self, part: Filling) -> None:
        """Send a part as the next one; begins the multipart upload with the first."""
        if self.upload_id is None:
            self._begin()
        assert self.upload_id is not None
        while len(self._flying) >= self._limit:
            self._settle(self._flying[0])
        crc = part.crc64()
        upload = self.client.upload_part(
            self.bucket, self.key, self.upload_id, self._number, part.pieces, crc, submit=False
        )
        # Known before it is under way: an interruption may come at any moment.
        self._flying.append(_Flying(self._number, part.used, crc, part.buffer, upload))
        self.client.submit((upload,))
        self._number += 1

    def check_parts(self) -> None:
        """Take note of the parts that are done. Raises: the first failure among them."""
        for part in [part for part in self._flying if part.upload.done]:
            self._settle(part)

    def _settle(self, part: _Flying) -> None:
        try:
            part.upload.wait()
        except TosException as error:
            text = f"part {part.number} of upload {self.upload_id}: {error.error.message}"
            raise type(error)(replace(error.error, message=text)) from error
        self._done.append((part.number, part.upload.etag, part.crc64, part.size))
        self._flying.remove(part)
        self._free.append(part.buffer)

    def _take(self, size: int, force: bool) -> bool:
        # The part that is being filled is always admitted: a writer without one could not go on.
        # Noted first: what an interruption leaves noted and not taken makes up for itself, the reverse never.
        self._taken += size
        if not self.client.budget.take(size, force=force):
            self._taken -= size
            return False
        return True

    def _give(self, size: int) -> None:
        self.client.budget.give(size)
        self._taken -= size

    # -- the whole

    def put(self, part: Filling | None) -> TosObjectMeta:
        """Send the object as one PUT, and wait. Raises: TosException."""
        part = part or Filling(memoryview(b""), self.check)
        self.crc64 = crc = part.crc64()
        self._whole = upload = self.client.put(
            self.bucket,
            self.key,
            part.pieces,
            crc64=crc,
            content_type=self._content_type,
            forbid_overwrite=self._forbid_overwrite,
            submit=False,
        )
        self.client.submit((upload,))
        upload.wait()
        return TosObjectMeta(self.bucket, self.key, part.used, upload.etag, crc if self.check else upload.crc64)

    def finish_parts(self) -> None:
        """Wait for every part; then `crc64` is that of the whole. Raises: the first failure."""
        while self._flying:
            self._settle(self._flying[0])
        self._done.sort()
        if self.check:
            whole = 0
            for _, _, crc, size in self._done:
                assert crc is not None
                whole = crc64_.combine(whole, crc, size)
            self.crc64 = whole

    def complete(self) -> TosObjectMeta:
        """Make the parts the object. Raises: TosException; TosOutcomeUnknownError where that cannot be told."""
        assert self.upload_id is not None
        self._completing = True
        meta = self.client.complete_upload(
            self.bucket,
            self.key,
            self.upload_id,
            [(number, etag) for number, etag, _, _ in self._done],
            crc64=self.crc64,
            forbid_overwrite=self._forbid_overwrite,
        )
        self.upload_id = None
        size = sum(size for _, _, _, size in self._done)
        return TosObjectMeta(self.bucket, self.key, size, meta.etag, meta.crc64 if self.crc64 is None else self.crc64)

    @property
    def asked_to_commit(self) -> bool:
        """Whether the request that makes the object visible may have left this process."""
        whole = self._whole
        return self._completing or (whole is not None and whole.credentials is not None)  # they are got at each send

    def _begin(self) -> None:
        """Create the upload in another thread: an interruption must not lose the id of one that the service has created."""
        self._creation = created = Creation(
            self.client, self.bucket, self.key, self._content_type, self._forbid_overwrite
        )
        reaper.watch(self)
        try:
            self.upload_id = created.wait()
        except BaseException:
            self.upload_id = created.leave_alone()
            raise
        finally:
            self._creation = None

    # -- its end

    @property
    def holds_anything(self) -> bool:
        """Something that is still to be given back, and that nobody is giving back."""
        return bool(self._taken or self._flying or (self.upload_id is not None and not self._aborting))

    def release(self) -> None:
        """Return when no part is in flight any more; the buffers and their share of the budget are given back. Idempotent."""
        if self._whole is not None:
            self._whole.cancel()
        for part in list(self._flying):
            part.upload.cancel()
        self._flying.clear()
        self._free.clear()
        self._give(self._taken)

    def give_up(self) -> None:
        """Cancel the parts and abort the upload; what fails of that is logged. Idempotent; nothing in a forked child."""
        if self._pid != os.getpid():
            return
        try:
            self.release()
        finally:  # a second Ctrl-C must not leave the upload open
            if self.upload_id is not None and not self._aborting:
                self._aborting = True
                reaper.within(_ABORT_WAIT_S, self.abort)

    def abort(self) -> None:
        """As give_up(), but raise where the upload could not be aborted. Raises: TosException."""
        if self._pid != os.getpid():
            return
        self.release()
        if self.upload_id is not None:
            self._aborting = True
            try:
                self.client.abort_upload(self.bucket, self.key, self.upload_id)
                self.upload_id = None
            finally:
                self._aborting = False

    def give_up_dropped(self, closed: bool) -> None:
        """For a writer that was collected without close(), or whose giving up was interrupted; in the reaper's thread."""
        if not closed:
            _LOG.warning("%s: its writer was dropped without close(); aborting", format_uri(self.bucket, self.key))
        try:
            self.release()
        finally:
            reaper.within(_DROPPED_WAIT_S, self.abort)

    def abort_at_exit(self) -> None:
        """Also what a daemon thread is creating at this moment: that thread will not live to abort it."""
        creation = self._creation
        if creation is not None and self._pid == os.getpid():
            self.upload_id = creation.leave_alone() or self.upload_id
        self.give_up()
