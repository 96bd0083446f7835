"""What arrived at a local server, for tests to assert on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class RequestRecord:
    """One request that arrived.

    `range` is the Range header as sent, or None. `connection` numbers the accepted connections from 1; `peer` is the
    client's address and port. `arrived` is `time.monotonic()` of the server when the head was complete. `status` and
    `sent_bytes` (body bytes of the answer, as planned) are 0 until the answer starts, and for ever if none was sent;
    `body_bytes` is the size of the request's body once it is complete. `proxied` says that the client spoke as to a
    proxy (absolute-form target, or through CONNECT). `processes` are the ids of the processes that held the client's socket
    when the request came; known only to servers that were started with `identify=True`, on Linux.
    """

    method: str
    bucket: str | None
    key: str | None
    query: dict[str, str]
    headers: dict[str, str]
    range: str | None
    connection: int
    peer: tuple[str, int]
    arrived: float
    proxied: bool = False
    processes: tuple[int, ...] = ()
    body_bytes: int = 0
    status: int = 0
    sent_bytes: int = 0

    @property
    def user_agent(self) -> str:
        """Who asked, by its own account."""
        return self.headers.get("user-agent", "")
