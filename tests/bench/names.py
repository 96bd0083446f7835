"""`bucket.localhost` as an address, for clients that ask the system, which need not know such names."""

from __future__ import annotations

import socket
from typing import Any


def resolve_localhost() -> None:
    """From now on this process takes every name under localhost for this machine."""
    ask = socket.getaddrinfo

    def answer(host: Any, *arguments: Any, **keywords: Any) -> Any:
        name = host.decode() if isinstance(host, bytes) else host
        return ask("127.0.0.1" if name and name.endswith(".localhost") else host, *arguments, **keywords)

    socket.getaddrinfo = answer
