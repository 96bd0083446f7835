"""Where a distributed checkpoint is: its prefix, and what lies right under it."""

from __future__ import annotations

import os
import re
from typing import Any

from tosnative.errors import TosError, TosException
from tosnative.listing import list_objects
from tosnative.options import ConnectionKeywords, check_keywords, make_client
from tosnative.uri import check_key, format_uri, parse_uri

__all__ = ["CheckpointPlace"]

# As torch's own file system storage names them, too.
_SHARD = re.compile(r"__\d+_[^/]*\.distcp")


class CheckpointPlace:
    """Where a checkpoint is, and the client for it."""

    def __init__(self, url: str | os.PathLike[str], connection: ConnectionKeywords) -> None:
        check_keywords(type(self).__name__, connection, ConnectionKeywords)
        self._bucket, self._prefix = _locate(url)
        self._client = make_client(connection)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.checkpoint_id})"

    @property
    def checkpoint_id(self) -> str:
        """tos://bucket/prefix/."""
        return format_uri(self._bucket, self._prefix)

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: str | os.PathLike[str]) -> bool:
        """Whether it is a tos:// URL with a prefix."""
        try:
            return "://" in os.fspath(checkpoint_id) and bool(_locate(checkpoint_id))
        except ValueError:
            return False

    def _move(self, checkpoint_id: str | os.PathLike[str] | None) -> None:
        if checkpoint_id is not None:
            self._bucket, self._prefix = _locate(checkpoint_id)

    def _key(self, name: str) -> str:
        return self._prefix + name

    def _error(self, kind: type[TosException], text: str, **facts: Any) -> TosException:
        return kind(TosError(text, bucket=self._bucket, key=self._prefix, **facts))

    def _shards(self) -> dict[str, int | None]:
        """The size of each shard that is under the prefix, of whatever save."""
        found = {}
        for meta in list_objects(self._client, self._bucket, self._prefix, delimiter="/"):
            name = meta.key[len(self._prefix) :]
            if _SHARD.fullmatch(name):
                found[name] = meta.size
        return found


def _locate(url: str | os.PathLike[str]) -> tuple[str, str]:
    """(bucket, prefix with a slash at its end). Raises: ValueError for another scheme, or a bucket without a prefix."""
    bucket, key = parse_uri(os.fspath(url))
    if not key.strip("/"):
        raise ValueError(f"{url!r} names a bucket; a checkpoint needs a prefix of its own: tos://bucket/prefix/")
    return bucket, check_key(bucket, key.rstrip("/")) + "/"
