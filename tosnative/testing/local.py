"""`LocalTos`: a TOS of one's own for tests, examples and measurements."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tosnative.testing.address import Address, LocalCredentials
from tosnative.testing.arrivals import RequestRecord
from tosnative.testing.certificates import self_made
from tosnative.testing.channel import Remote
from tosnative.testing.control import Control, Settings
from tosnative.testing.faults import Action, Hook, Rule
from tosnative.testing.messages import Buffer, ServerOptions


class LocalTos(Address):
    """A TOS server on this machine, from construction until `close` or the end of the `with` block.

    >>> with LocalTos(bucket="demo") as tos:
    ...     tos.put("demo", "greeting.txt", b"hello")
    ...     tos.endpoint.startswith("http://127.0.0.1:")
    ...     tos.keys("demo")
    True
    ['greeting.txt']

    It listens on `host` (loopback unless told otherwise), on `port` (0: any free one), and holds everything in memory
    unless `root` names a directory. `bucket` and `buckets` are created, `hns_buckets` with directories. `process=True`
    runs it in a process of its own, so that it does not share an interpreter lock with the client that is tested.
    `tls=True` makes a certificate that `ca_bundle` lets clients trust (it needs the `openssl` command), or takes the
    pair (certificate chain, key) of PEM files; `endpoint` is then https, and plain http is spoken on the same port
    too. `seed` decides the chances of `faults`; `identify=True` has every record say from which
    process the request came (Linux; slow). `switches` are fields of `ServerOptions`, such as
    `check_signatures=False` or `min_part_size_bytes=1 << 20`.

    In a forked or spawned child it is only an address: the attributes are there, the methods raise RuntimeError.
    """

    def __init__(
        self,
        bucket: str | None = None,
        *,
        buckets: Sequence[str] = (),
        hns_buckets: Sequence[str] = (),
        region: str = "cn-test",
        ak: str = "AKLocalTos",
        sk: str = "SKLocalTos",
        token: str | None = None,
        host: str = "127.0.0.1",
        port: int = 0,
        root: str | os.PathLike[str] | None = None,
        process: bool = False,
        tls: bool | tuple[str, str] = False,
        seed: int = 0,
        record: bool = True,
        identify: bool = False,
        **switches: Any,
    ) -> None:
        first = next(iter([*buckets, *hns_buckets]), "") if bucket is None else bucket
        super().__init__(first, region, LocalCredentials(ak, sk, token), bool(tls))
        self._owner = os.getpid()
        self._directory: str | None = None
        self._control: Control | Remote | None = None
        credentials = {ak: (sk, token), **switches.pop("credentials", {})}
        names = list(dict.fromkeys([*([bucket] if bucket is not None else []), *buckets]))
        settings = Settings(
            host=host,
            port=port,
            root=os.fspath(root) if root is not None else None,
            buckets=tuple(names),
            hns_buckets=tuple(hns_buckets),
            certificate=self._certificate(tls, [*names, *hns_buckets]),
            seed=seed,
            record=record,
            identify=identify,
            options=ServerOptions(region=region, credentials=credentials, **switches),
        )
        try:
            self._control = Remote(settings) if process else Control(settings)
            if isinstance(self._control, Control):
                self._control.start()
        except BaseException:
            self.close()
            raise
        self.host, self.port = self._control.address()
        self.faults = ScriptedFaults(self)

    def _certificate(self, tls: bool | tuple[str, str], names: Sequence[str]) -> tuple[str, str] | None:
        if not tls:
            return None
        if isinstance(tls, tuple):
            return tls
        self._directory = tempfile.mkdtemp(prefix="local-tos-")
        made = self_made(Path(self._directory), names)
        self.ca_bundle = str(made.ca_bundle)
        return str(made.chain), str(made.key)

    # -- what it holds

    def put(self, bucket: str, key: str, data: Buffer) -> None:
        """Store an object, as a PutObject would."""
        self._live.put(bucket, key, bytes(data))

    def get(self, bucket: str, key: str) -> bytes:
        """An object's bytes. Raises: ServiceError 404."""
        return self._live.get(bucket, key)

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object; no error if there is none."""
        self._live.delete(bucket, key)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        """All keys in order."""
        return self._live.keys(bucket, prefix)

    def uploads(self, bucket: str) -> list[tuple[str, str]]:
        """The multipart uploads that are open: (key, upload id)."""
        return self._live.uploads(bucket)

    def create_bucket(self, name: str, *, bucket_type: str = "fns") -> None:
        """Create a bucket of type "fns" or "hns" unless it is there."""
        self._live.ensure_bucket(name, bucket_type)

    # -- what arrived

    @property
    def requests(self) -> list[RequestRecord]:
        """The requests so far, in the order in which their heads were complete (at most the last million)."""
        return self._live.requests()

    def clear_requests(self) -> None:
        self._live.clear_requests()

    @property
    def pid(self) -> int:
        """The process that serves: this one, or the server's own."""
        return self._live.pid

    @property
    def connections(self) -> int:
        """How many connections are open now."""
        return self._live.connections()

    # -- its life

    def stop(self) -> None:
        """Refuse connections and drop all that are open, until `start`; the port and the store stay."""
        self._live.stop()

    def start(self) -> None:
        self._live.start()

    def restart(self) -> None:
        """Drop the listener and all connections at once, and come back on the same port with the same store."""
        self._live.stop()
        self._live.start()

    def close(self) -> None:
        """Stop for good; what was in memory is gone. Does nothing in a child process, or a second time."""
        control, directory = self._control, self._directory
        if os.getpid() != self._owner:
            return
        self._control = self._directory = None
        if control is not None:
            control.close()
        if directory is not None:
            shutil.rmtree(directory, ignore_errors=True)

    def __enter__(self) -> LocalTos:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_control": None, "_directory": None, "_owner": 0, "faults": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.faults = ScriptedFaults(self)

    @property
    def _live(self) -> Control | Remote:
        if self._control is None or os.getpid() != self._owner:
            raise RuntimeError("this LocalTos is closed, or was started by another process and is only an address here")
        return self._control


