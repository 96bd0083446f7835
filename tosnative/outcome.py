"""What a commit that was cut short has left under the key: look, rather than guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from tosnative.logs import LOG
from tosnative.meta import TosObjectMeta
from tosnative.uri import format_uri

if TYPE_CHECKING:
    from tosnative.client import TosClient

__all__ = ["add_note", "is_over", "may_have_succeeded", "settle"]

# The answer of a request that failed so may merely be lost.
_ANSWER_LOST = (TosConnectionError, TosTimeoutError, TosUnavailableError)
_LOOK_WAIT_S = 30.0


def may_have_succeeded(error: BaseException) -> bool:
    """Whether a commit that raised this may have been carried out: its answer was lost, or the waiting was interrupted."""
    return isinstance(error, _ANSWER_LOST) or not isinstance(error, TosException)


def is_over(error: BaseException) -> bool:
    """Whether the service is through with a request that ended so; after a silence or an interruption it may be at work."""
    return isinstance(error, TosException) and not isinstance(error, TosTimeoutError)


def settle(
    client: TosClient, written: TosObjectMeta, error: BaseException, over: bool
) -> tuple[TosObjectMeta | None, BaseException | None]:
    """After a commit of `written` (its size and CRC64) ended in `error`: (the object, where it is there; what to raise).

    over: no request is under way that could still change the outcome. Waits half a minute at most.
    An interruption (Ctrl-C, what a signal's handler raised) is raised as it is, with a note, and from a TosOutcomeUnknownError
    where the outcome cannot be told; other errors give way to that error, and to a success.
    """
    interruption = None if isinstance(error, TosException) else error
    try:
        meta = _find(client, written, error, over)
    except TosOutcomeUnknownError as unknown:
        if interruption is None:
            unknown.__cause__ = error
            return None, unknown
        return None, _from(interruption, unknown)
    except BaseException as again:  # noqa: BLE001 - Ctrl-C, which the caller raises
        return None, _from(interruption or again, _unknown(written, error, "looking at the key was interrupted"))
    if interruption is None:
        return meta, error if meta is None else None
    name = format_uri(written.bucket, written.key)
    add_note(interruption, f"{name} {'was not' if meta is None else 'had been'} written when this interrupted")
    return meta, interruption


def _from(interruption: BaseException, unknown: TosOutcomeUnknownError) -> BaseException:
    LOG.warning("%s", unknown)  # a SystemExit is not shown
    unknown.__cause__, unknown.__context__ = interruption.__cause__, None  # no cycle
    interruption.__cause__ = unknown
    add_note(interruption, str(unknown))
    return interruption


def add_note(error: BaseException, text: str) -> None:
    """Say more about an exception, from Python 3.11 on."""
    if hasattr(error, "add_note"):
        error.add_note(text)


def _find(client: TosClient, written: TosObjectMeta, error: BaseException, over: bool) -> TosObjectMeta | None:
    """What the key holds where that is `written`, None where it is not and will not be. Raises: TosOutcomeUnknownError."""
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
        problem = f"the key cannot be looked at ({problems[0] if problems else 'no answer'})"
        raise _unknown(written, error, problem)
    meta = found[0]
    if meta is not None and meta.size == written.size:
        if written.crc64 is None or meta.crc64 is None:
            raise _unknown(written, error, "there is no checksum to tell the object by")
        if meta.crc64 == written.crc64:
            return meta
    if not over:
        raise _unknown(written, error, "the key does not hold it so far")
    return None


def _unknown(written: TosObjectMeta, error: BaseException, why: str) -> TosOutcomeUnknownError:
    text = f"whether the object was written is not known: {type(error).__name__} while it was committed, and {why}"
    hint = "look at the key before writing it again"
    return TosOutcomeUnknownError(TosError(text, operation="PUT", bucket=written.bucket, key=written.key, hint=hint))
