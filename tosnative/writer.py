"""TosObjectWriter: a file, open for writing, that becomes an object when it is closed, and only then."""

from __future__ import annotations

import io
import logging
import os
import sys
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

import tosnative.reaper as reaper
from tosnative.buffers import as_bytes
from tosnative.errors import TosAbortedError, TosError, TosException
from tosnative.filling import Filling
from tosnative.meta import TosObjectMeta
from tosnative.outcome import add_note, is_over, may_have_succeeded, settle
from tosnative.parts import plan_parts
from tosnative.uploads import ObjectUpload
from tosnative.uri import check_key, format_uri

if TYPE_CHECKING:
    from typing_extensions import Self

    from tosnative.client import TosClient

__all__ = ["TosObjectWriter"]

_AUDIT = logging.getLogger("tosnative.audit")


class TosObjectWriter(io.BufferedIOBase):
    """Writes one object. Nothing is visible under the key before close(); then all of it is, or an error says so.

    Only close() (or leaving the `with` block normally, or commit()) commits. These abort, and leave what was under the key
    as it was: an exception in the `with` block; close() while an exception is in flight that was not when the writer was
    made, as in `finally: writer.close()`; abort(); being collected; the end of the process. A signal that kills the process at once
    leaves an upload open, invisible, until somebody aborts uploads of its age; so does a lost answer to creating one, empty.

    The first failure sticks: the upload is aborted, and every later call raises that failure. A forked child cannot use the
    writer and never touches its upload.
    Up to one part is sent by a single PUT, more as a multipart upload, parts in parallel: config.part_size each, 4 MiB at
    least, growing with the object (see PartPlan). It holds the part that is being filled and those in flight: 16, or
    config.shared_upload_part_tasks, and no more than half of the memory budget.
    size_hint: about how many bytes will be written, so that large objects get large parts from the start.
    One thread at a time. An io.BufferedWriter or TextIOWrapper around a writer closes, and so commits, when it is collected.
    """

    def __init__(
        self,
        client: TosClient,
        bucket: str,
        key: str,
        *,
        size_hint: int | None = None,
        content_type: str | None = None,
        forbid_overwrite: bool = False,
        enable_crc: bool | None = None,
    ) -> None:
        self._state = "closed"  # until everything below is there; __del__ looks at it
        self.bucket = bucket
        self.key = check_key(bucket, key)
        plan = plan_parts(client.config.part_size, size_hint)
        check = client.config.enable_crc if enable_crc is None else enable_crc
        self._upload = ObjectUpload(client, bucket, key, plan, check, content_type, forbid_overwrite)
        self._pid = os.getpid()
        self._part: Filling | None = None
        self._written = 0
        self._meta: TosObjectMeta | None = None
        self._failure: BaseException | None = None
        self._in_flight_before = sys.exc_info()[1]
        self._state = "open"

    @property
    def name(self) -> str:
        """tos://bucket/key."""
        return format_uri(self.bucket, self.key)

    @property
    def closed(self) -> bool:
        return self._state != "open"

    @property
    def meta(self) -> TosObjectMeta | None:
        """The object as it was committed: size, ETag, CRC64; None before."""
        return self._meta

    def __repr__(self) -> str:
        return f"<TosObjectWriter {self.name} {self._state} at {self._written}>"

    # -- writing

    def write(self, data: Any, /) -> int:
        """Append any contiguous buffer, or a str as UTF-8; returns the number of bytes. The data may change afterwards.

        Large `bytes` objects are kept until they are sent, everything else is copied.
        Blocks while as many parts are in flight as may be. Raises: TosException kinds, from now on at every call; ValueError
        after close(); TypeError for what is no buffer.
        """
        self._check_usable()
        view = as_bytes(data.encode() if isinstance(data, str) else data)
        size = len(view)
        try:
            part = self._part
            if part is not None and size <= part.room:
                part.add(view)
            else:
                self._fill(view)
        except BaseException as error:
            self._fail(error)
            raise
        self._written += size
        return size

    def _fill(self, view: memoryview) -> None:
        """Append what does not fit into the part that is being filled. A full part is sent when more comes."""
        at = 0
        while at < len(view):
            part = self._part
            if part is None or not part.room:
                if part is not None:
                    self._part = None
                    self._upload.send(part)
                part = self._part = self._upload.part()
            size = min(part.room, len(view) - at)
            part.add(view[at : at + size])
            at += size

    def tell(self) -> int:
        """The number of bytes written so far."""
        self._check_usable()
        return self._written

    def flush(self) -> None:
        """Raise what has failed so far. Sends nothing: what is visible under the key is decided by close()."""
        self._check_usable()
        try:
            self._upload.check_parts()
        except BaseException as error:
            self._fail(error)
            raise

    def readable(self) -> bool:
        return False

    def writable(self) -> bool:
        self._check_usable()
        return True

    def seekable(self) -> bool:
        return False

    # -- the end

    def close(self) -> None:
        """Commit, and return when the object is visible. Idempotent after a commit or an abort.

        While an exception is in flight that was not when the writer was made, it aborts and raises that exception: torch.save
        finishes its file even when pickling fails, and a `finally: writer.close()` would publish it. commit() commits then.
        Raises: TosException; TosOutcomeUnknownError where a lost answer leaves open whether it was committed.
        An interruption (KeyboardInterrupt, whatever a signal's handler raises) stays what it is. Where it came while the
        service was committing, the key is looked at first: `meta` is set where the object is there, and where that cannot be
        told the interruption's __cause__ is a TosOutcomeUnknownError.
        """
        if self._state == "committed" or self._state == "aborted":
            return
        self._check_owner()
        self._raise_failure()
        flying = sys.exc_info()[1]
        if flying is not None and flying is not self._in_flight_before:
            self._give_up("aborted")
            add_note(
                flying, f"{self.name} was not written: this exception was in flight at close(); commit() would commit"
            )
            raise flying
        self._commit()

    def commit(self) -> TosObjectMeta:
        """close(), whatever exception is in flight; returns what was committed.

        Raises: as close(); TosAbortedError after abort().
        """
        self._check_owner()
        if self._state == "aborted":
            raise self._error(TosAbortedError, "the writer was aborted")
        self._raise_failure()
        if self._meta is None:
            self._commit()
        assert self._meta is not None
        return self._meta

    def abort(self) -> None:
        """Give up: nothing becomes visible, nothing stays behind. Idempotent; does nothing after a commit or in a forked child.

        Raises: TosException where the service could not be told to forget the upload; the object stays invisible, and another
        call tells it again.
        """
        if self._pid == os.getpid() and self._state != "committed":
            if self._state == "open":
                self._drop_buffer("aborted")
            self._upload.abort()

    def __enter__(self) -> Self:
        self._check_usable()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Commit after a block that ended normally; abort after any other, and raise the failure that write() raised, if one."""
        if self._pid != os.getpid() and error is not None:
            return
        if self._failure is not None and self._failure is not error:
            self._state = "failed"
            raise self._failure  # torch.save turns what write() raised into "unexpected pos", Ctrl-C too
        if error is not None:
            if self._state == "open":
                self._give_up("aborted" if self._failure is None else "failed")
        elif self._state == "open":
            self._check_owner()
            self._commit()

    def _commit(self) -> None:
        upload = self._upload
        single = upload.upload_id is None
        try:
            if single:
                meta = upload.put(self._part)
            else:
                assert self._part is not None
                upload.send(self._part)
                upload.finish_parts()
                meta = upload.complete()
            self._succeeded(meta)
        except BaseException as error:
            if not (upload.asked_to_commit and may_have_succeeded(error)):
                self._fail(error)
                self._state = "failed"
                raise
            problem = error
            try:
                self._fail(error)
            except BaseException as again:  # noqa: BLE001 - Ctrl-C twice
                problem = again if isinstance(error, TosException) else error
            self._state = "failed"
            # A multipart upload that the service has forgotten cannot be completed any more.
            self._look(problem, over=is_over(error) or (not single and upload.upload_id is None))

    def _look(self, error: BaseException, over: bool) -> None:
        """Return where the commit that ended in `error` was carried out nevertheless; an interruption goes on in any case."""
        written = TosObjectMeta(self.bucket, self.key, self._written, None, self._upload.crc64)
        meta, goes_on = settle(self._upload.client, written, error, over)
        if meta is not None:
            self._succeeded(meta)
        else:
            self._failure = goes_on
        if goes_on is not None:
            raise goes_on

    def _succeeded(self, meta: TosObjectMeta) -> None:
        self._meta, self._failure = meta, None
        self._drop_buffer("committed")
        self._upload.release()
        _AUDIT.info("wrote %s size=%d etag=%s crc64=%s", self.name, self._written, meta.etag, meta.crc64)

    def _fail(self, error: BaseException) -> None:
        """From now on every call raises this. Returns when nothing is in flight; the upload is aborted as far as possible."""
        if self._failure is None:
            self._failure = error
        self._give_up(self._state)

    def _give_up(self, state: str) -> None:
        self._drop_buffer(state)
        self._upload.give_up()

    def _drop_buffer(self, state: str) -> None:
        self._state = state
        self._part = None
        if state != "open":
            self._in_flight_before = None

    def __del__(self) -> None:
        # Takes no lock: it may run in a thread that holds the engine's. See reaper. A BufferedIOBase would close() here.
        if self._state != "closed" and self._upload.holds_anything:
            closed = self._state != "open" or self._failure is not None
            reaper.later(self._pid, partial(self._upload.give_up_dropped, closed))

    def __reduce__(self) -> NoReturn:
        raise TypeError("a TosObjectWriter cannot be pickled: it belongs to the process that made it")

    # -- what a call may find

    def _check_usable(self) -> None:
        if self._pid != os.getpid():
            self._check_owner()
        if self._failure is not None:
            raise self._failure
        if self._state != "open":
            raise ValueError("I/O operation on closed file.")

    def _raise_failure(self) -> None:
        if self._failure is not None:
            self._state = "failed"
            raise self._failure

    def _check_owner(self) -> None:
        if self._pid != os.getpid():
            raise self._error(TosAbortedError, f"a writer belongs to the process that made it ({self._pid})")

    def _error(self, kind: type[TosException], text: str) -> TosException:
        return kind(TosError(text, operation="PUT", bucket=self.bucket, key=self.key))
