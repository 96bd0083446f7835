"""After every fault, on every way through the library: no secret in an error, a log line, a repr or a pickle."""

from __future__ import annotations

import io
import json
import os
import pickle
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import AK, SECRETS, SK, TOKEN, MakeClient, check_error, holds_no_secret

from tosnative.checkpoint import TosCheckpoint
from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig
from tosnative.credentials import EcsRoleCredentials, EnvironmentCredentials, FileCredentials, RefreshingCredentials
from tosnative.datasets import TosIterableDataset, TosMapDataset
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

BODY = os.urandom(9_000_000)  # more than a part

FAULTS: dict[str, dict[str, Any]] = {
    "none": {},
    "reset before": {"reset": "before"},
    "reset after": {"reset": "after"},
    "reset in the request": {"reset_after_request_bytes": 100},
    "reset in the answer": {"reset_after_bytes": 10},
    "truncated": {"truncate_after_bytes": 10},
    "hang": {"hang": "before"},
    "stall": {"stall_after_bytes": 10},
    "400": {"status": 400, "message": "no"},
    "403": {"status": 403, "code": "AccessDenied"},
    "404": {"status": 404, "code": "NoSuchKey"},
    "429": {"status": 429, "retry_after_s": 0},
    "503": {"status": 503, "code": "SlowDown"},
    "expired": {"expired_token": True},
    "error in 200": {"error_in_200": "InternalError"},
    "flipped": {"flip_byte_at": 5},
    "wrong crc": {"crc": "wrong"},
    "wrong range": {"content_range": "bytes 7-9/3"},
    "too long": {"extra_bytes": 7},
    "range ignored": {"ignore_range": True},
    "closed": {"close_idle": True},
}


@pytest.fixture
def tos() -> Any:
    with LocalTos(bucket="test", ak=AK, sk=SK, token=TOKEN) as server:
        server.put("test", "big", BODY)
        server.put("test", "small", BODY[:1000])
        yield server


def ways(client: TosClient) -> dict[str, Callable[[], object]]:
    """What a user does, each ending in one exception or none."""

    def write(data: bytes) -> None:
        with TosObjectWriter(client, "test", "new") as writer:
            writer.write(data)

    return {
        "get": lambda: client.get("test", "small").wait(),
        "range": lambda: client.get("test", "big", 5, 900).wait(),
        "put": lambda: client.put("test", "new", BODY[:1000]).wait(),
        "reader": lambda: TosObjectReader(client, "test", "big").read(),
        "writer, one put": lambda: write(BODY[:1000]),
        "writer, parts": lambda: write(BODY),
        "head": lambda: client.head("test", "small"),
        "list": lambda: client.list_page("test"),
        "copy": lambda: client.copy("test", "small", "test", "copied"),
        "delete": lambda: client.delete_many("test", ["new", "copied"]),
    }


def check_text(*texts: str) -> None:
    for text in texts:
        assert holds_no_secret(text), text


@pytest.mark.parametrize("fault", FAULTS)
def test_no_fault_makes_a_secret_visible(tos: LocalTos, make_client: MakeClient, fault: str) -> None:
    """The log is looked through after each test, down to DEBUG, that of the SDK and of urllib3 too."""
    config = {"first_byte_timeout_s": 0.15, "stall_timeout_s": 0.15, "max_retry_count": 1, "deadline_s": 4.0}
    client = make_client(**config)
    if FAULTS[fault]:
        tos.faults.add(**FAULTS[fault])
    failed = []
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        for name, ask in ways(client).items():
            try:
                ask()
            except Exception as error:  # noqa: BLE001 - whatever it is must hold no secret
                failed.append(name)
                check_error(error)
                _check_chain(error)
    check_text(*(str(warning.message) for warning in warned))
    if fault == "none":
        assert failed == []
    if FAULTS[fault].get("status"):
        assert len(failed) == len(ways(client))


def _check_chain(error: BaseException) -> None:
    """Everything that the error came from, and its notes."""
    seen: BaseException | None = error
    while seen is not None:
        check_text(repr(seen), str(seen), *getattr(seen, "__notes__", ()))
        seen = seen.__cause__ or seen.__context__
    check_text("".join(traceback.format_exception(error)))


def test_no_repr_shows_a_secret(tos: LocalTos, make_client: MakeClient) -> None:
    client = make_client()
    keywords: Any = {"endpoint": tos.endpoint, "region": tos.region, "cred": tos.cred}
    download = client.get("test", "small").wait()
    things: list[object] = [
        client,
        client.provider,
        client.provider.current(),
        client.config,
        client.endpoint,
        download,
        download.target,
        download.target.origin,
        download.attempts,
        download.meta,
        TosObjectReader(client, "test", "small"),
        TosCheckpoint(**keywords),
        TosMapDataset.from_prefix("tos://test/", **keywords),
        TosIterableDataset.from_prefix("tos://test/", **keywords),
        ConnectionOptions(proxy=f"http://user:{SK}@proxy:3128"),
        TosClientConfig(connection=ConnectionOptions(proxy=f"http://user:{SK}@proxy:3128")),
    ]
    with TosObjectWriter(client, "test", "new") as writer:
        check_text(repr(writer))
        writer.write(b"x")
    for thing in things:
        check_text(repr(thing), str(thing))


def fetch() -> Any:
    """A provider's function, which is found again by its name."""
    from tosnative.credentials import Credentials

    return Credentials(AK, SK, TOKEN)


@pytest.mark.parametrize("kind", ["environment", "file", "refreshing", "role"])
def test_what_is_made_with_a_provider_pickles_without_secrets(
    tos: LocalTos, make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    for name, value in (("ACCESS_KEY", AK), ("SECRET_KEY", SK), ("SECURITY_TOKEN", TOKEN)):
        monkeypatch.setenv(f"TOS_{name}", value)
    (tmp_path / "credentials").write_text(json.dumps({"ak": AK, "sk": SK, "token": TOKEN}))
    provider: Any = {
        "environment": EnvironmentCredentials,
        "file": lambda: FileCredentials(tmp_path / "credentials"),
        "refreshing": lambda: RefreshingCredentials(fetch),
        "role": lambda: EcsRoleCredentials("trainer"),
    }[kind]()
    if kind == "role":
        provider._fixed = fetch()  # as if the instance had been asked
    client = make_client(cred=provider)
    assert client.get("test", "small").wait().getvalue() == BODY[:1000]
    reader = TosObjectReader(client, "test", "small")
    assert len(reader.read(10)) == 10
    keywords: Any = {"endpoint": tos.endpoint, "region": tos.region, "cred": provider}
    dataset = TosMapDataset.from_prefix("tos://test/", **keywords)
    assert len(dataset) == 2
    for thing in (provider, client, reader, dataset, TosIterableDataset.from_prefix("tos://test/", **keywords)):
        data = pickle.dumps(thing)
        assert not any(secret.encode() in data for secret in SECRETS), thing
        file = io.BytesIO()
        torch.save(thing, file)
        assert not any(secret.encode() in file.getvalue() for secret in SECRETS), thing
