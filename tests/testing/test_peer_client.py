"""The peer's Rust client, which we did not write, against the local server.

It cannot live in the project's own environment: TOSNATIVE_PEER_PYTHON names a Python that has it.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tosnative.testing import LocalTos

SCRIPT = Path(__file__).parent / "peer_calls.py"
MIB = 1 << 20


def pattern(size: int) -> bytes:
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(scope="session")
def peer_python() -> str:
    python = os.environ.get("TOSNATIVE_PEER_PYTHON") or sys.executable
    probe = subprocess.run([python, "-c", "import tosnativeclient"], capture_output=True, timeout=60, check=False)
    if probe.returncode:
        pytest.skip(f"{python} has no tosnativeclient; TOSNATIVE_PEER_PYTHON can name a Python that has")
    return python


@pytest.fixture(params=["flat", "directories"])
def tos(request: pytest.FixtureRequest) -> Iterator[LocalTos]:
    where = {"bucket": "peer"} if request.param == "flat" else {"hns_buckets": ("peer",)}
    with LocalTos(**where) as server:
        yield server


def run(python: str, tos: LocalTos, name: str) -> Any:
    endpoint = tos.endpoint.replace("127.0.0.1", "localhost")
    command = [python, str(SCRIPT), name, endpoint, tos.region, tos.ak, tos.sk, "peer"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def test_reads_small_and_large_objects_whole_and_in_part(peer_python: str, tos: LocalTos) -> None:
    data = {"small": pattern(1000), "window": pattern(MIB + 1), "parts": pattern(40 * MIB)}
    for key, value in data.items():
        tos.put("peer", key, value)
    found = run(peer_python, tos, "read")
    expected = data | {"middle": data["parts"][9 * MIB : 9 * MIB + 20], "preloaded": data["small"]}
    assert found == {key: [len(value), digest(value)] for key, value in expected.items()}
    ranges = [record.range for record in tos.requests if record.method == "GET" and record.key == "parts"]
    assert "bytes=0-1048575" in ranges
    assert all("if-match" in record.headers for record in tos.requests if record.range and record.key == "parts")


def test_reads_a_batch(peer_python: str, tos: LocalTos) -> None:
    data = {f"batch/{number:03d}": pattern(1000 + number) for number in range(50)}
    for key, value in data.items():
        tos.put("peer", key, value)
    assert run(peer_python, tos, "batch") == [[key, digest(value)] for key, value in data.items()]


def test_writes_in_one_put_and_in_parts(peer_python: str, tos: LocalTos) -> None:
    refusal = run(peer_python, tos, "write")
    assert refusal is not None
    assert "409" in str(refusal)
    assert tos.get("peer", "w/small") == pattern(1000)
    assert tos.get("peer", "w/large") == pattern(20 * MIB + 3)
    assert tos.get("peer", "w/empty") == b""
    assert tos.get("peer", "w/direct") == b"direct"
    assert not tos.uploads("peer")
    parts = [record for record in tos.requests if "partNumber" in record.query]
    assert sorted(record.query["partNumber"] for record in parts) == ["1", "2", "3"]


def test_lists_pages_and_directories(peer_python: str, tos: LocalTos) -> None:
    keys = [f"list/{name}/{number:03d}" for name in "abc" for number in range(10)] + ["list/top", "list/é中"]
    for key in keys:
        tos.put("peer", key, key.encode())
    found = run(peer_python, tos, "listing")
    files = [entry for entry in found["entries"] if not entry[0].endswith("/")]
    assert [entry[:2] for entry in files] == [[key, len(key.encode())] for key in keys]
    assert all(etag.startswith('"') and crc for _, _, etag, crc in files)
    assert all(size == 7 for size in found["pages"][:-1])
    assert found["prefixes"] == ["list/a/", "list/b/", "list/c/"]
    assert found["keys"] == ["list/top", "list/é中"]
    assert [key for key in found["later"] if not key.endswith("/")] == keys[5:]
    assert [key for key in found["walk"] if not key.endswith("/")] == keys


def test_sees_metadata(peer_python: str, tos: LocalTos) -> None:
    tos.put("peer", "dir/file", b"hello world")
    found = run(peer_python, tos, "metadata")
    key, size, etag, crc64, storage_class = found["head"]
    assert (key, size, crc64, storage_class) == ("dir/file", 11, 5981764153023615706, "STANDARD")
    assert etag == f'"{hashlib.md5(b"hello world").hexdigest()}"'
    assert found["lookup"] == [True, False, None]
    assert found["missing"] == 404
    kind = "hns" if tos.requests[-1].bucket is None and found["bucket"][1] == "hns" else "fns"
    assert found["bucket"] == ["peer", kind]
    assert found["buckets"] == ["peer"]


def test_deletes(peer_python: str, tos: LocalTos) -> None:
    for key in ("gone/one", "gone/tree/a", "gone/tree/b/c", "kept"):
        tos.put("peer", key, b"x")
    run(peer_python, tos, "remove")
    assert [key for key in tos.keys("peer") if not key.endswith("/")] == ["kept"]


def test_copies_and_renames(peer_python: str, tos: LocalTos) -> None:
    large = pattern(20 * MIB + 5)
    data = {"small": b"s", "large": large, "renamed": b"r", "tree/a": b"ta", "tree/b/c": b"tc"}
    for key, value in data.items():
        tos.put("peer", f"from/{key}", value)
    run(peer_python, tos, "copy_and_rename")
    for key, value in data.items():
        assert tos.get("peer", f"to/{key}") == value
    left = [key for key in tos.keys("peer", "from/") if not key.endswith("/")]
    assert left == ["from/large", "from/small"]


def test_appends_and_makes_directories(peer_python: str, tos: LocalTos) -> None:
    tos.put("peer", "log", b"some")
    run(peer_python, tos, "append")
    assert tos.get("peer", "log") == b"some and more"
    assert tos.get("peer", "touched") == b""
    assert {"made/", "made/deep/"} <= set(tos.keys("peer"))


def test_makes_and_deletes_buckets(peer_python: str, tos: LocalTos) -> None:
    assert run(peer_python, tos, "buckets") == [["fns", "hns"], 404]


def test_serves_the_connectors_datasets_and_checkpoint(peer_python: str, tos: LocalTos) -> None:
    probe = subprocess.run(
        [peer_python, "-c", "import tostorchconnector"], capture_output=True, timeout=60, check=False
    )
    if probe.returncode:
        pytest.skip(f"{peer_python} has no tostorchconnector")
    data = {f"samples/{number}": pattern(3000 + number) for number in range(9)}
    for key, value in data.items():
        tos.put("peer", key, value)
    found = run(peer_python, tos, "connector")
    samples = [[key, digest(value)] for key, value in data.items()]
    assert [entry for entry in found["map"] if not entry[0].endswith("/")] == samples
    assert [entry for entry in found["iterable"] if not entry[0].endswith("/")] == samples
    assert found["SEQUENTIAL"]
    assert found["RANGED"]
    assert found["DIRECT"]
    assert len(tos.get("peer", "state.pt")) > 8_000_000
