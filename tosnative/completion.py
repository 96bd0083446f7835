"""Completing a multipart upload when answers can be lost: look before trying again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tosnative.errors import (
    TosError,
    TosException,
    TosIntegrityError,
    TosNotFoundError,
    TosOutcomeUnknownError,
)
from tosnative.logs import LOG
from tosnative.meta import TosObjectMeta
from tosnative.wire.control import Control
from tosnative.wire.retry import Failure, Kind

__all__ = ["complete_upload", "find_completed"]


class _Part:
    """What the SDK wants of a part."""

    def __init__(self, number: int, etag: str) -> None:
        self.part_number, self.etag = number, etag


def complete_upload(
    control: Control,
    bucket: str,
    key: str,
    upload_id: str,
    parts: Sequence[tuple[int, str]],
    crc64: int | None,
    forbid_overwrite: bool,
) -> TosObjectMeta:
    """Make the parts the object; returns what the service says of it.

    A request whose answer is lost, or is no object, may have succeeded. So before it is sent again, the upload is looked for:
    while it is there, nothing has become visible. When it is gone and the key holds an object of this CRC64, it has succeeded.
    Raises: TosIntegrityError where the whole's CRC64 is not `crc64`, TosOutcomeUnknownError where neither is certain.
    """
    sdk_parts = [_Part(number, etag) for number, etag in sorted(parts)]

    def ask(sdk: Any) -> TosObjectMeta:
        out = sdk.complete_multipart_upload(
            bucket, key, upload_id, sdk_parts, forbid_overwrite=forbid_overwrite or None
        )
        return _checked(out, bucket, key, crc64)

    def look(error: TosException) -> TosObjectMeta | None:
        LOG.warning("completing tos://%s/%s was not answered; looking for its outcome: %s", bucket, key, error)
        return find_completed(control, bucket, key, upload_id, crc64, error)

    return control.call("POST", bucket, key, ask, look=look)


def _checked(out: Any, bucket: str, key: str, crc64: int | None) -> TosObjectMeta:
    facts: dict[str, Any] = {"operation": "POST", "bucket": bucket, "key": key, "request_id": out.request_id or None}
    if not out.etag:
        # Status 200 is sent before the parts are joined, so the body has the last word. As after a 500: look, try again.
        text = "the service answered 200 to the completion, with no object in it"
        raise Failure(Kind.PROTOCOL, text, request_id=out.request_id, exception=TosException(TosError(text, **facts)))
    if crc64 is not None and out.hash_crc64_ecma is not None and out.hash_crc64_ecma != crc64:
        text = f"the completed object has CRC64 {out.hash_crc64_ecma}, what was written has {crc64}"
        hint = "what the key holds now is damaged: write it again, or delete it"
        raise TosIntegrityError(TosError(text, hint=hint, **facts))
    return TosObjectMeta(bucket, key, None, out.etag, out.hash_crc64_ecma)


def find_completed(
    control: Control, bucket: str, key: str, upload_id: str, crc64: int | None, cause: TosException | None
) -> TosObjectMeta | None:
    """After a completion without an answer: the object if it succeeded, None if the upload is still open.

    Raises: TosOutcomeUnknownError where the upload is gone and the object cannot be told to be ours.
    """
    why = "the completion's answer was lost"
    try:
        control.call("GET", bucket, key, lambda sdk: sdk.list_parts(bucket, key, upload_id, max_parts=1))
        return None
    except TosNotFoundError:
        pass
    except TosException as error:
        raise _unknown(bucket, key, f"{why}, and looking for the upload failed too", cause) from error
    try:
        out = control.call("HEAD", bucket, key, lambda sdk: sdk.head_object(bucket, key))
    except TosException as error:
        raise _unknown(bucket, key, f"{why}, the upload is gone, and the key cannot be seen", cause) from error
    if crc64 is None or out.hash_crc64_ecma != crc64:
        raise _unknown(bucket, key, f"{why}, the upload is gone, and the key holds something else", cause)
    return TosObjectMeta(bucket, key, out.content_length, out.etag, out.hash_crc64_ecma)


def _unknown(bucket: str, key: str, text: str, cause: TosException | None) -> TosOutcomeUnknownError:
    hint = "look at the key before writing it again"
    asked = cause.error.request_id if cause is not None else None
    return TosOutcomeUnknownError(TosError(text, operation="POST", bucket=bucket, key=key, request_id=asked, hint=hint))
