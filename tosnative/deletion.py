"""Deleting many objects by one request, and believing the answer only where it speaks of all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tosnative.errors import TosError, TosException
from tosnative.pages import DeletedObject
from tosnative.wire.control import Control
from tosnative.wire.retry import Failure, Kind

__all__ = ["MOST_AT_ONCE", "delete_objects"]

MOST_AT_ONCE = 1000


def delete_objects(control: Control, bucket: str, keys: Sequence[str]) -> None:
    """Delete at most 1,000 objects; those that are not there count as deleted.

    The service is asked to name what it has deleted as well, because what went wrong as a whole may be told in the body of an
    answer with status 200, and with failures alone named that reads as success. Such an answer is asked for again.
    Raises: TosException, naming the first object that could not be deleted where only some could not.
    """
    objects = [DeletedObject(key) for key in keys]

    def ask(sdk: Any) -> Any:
        out = sdk.delete_multi_objects(bucket, objects, quiet=False)
        told = len(out.deleted) + len(out.error)
        if told < len(set(keys)):
            text = f"the service answered 200 to the deletion of {len(objects)} objects, and told of {told}"
            raise Failure(Kind.PROTOCOL, text, request_id=out.request_id, exception=TosException(TosError(text)))
        return out

    out = control.call("DELETE", bucket, "", ask)
    if out.error:
        first = out.error[0]
        text = f"{len(out.error)} of {len(objects)} objects could not be deleted; the first: {first.message}"
        facts = {"code": first.code, "bucket": bucket, "key": first.key, "request_id": out.request_id}
        raise TosException(TosError(text, operation="DELETE", **facts))
