"""A local folder that downloads are written into and never out of, whatever the keys say.

Every folder on the way down is opened relative to its parent and without following symbolic links, so neither `..`, nor
an absolute key, nor a link that lies in the target (or is put there meanwhile) leads outside.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

__all__ = ["check_name", "write_below", "write_file"]

_OPEN_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def check_name(name: str) -> list[str]:
    """Split a relative name at its slashes.

    Raises: ValueError where a file of this name could lie outside the folder, or be confused with another.
    """
    parts = name.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\0" in name:
        raise ValueError(f"{name!r} cannot be a file below the target folder (an empty part, '.', '..' or a NUL in it)")
    return parts


@contextmanager
def write_below(folder: Path, name: str) -> Iterator[BinaryIO]:
    """Write the file folder/name, making the folders between; it appears, whole, when the block ends without an error.

    A file that is there is replaced, a symbolic link at its place too (what it points at stays as it is).
    Raises: ValueError for a name that would leave the folder; OSError, also where a part of it is a link or a file.
    """
    *folders, last = check_name(name)
    folder.mkdir(parents=True, exist_ok=True)
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for part in folders:
            inner = _enter(at, part, name)
            os.close(at)
            at = inner
        with _replacing(at, last) as file:
            yield file
    finally:
        os.close(at)


@contextmanager
def write_file(path: Path) -> Iterator[BinaryIO]:
    """Write the one file that the user named; it appears, whole, when the block ends without an error."""
    at = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with _replacing(at, path.name) as file:
            yield file
    finally:
        os.close(at)


def _enter(at: int, part: str, name: str) -> int:
    """Open the folder `part` in the open folder `at`, made where it is missing."""
    try:
        os.mkdir(part, dir_fd=at)
    except FileExistsError:
        pass
    try:
        return os.open(part, _OPEN_FOLDER, dir_fd=at)
    except OSError as error:
        raise NotADirectoryError(
            error.errno, f"{part!r} is a file or a symbolic link, so nothing is written below it", name
        ) from error


@contextmanager
def _replacing(at: int, name: str) -> Iterator[BinaryIO]:
    """A new file in the open folder `at` that takes the place of `name` at the end, or vanishes on an error."""
    partial = f".{secrets.token_hex(8)}.partial"
    mode = 0o666 if (kept := _mode(at, name)) is None else kept
    try:
        with os.fdopen(os.open(partial, _NEW_FILE, mode, dir_fd=at), "wb", buffering=0) as file:
            yield file
        os.replace(partial, name, src_dir_fd=at, dst_dir_fd=at)
    except BaseException:
        try:
            os.unlink(partial, dir_fd=at)
        except FileNotFoundError:
            pass
        raise


def _mode(at: int, name: str) -> int | None:
    """The permissions of a plain file that is about to be replaced."""
    try:
        found = os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None
    return stat.S_IMODE(found.st_mode) if stat.S_ISREG(found.st_mode) else None
