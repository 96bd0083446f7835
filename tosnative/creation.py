"""Creating a multipart upload so that an interruption does not lose the id of one that the service has created."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import tosnative.reaper as reaper
from tosnative.errors import TosException
from tosnative.logs import LOG

if TYPE_CHECKING:
    from tosnative.client import TosClient

__all__ = ["Creation"]

# How long exit waits for one that was left alone, and for its abort.
_LEFT_WAIT_S = 10.0


class Creation:
    """One creation, in a thread of its own: finished, and then undone, even when nobody waits for it any more."""

    def __init__(
        self, client: TosClient, bucket: str, key: str, content_type: str | None, forbid_overwrite: bool
    ) -> None:
        self._client, self._bucket, self._key = client, bucket, key
        self._options = {"content_type": content_type, "forbid_overwrite": forbid_overwrite}
        self._done = threading.Event()
        self._ended = threading.Event()
        self._left_alone = False
        self._id: str | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._create, name="tosnative-create-upload", daemon=True)

    def wait(self) -> str:
        """Begin, and return the upload's id. Raises: what the creation raised, or an interruption; then `leave_alone`."""
        try:
            self._thread.start()
        except RuntimeError:  # no threads any more: the interpreter is ending
            self._create()
        while not self._done.wait(1.0):
            pass  # an untimed wait does not notice a signal that came just before it
        if self._error is not None:
            raise self._error
        assert self._id is not None
        return self._id

    def leave_alone(self) -> str | None:
        """The id, if it is there already; otherwise the upload will be aborted as soon as it is. Exit waits for that."""
        self._left_alone = True
        reaper.within(0.0, lambda: self._ended.wait(_LEFT_WAIT_S))
        return self._id

    def _create(self) -> None:
        try:
            self._id = self._client.create_upload(self._bucket, self._key, **self._options)  # type: ignore[arg-type]
        except BaseException as error:  # noqa: BLE001 - raised in the thread that waits
            self._error = error
        self._done.set()
        try:
            if self._left_alone and self._id is not None:
                self._client.abort_upload(self._bucket, self._key, self._id)
        except TosException as error:
            LOG.warning("an upload stays open: %s", error)
        finally:
            self._ended.set()
