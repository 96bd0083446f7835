"""Which processes hold the other end of a loopback connection (Linux)."""

from __future__ import annotations

import os
import re
import socket
from pathlib import Path

_LISTING = re.compile(r"^\s*\d+: [0-9A-F]+:(?P<local>[0-9A-F]{4}) [0-9A-F]+:(?P<remote>[0-9A-F]{4}) .*$", re.MULTILINE)
_INODE_COLUMN = 9


def processes_of(sock: socket.socket) -> tuple[int, ...]:
    """The ids of the processes that have the peer's socket open now, in order; () where that cannot be known.

    Reads all of /proc that it may: milliseconds, not for a hot path.
    """
    ours, theirs = sock.getsockname()[1], sock.getpeername()[1]
    inode = _inode_of(theirs, ours)
    if inode is None:
        return ()
    name = f"socket:[{inode}]"
    return tuple(pid for pid in _pids() if _holds(pid, name))


def _inode_of(local: int, remote: int) -> str | None:
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            text = Path(table).read_text()
        except OSError:
            continue
        for match in _LISTING.finditer(text):
            if int(match["local"], 16) == local and int(match["remote"], 16) == remote:
                return match[0].split()[_INODE_COLUMN]
    return None


def _pids() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def _holds(pid: int, name: str) -> bool:
    directory = f"/proc/{pid}/fd"
    try:
        descriptors = os.listdir(directory)
    except OSError:
        return False  # it has ended, or belongs to somebody else
    for descriptor in descriptors:
        try:
            if os.readlink(f"{directory}/{descriptor}") == name:
                return True
        except OSError:
            continue
    return False
