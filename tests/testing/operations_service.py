"""Speaks to the operations of the local server as its wire half does, without sockets."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from tosnative.testing.errors import ServiceError
from tosnative.testing.messages import Buffer, Request, ServerOptions
from tosnative.testing.operations import handle
from tosnative.testing.store import Store

MIB = 1 << 20


@dataclass
class Answer:
    """An answer with its body in one piece; an error's code and EC where it was one."""

    status: int
    headers: dict[str, str]
    body: bytes
    code: str = ""
    ec: str = ""

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass
class Service:
    """A store with one bucket `demo`, and calls by method, key and query."""

    options: ServerOptions = field(default_factory=ServerOptions)
    store: Store = field(default_factory=Store)
    bucket: str = "demo"

    def call(
        self,
        method: str,
        key: str | None = None,
        query: str = "",
        body: Buffer | dict[str, Any] = b"",
        bucket: str | None = None,
        **headers: str,
    ) -> Answer:
        """`query` is name=value&name without encoding; header names are spelt with underscores."""
        pairs = dict((*pair.split("=", 1), "")[:2] for pair in query.split("&") if pair)
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        raw = json.dumps(body).encode() if isinstance(body, dict) else body
        request = Request(method, bucket or self.bucket or None, key, pairs, names, raw)
        try:
            response = handle(self.store, request, self.options)
        except ServiceError as error:
            return Answer(error.status, error.headers, b"", error.code, error.ec)
        parts = [response.body] if isinstance(response.body, bytes | bytearray | memoryview) else response.body
        return Answer(response.status, response.headers, b"".join(parts))

    def put(self, key: str, body: Buffer = b"", **headers: str) -> Answer:
        answer = self.call("PUT", key, body=body, **headers)
        assert answer.status == 200, answer
        return answer

    def all_keys(self) -> list[str]:
        return list(self.store.bucket(self.bucket).keys)

    def upload(self, key: str, *parts: Buffer, **headers: str) -> tuple[str, list[dict[str, Any]]]:
        """Begins an upload with these parts; its id and what Complete wants to hear."""
        upload_id = self.call("POST", key, "uploads", **headers).json["UploadId"]
        listed = []
        for number, part in enumerate(parts, 1):
            answer = self.call("PUT", key, f"partNumber={number}&uploadId={upload_id}", part)
            listed.append({"PartNumber": number, "ETag": answer.headers["ETag"]})
        return upload_id, listed


def service(*, hierarchical: bool = False, store: Store | None = None, **switches: Any) -> Service:
    """A service with the bucket made."""
    made = Service(ServerOptions(**switches), store or Store())
    answer = made.call("PUT", None, x_tos_bucket_type="hns" if hierarchical else "fns")
    assert answer.status == 200
    return made
