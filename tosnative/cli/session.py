"""What every subcommand works with: the arguments, one client, one checkpoint store, made when first asked for."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from functools import cached_property
from types import TracebackType

from tosnative.checkpoint import TosCheckpoint
from tosnative.cli.places import Remote
from tosnative.client import TosClient
from tosnative.errors import TosNotFoundError
from tosnative.listing import list_objects
from tosnative.meta import TosObjectMeta

__all__ = ["Session", "is_marker"]


def is_marker(found: TosObjectMeta) -> bool:
    """True for the empty objects whose key ends with a slash, which other tools leave for folders."""
    return found.key.endswith("/") and not found.size


class Session:
    """Closes what it made when its `with` block ends."""

    def __init__(self, args: argparse.Namespace) -> None:
        self.args = args
        self.json: bool = getattr(args, "json", False)

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for made in ("streams", "client"):
            if made in self.__dict__:
                self.__dict__[made].close()

    @cached_property
    def client(self) -> TosClient:
        return TosClient(endpoint=self.args.endpoint, region=self.args.region)

    @cached_property
    def streams(self) -> TosCheckpoint:
        return TosCheckpoint(region=self.args.region or "", endpoint=self.args.endpoint)

    def objects(self, where: Remote) -> Iterator[TosObjectMeta]:
        """Every object whose key begins with the key of `where`, in key order."""
        return iter(list_objects(self.client, where.bucket, where.key))

    def below(self, where: Remote) -> Iterator[TosObjectMeta]:
        """The object of exactly this key, if there is one, and every object in the folder of this name."""
        if not where.is_folder:
            try:
                yield self.client.head(where.bucket, where.key)
            except TosNotFoundError as error:
                if error.error.code == "NoSuchBucket":
                    raise
        yield from self.objects(Remote(where.bucket, where.folder()))
