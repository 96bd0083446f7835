"""Where a local server is and who may talk to it: plain values that go to other processes."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class LocalCredentials:
    """The key pair, and token or None, that a local server accepts."""

    ak: str
    sk: str = dataclasses.field(repr=False)
    security_token: str | None = dataclasses.field(default=None, repr=False)


class Address:
    """How to reach a local server.

    `bucket` is the one to use where there is only one, "" for a server that was started without any. `ca_bundle` is
    the file that a client has to trust, None without TLS or with a certificate from elsewhere.
    """

    def __init__(self, bucket: str, region: str, cred: LocalCredentials, tls: bool) -> None:
        self.bucket = bucket
        self.region = region
        self.cred = cred
        self.ca_bundle: str | None = None
        self.host, self.port = "", 0  # known once it listens
        self._scheme = "https" if tls else "http"

    @property
    def ak(self) -> str:
        return self.cred.ak

    @property
    def sk(self) -> str:
        return self.cred.sk

    @property
    def token(self) -> str | None:
        return self.cred.security_token

    @property
    def endpoint(self) -> str:
        """`http://127.0.0.1:PORT`, or https where TLS was asked for."""
        return f"{self._scheme}://{self._authority_host}:{self.port}"

    @property
    def localhost_endpoint(self) -> str:
        """The same by name, for clients that insist on one."""
        return f"{self._scheme}://localhost:{self.port}"

    @property
    def proxy_url(self) -> str:
        """The server as an HTTP proxy to itself: whatever host a client asks it for, it is that host."""
        return f"http://{self._authority_host}:{self.port}"

    def environ(self) -> dict[str, str]:
        """The environment variables by which clients find this server and its credentials."""
        found = {
            "TOS_ENDPOINT": self.endpoint,
            "TOS_REGION": self.region,
            "TOS_ACCESS_KEY": self.ak,
            "TOS_SECRET_KEY": self.sk,
        }
        if self.token is not None:
            found["TOS_SECURITY_TOKEN"] = self.token
        return found

    @property
    def _authority_host(self) -> str:
        host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(self.host, self.host)
        return f"[{host}]" if ":" in host else host
