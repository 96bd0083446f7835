"""Either connector by its name, made to talk to a local server. Imports neither before it is asked for."""

from __future__ import annotations

import importlib
from dataclasses import asdict, dataclass
from typing import Any

OURS, PEER = "tosnative", "tostorchconnector"


@dataclass(frozen=True)
class Place:
    """Where a server is, who may use it, and which connector talks to it.

    first_byte_s, stall_s: when ours gives an answer up and asks again; the peer has no such settings. Both are given the
    same part size, and besides that their own defaults.
    """

    connector: str
    endpoint: str
    region: str
    ak: str
    sk: str
    bucket: str
    part_size: int = 1 << 20
    first_byte_s: float = 30.0
    stall_s: float = 20.0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def url(self, key: str) -> str:
        return f"tos://{self.bucket}/{key}"

    def module(self) -> Any:
        return importlib.import_module(self.connector)

    def keywords(self) -> dict[str, Any]:
        """What datasets and checkpoints of the connector take to reach the server."""
        connector = self.module()
        options: dict[str, Any] = {"part_size": self.part_size}
        if self.connector == OURS:
            times = {"first_byte_timeout_s": self.first_byte_s, "stall_timeout_s": self.stall_s}
            options["connection"] = connector.ConnectionOptions(**times)
        return {
            "region": self.region,
            "endpoint": self.endpoint,
            "cred": connector.CredentialProvider(self.ak, self.sk),
            "client_conf": connector.TosClientConfig(**options),
        }

    def counters(self) -> dict[str, int]:
        """This process's counters of the connector; none of the peer, which has none."""
        if self.connector != OURS:
            return {}
        found: dict[str, int] = self.module().get_metrics()
        return found
