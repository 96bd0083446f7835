"""What a commit that was cut short has left under the key: look, rather than guess."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

import tosnative.reaper as reaper
from tosnative.errors import (
    TosConnectionError,
    TosError,
    TosException,
    TosNotFoundError,
    TosOutcomeUnknownError,
    TosTimeoutError,
    TosUnavailableError,
)
from tosnative.meta import TosObjectMeta
from tosnative.metrics import METRICS

if TYPE_CHECKING:
    from tosnative.client import TosClient

__all__ = ["find_outcome", "may_have_succeeded"]

# The answer of a request that failed so may merely be lost.
_ANSWER_LOST = (TosConnectionError, TosTimeoutError, TosUnavailableError)
_LOOK_WAIT_S = 30.0


def may_have_succeeded(error: BaseException) -> bool:
    """Whether a commit that raised this may have been carried out: its answer was lost, or the waiting was interrupted."""
    return isinstance(error, _ANSWER_LOST) or not isinstance(error, Exception)


def find_outcome(client: TosClient, written: TosObjectMeta, error: BaseException, *, settled: bool) -> TosObjectMeta:
    """After a commit of `written` (its size and CRC64) ended in `error`: return what the key holds where that is it.

    settled: no request is under way that could still change the outcome. Waits half a minute at most.
    Raises: `error` where nothing was committed; TosOutcomeUnknownError, from `error`, where that cannot be told.
    """
    found: list[TosObjectMeta | None] = []
    problems: list[TosException] = []

    def look() -> None:
        try:
            found.append(client.head(written.bucket, written.key))
        except TosNotFoundError:
            found.append(None)
        except TosException as problem:
            problems.append(problem)

    reaper.within(_LOOK_WAIT_S, look)
    if not found:
        if METRICS.connections_opened == 0:
            raise error  # nothing ever left this process
        _raise_unknown(written, f"the key cannot be looked at ({problems[0] if problems else 'no answer'})", error)
    meta = found[0]
    if meta is not None and meta.size == written.size:
        if written.crc64 is None or meta.crc64 is None:
            _raise_unknown(written, "there is no checksum to tell the object by", error)
        if meta.crc64 == written.crc64:
            return meta
    if not settled:
        _raise_unknown(written, "the key does not hold it so far", error)
    raise error


def _raise_unknown(written: TosObjectMeta, why: str, cause: BaseException) -> NoReturn:
    text = f"whether the object was written is not known: {type(cause).__name__} while it was committed, and {why}"
    hint = "look at the key before writing it again"
    error = TosError(text, operation="PUT", bucket=written.bucket, key=written.key, hint=hint)
    raise TosOutcomeUnknownError(error) from cause