class Fault:
    """A rule in force."""

    def __init__(self, tos: LocalTos, number: int) -> None:
        self._tos = tos
        self._number = number

    @property
    def hits(self) -> int:
        """How many requests, or connections, it happened to."""
        return self._tos._live.fault_hits(self._number)

    def remove(self) -> None:
        self._tos._live.remove_fault(self._number)


class ScriptedFaults:
    """The trouble that a local server makes: `tos.faults`."""

    def __init__(self, tos: LocalTos) -> None:
        self._tos = tos

    def add(
        self,
        *,
        method: str | None = None,
        bucket: str | None = None,
        key: str | None = None,
        query_has: str | None = None,
        reused: bool | None = None,
        skip: int = 0,
        times: int | None = None,
        probability: float = 1.0,
        for_s: float | None = None,
        **action: Any,
    ) -> Fault:
        """Put a rule in force. Which requests: see `Rule`; what happens to them: the fields of `Action`.

        >>> from tosnative.testing import LogNormal
        >>> with LocalTos(bucket="demo", seed=1) as tos:
        ...     trouble = tos.faults.add(method="GET", key="shards/*", times=2, status=503, retry_after_s=1)
        ...     tail = tos.faults.add(delay_s=LogNormal(median_s=0.02, p99_s=0.5), probability=0.5)
        ...     trouble.hits
        0
        """
        rule = Rule(Action(**action), method, bucket, key, query_has, reused, skip, times, probability, for_s)
        return Fault(self._tos, self._tos._live.add_fault(rule))

    def clear(self) -> None:
        """End all trouble. Chance begins anew, as seeded."""
        self._tos._live.clear_faults()

    def set_hook(self, hook: Hook | None) -> None:
        """Have `hook(request)` decide for each request; it runs in the server's thread and may return an Action.

        Raises:
            RuntimeError: the server runs in a process of its own.
        """
        live = self._tos._live
        if not isinstance(live, Control):
            raise RuntimeError("a hook needs a server in this process (process=False)")
        live.server.faults.hook = hook
