"""tos:// for the parts of Lightning that look at paths themselves, ModelCheckpoint first of all: they ask fsspec."""

from __future__ import annotations

import datetime
import os
import re
from typing import TYPE_CHECKING, Any, ClassVar

import fsspec  # type: ignore[import-untyped]  # comes with torch
from fsspec.spec import AbstractFileSystem  # type: ignore[import-untyped]

from tosnative.errors import TosNotFoundError
from tosnative.pages import ListPage
from tosnative.reader import TosObjectReader
from tosnative.uri import check_key, format_uri, parse_uri
from tosnative.writer import TosObjectWriter

if TYPE_CHECKING:
    from tosnative.client import TosClient

__all__ = ["TosPaths", "locate", "serve_paths"]

# What pathlib and os.path.normpath make of tos://
_ONE_SLASH = re.compile(r"tos:/(?!/)")


def locate(path: str | os.PathLike[str]) -> tuple[str, str]:
    """(bucket, key). Raises: ValueError for what is no object's URL."""
    url = _ONE_SLASH.sub("tos://", os.fspath(path), count=1)
    if "://" not in url:
        raise ValueError(f"{url!r} is no tos:// URL: give the trainer and its callbacks paths like tos://bucket/run/")
    bucket, key = parse_uri(url)
    return bucket, check_key(bucket, key)


class TosPaths(AbstractFileSystem):  # type: ignore[misc]  # fsspec has no types
    """As much of a file system as Lightning asks for: what is there, reading, writing. Folders need not be made.

    Names are whole URLs. client: of the plugin that was made last.
    """

    protocol = "tos"
    cachable = False
    client: ClassVar[TosClient | None] = None

    @property
    def _live(self) -> TosClient:
        assert self.client is not None
        return self.client

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        return path

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        """Raises: TosNotFoundError, a FileNotFoundError."""
        bucket, key = locate(path)
        name = format_uri(bucket, key).rstrip("/")
        try:
            meta = self._live.head(bucket, key.rstrip("/"))
        except TosNotFoundError:
            page = self._page(path, max_keys=1)
            if not (page.objects or page.prefixes):
                raise
            return {"name": name, "size": 0, "type": "directory"}
        return {"name": name, "size": meta.size, "type": "file", "modified": meta.last_modified}

    def ls(self, path: str, detail: bool = True, **options: Any) -> list[Any]:
        """What lies right under `path`, folders too. Raises: TosNotFoundError where nothing does."""
        bucket, _ = locate(path)
        found: list[dict[str, Any]] = []
        token = None
        while True:
            page = self._page(path, token=token)
            found += [
                {"name": format_uri(bucket, folder).rstrip("/"), "size": 0, "type": "directory"}
                for folder in page.prefixes
            ]
            found += [
                {
                    "name": format_uri(bucket, meta.key),
                    "size": meta.size,
                    "type": "file",
                    "modified": meta.last_modified,
                }
                for meta in page.objects
                if not meta.key.endswith("/")
            ]
            token = page.token
            if token is None:
                break
        if not found:
            found = [self.info(path)]
        return found if detail else [entry["name"] for entry in found]

    def modified(self, path: str) -> datetime.datetime:
        return datetime.datetime.fromtimestamp(self.info(path)["modified"] or 0, datetime.timezone.utc)

    def makedirs(self, path: str, exist_ok: bool = False) -> None:
        """Nothing to do."""

    def _page(self, path: str, **options: Any) -> ListPage:
        bucket, key = locate(path)
        return self._live.list_page(bucket, key.rstrip("/") + "/", delimiter="/", **options)

    def _open(self, path: str, mode: str = "rb", **_: Any) -> TosObjectReader | TosObjectWriter:
        bucket, key = locate(path)
        return (TosObjectReader if "r" in mode else TosObjectWriter)(self._live, bucket, key)


def serve_paths(client: TosClient) -> None:
    """Let fsspec find tos:// here, through this client, unless something else that is installed serves it (tosfs)."""
    TosPaths.client = client
    try:
        fsspec.get_filesystem_class(TosPaths.protocol)
    except (ImportError, ValueError):
        fsspec.register_implementation(TosPaths.protocol, TosPaths, clobber=True)
