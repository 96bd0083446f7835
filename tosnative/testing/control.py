"""A server with its store, built from plain settings, and everything that can be done to it from outside the wire."""

from __future__ import annotations

import itertools
import json
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from tosnative.testing.arrivals import RequestRecord
from tosnative.testing.attributes import allows_anonymous
from tosnative.testing.faults import Rule
from tosnative.testing.messages import Buffer, Request, Response, ServerOptions
from tosnative.testing.operations import handle
from tosnative.testing.rendering import pieces_of
from tosnative.testing.server import Server
from tosnative.testing.store import Store


@dataclass(frozen=True)
class Settings:
    """What a server is built from; can be sent to another process.

    `root` keeps the store on disk, None in memory. `buckets` and `hns_buckets` are created unless they are there.
    `certificate` is a pair of PEM files, chain and key, and adds TLS to the port. `record` keeps what arrived, `identify` adds
    from which process.
    """

    host: str = "127.0.0.1"
    port: int = 0
    root: str | None = None
    buckets: tuple[str, ...] = ()
    hns_buckets: tuple[str, ...] = ()
    certificate: tuple[str, str] | None = None
    seed: int = 0
    record: bool = True
    identify: bool = False
    options: ServerOptions = field(default_factory=ServerOptions)

    def with_buckets(self) -> Iterator[tuple[str, str]]:
        """The buckets to begin with, and their types."""
        return itertools.chain(((name, "fns") for name in self.buckets), ((name, "hns") for name in self.hns_buckets))


class Control:
    """Acts on a server in its own process, from any thread. Every method takes and returns what can be pickled.

    Raises `tosnative.testing.errors.ServiceError` where the service would refuse.
    """

    def __init__(self, settings: Settings) -> None:
        options = settings.options
        store = Store(settings.root) if settings.root is not None else Store()
        self._store = store
        self._options = options
        context = _tls_context(settings.certificate)
        try:
            self.server = Server(
                lambda request: handle(store, request, options),
                options,
                host=settings.host,
                port=settings.port,
                ssl_context=context,
                seed=settings.seed,
                record=settings.record,
                identify=settings.identify,
                is_public=lambda request: allows_anonymous(store, request),
            )
        except BaseException:
            store.close()
            raise
        try:
            for name, bucket_type in settings.with_buckets():
                self.ensure_bucket(name, bucket_type)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        self.server.close()
        self._store.close()

    # -- what the store holds

    def ensure_bucket(self, name: str, bucket_type: str = "fns") -> None:
        """Create a bucket unless it is there."""
        if name not in self.buckets():
            self._do("PUT", name, headers={"x-tos-bucket-type": bucket_type})

    def buckets(self) -> list[str]:
        return [bucket["Name"] for bucket in self._json("GET", None, None, {})["Buckets"]]

    def put(self, bucket: str, key: str, data: Buffer) -> None:
        self._do("PUT", bucket, key, body=data)

    def get(self, bucket: str, key: str) -> bytes:
        return b"".join(pieces_of(self._do("GET", bucket, key).body))

    def delete(self, bucket: str, key: str) -> None:
        self._do("DELETE", bucket, key)

    def keys(self, bucket: str, prefix: str = "") -> list[str]:
        found: list[str] = []
        query = {"list-type": "2", "max-keys": "1000", "prefix": prefix}
        while True:
            page = self._json("GET", bucket, None, query)
            found += [item["Key"] for item in page.get("Contents", ())]
            if not page["IsTruncated"]:
                return found
            query["continuation-token"] = page["NextContinuationToken"]

    def uploads(self, bucket: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        query = {"uploads": "", "max-uploads": "1000"}
        while True:
            page = self._json("GET", bucket, None, query)
            found += [(item["Key"], item["UploadId"]) for item in page.get("Uploads", ())]
            if not page["IsTruncated"]:
                return found
            query["key-marker"], query["upload-id-marker"] = page["NextKeyMarker"], page["NextUploadIdMarker"]

    def _do(
        self,
        method: str,
        bucket: str | None = None,
        key: str | None = None,
        query: dict[str, str] | None = None,
        headers: dict[str, str] | None = None,
        body: Buffer = b"",
    ) -> Response:
        # The caller may change its buffer afterwards, and the store keeps what it is given.
        host = {"host": f"{self.server.address[0]}:{self.server.address[1]}"}
        request = Request(method, bucket, key, dict(query or {}), {**host, **(headers or {})}, bytes(body))
        with self.server.lock:
            return handle(self._store, request, self._options)

    def _json(self, method: str, bucket: str | None, key: str | None, query: dict[str, str]) -> Any:
        return json.loads(b"".join(pieces_of(self._do(method, bucket, key, query).body)))

    # -- what arrived, and what is to go wrong

    @property
    def pid(self) -> int:
        return os.getpid()

    def address(self) -> tuple[str, int]:
        return self.server.address

    def requests(self) -> list[RequestRecord]:
        return list(self.server.records.copy())

    def clear_requests(self) -> None:
        self.server.records.clear()

    def connections(self) -> int:
        return len(self.server.connections)

    def add_fault(self, rule: Rule) -> int:
        return self.server.faults.add(rule)

    def remove_fault(self, number: int) -> None:
        self.server.faults.remove(number)

    def clear_faults(self) -> None:
        self.server.faults.clear()

    def fault_hits(self, number: int) -> int:
        return self.server.faults.hits(number)

    # -- its life

    def stop(self) -> None:
        self.server.stop()

    def start(self) -> None:
        self.server.start()


def _tls_context(certificate: tuple[str, str] | None) -> ssl.SSLContext | None:
    if certificate is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context
