"""What a user names on the command line: a place in TOS or on this machine, a duration."""

from __future__ import annotations

import argparse
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from tosnative.uri import SCHEME, format_uri, parse_uri

__all__ = [
    "STANDARD_INPUT",
    "Local",
    "Place",
    "Remote",
    "bucket_or_remote",
    "duration_s",
    "place",
    "remote",
    "remote_object",
]

STANDARD_INPUT = "-"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


@dataclass(frozen=True, slots=True)
class Remote:
    """tos://bucket/key; the key may be a prefix, or "" for the whole bucket."""

    bucket: str
    key: str

    def __str__(self) -> str:
        return format_uri(self.bucket, self.key)

    @property
    def is_folder(self) -> bool:
        return not self.key or self.key.endswith("/")

    def folder(self) -> str:
        """The prefix of what lies below this key: the key with one slash at its end, "" for the whole bucket."""
        return self.key if self.is_folder else self.key + "/"


@dataclass(frozen=True, slots=True)
class Local:
    """A path on this machine, as the user wrote it."""

    text: str

    def __str__(self) -> str:
        return self.text

    @property
    def path(self) -> Path:
        return Path(self.text)

    @property
    def is_folder(self) -> bool:
        return self.text.endswith("/") or self.path.is_dir()


Place: TypeAlias = Remote | Local


def remote(text: str) -> Remote:
    """Parse tos://bucket[/prefix]; the scheme is required here, since a command line has paths as well."""
    if not text.lower().startswith(SCHEME):
        raise argparse.ArgumentTypeError(f"{text!r} is not a TOS URI: expected {SCHEME}bucket/key")
    try:
        return Remote(*parse_uri(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def remote_object(text: str) -> Remote:
    """Parse the URI of one object: it has a key, and not that of a folder."""
    found = remote(text)
    if found.is_folder:
        raise argparse.ArgumentTypeError(f"{text!r} names a {'folder' if found.key else 'bucket'}, not an object")
    return found


def bucket_or_remote(text: str) -> Remote:
    """Parse a bucket's name or tos://bucket[/prefix]."""
    return remote(text if "/" in text else SCHEME + text)


def place(text: str) -> Place:
    """Parse a TOS URI or a local path. A path that looks like a URI of another scheme is refused."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", text):
        return remote(text)
    if not text:
        raise argparse.ArgumentTypeError("a path must not be empty")
    return Local(text)


def duration_s(text: str) -> float:
    """Parse a duration like 90s, 30m, 12h, 1d or 2w into seconds."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text.strip().lower())
    if not found:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration: expected something like 90s, 30m, 12h, 1d or 2w")
    return float(found[1]) * _SECONDS[found[2]]
