"""Logging: everything goes to the logger "tosnative" and its children; nothing is set up unless asked."""

from __future__ import annotations

import logging
import os
from pathlib import Path

__all__ = ["LOG", "init_log", "init_logs"]

LOG = logging.getLogger("tosnative")
LOG.addHandler(logging.NullHandler())
_AUDIT = logging.getLogger("tosnative.audit")
_LINE = "%(asctime)s %(levelname)s %(process)d %(threadName)s %(name)s: %(message)s"
_LEVELS = {"trace": logging.DEBUG, "warn": logging.WARNING, "fatal": logging.CRITICAL, "off": logging.CRITICAL + 10}


def _level(level: int | str) -> int:
    if isinstance(level, int):
        return level
    found = _LEVELS.get(level.lower(), logging.getLevelName(level.upper()))
    if not isinstance(found, int):
        raise ValueError(f"unknown log level {level!r}: use debug, info, warning, error or critical")
    return found


def _to_file(logger: logging.Logger, level: int, directory: str, name: str) -> None:
    path = Path(directory or os.curdir) / name
    path.parent.mkdir(parents=True, exist_ok=True)
    for handler in list(logger.handlers):
        if isinstance(handler, logging.FileHandler) and Path(handler.baseFilename) == path.resolve():
            logger.removeHandler(handler)
            handler.close()
    handler = logging.FileHandler(path.resolve(), delay=True)
    handler.setFormatter(logging.Formatter(_LINE))
    logger.addHandler(handler)
    logger.setLevel(level)


def init_log(level: int | str = "info", directory: str = "", file_name_prefix: str = "tosnative") -> None:
    """Write this library's log of `level` and above to `directory/file_name_prefix.log`, and keep other handlers.

    Calling it again with the same file replaces the level. Lines never hold secrets.
    Raises: ValueError for an unknown level, OSError where the directory cannot be made.
    """
    _to_file(LOG, _level(level), directory, f"{file_name_prefix}.log")


def init_logs(
    directory: str = "",
    common_log: str = "tosnative.log",
    common_level: int | str = "info",
    audit_log: str = "tosnative-audit.log",
    audit_level: int | str = "info",
) -> None:
    """Write two files into `directory`: the common log, and the audit log with one line for each object written.

    Raises: ValueError for an unknown level, OSError where the directory cannot be made.
    """
    _to_file(LOG, _level(common_level), directory, common_log)
    _to_file(_AUDIT, _level(audit_level), directory, audit_log)
