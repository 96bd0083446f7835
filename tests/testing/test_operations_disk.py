"""A store with a root directory: everything is there after a restart, and a process that dies tears nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from operations_service import MIB, Service, service

from tosnative.testing.store import Store


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def reopened(tos: Service, root: Path) -> Service:
    tos.store.close()
    return Service(tos.options, Store(root))


def files(root: Path) -> set[Path]:
    return set((root / "data").glob("*/*"))


def test_everything_is_there_after_a_restart(root: Path) -> None:
    tos = service(store=Store(root), min_part_size_bytes=1)
    tos.put("a b/中", b"hello", content_type="text/x", x_tos_meta_a="1", x_tos_tagging="k=v", x_tos_object_expires="3")
    tos.put("empty")
    tos.put("large", bytes(MIB) + b"end")
    tos.call("POST", "log", "append&offset=0", b"one ")
    tos.call("POST", "log", "append&offset=4", b"two")
    upload_id, parts = tos.upload("multi", b"first", b"second")
    tos.call("PUT", bucket="deep", x_tos_bucket_type="hns", x_tos_tagging="x=y")
    tos.call("PUT", "d/file", body=b"x", bucket="deep")
    before = [(key, tos.call("GET", key)) for key in tos.all_keys()]

    tos = reopened(tos, root)
    assert [(key, tos.call("GET", key)) for key in tos.all_keys()] == before
    assert tos.call("GET", "log").body == b"one two"
    assert tos.call("HEAD", bucket="deep").headers["x-tos-bucket-type"] == "hns"
    assert tos.call("GET", "d", bucket="deep").headers["x-tos-directory"] == "true"
    assert tos.call("POST", "multi", f"uploadId={upload_id}", {"Parts": parts}).status == 200

    tos = reopened(tos, root)
    assert tos.call("GET", "multi", range="bytes=3-7").body == b"stsec"
    assert tos.call("GET", None, "uploads").json["Uploads"] == []
    tos.store.close()


def test_files_live_as_long_as_something_needs_them(root: Path) -> None:
    tos = service(store=Store(root), min_part_size_bytes=1)
    tos.put("k", b"shared")
    tos.call("PUT", "copy", x_tos_copy_source="demo/k")
    assert len(files(root)) == 1
    tos.call("DELETE", "k")
    assert tos.call("GET", "copy").body == b"shared"
    tos = reopened(tos, root)
    assert tos.call("GET", "copy").body == b"shared"
    tos.put("copy", b"other")
    assert len(files(root)) == 1
    upload_id, _ = tos.upload("k", b"part")
    assert len(files(root)) == 2
    tos.call("DELETE", "k", f"uploadId={upload_id}")
    tos.call("DELETE", "copy")
    assert not files(root)
    assert tos.call("DELETE").status == 204
    tos.store.close()


@pytest.mark.parametrize("size", [10, MIB])
def test_a_get_in_flight_keeps_its_version(root: Path, size: int) -> None:
    tos = service(store=Store(root))
    tos.put("k", b"o" * size)
    view = tos.store.bucket("demo").objects["k"].content.views()[0]
    tos.put("k", b"n" * size)
    tos.call("DELETE", "k")
    assert view == b"o" * size
    tos.store.close()
    assert view == b"o" * size


def test_one_process_at_a_time(root: Path) -> None:
    store = Store(root)
    with pytest.raises(RuntimeError, match="in use"):
        Store(root)
    store.close()
    Store(root).close()


def test_a_file_that_nothing_names_is_removed_at_the_start(root: Path) -> None:
    tos = service(store=Store(root))
    tos.put("k", b"kept")
    (root / "data" / "ff").mkdir(exist_ok=True)
    (root / "data" / "ff" / "ff").write_bytes(b"half of an obj")
    tos = reopened(tos, root)
    assert len(files(root)) == 1
    assert tos.call("GET", "k").body == b"kept"
    tos.store.close()


WRITER = """
import sys
from operations_service import service
from tosnative.testing.store import Store

tos = service(store=Store(sys.argv[1]), min_part_size_bytes=1)
number = 0
while True:
    number += 1
    tos.put("k", bytes([number % 256]) * 300_000)
    upload_id, parts = tos.upload("multi", *[bytes([number % 256]) * 100_000] * 3)
    tos.call("POST", "multi", f"uploadId={upload_id}", {"Parts": parts})
    if number == 20:
        print("ready", flush=True)
"""


def test_a_killed_process_leaves_whole_objects(root: Path) -> None:
    here = Path(__file__).parent
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(here), str(here.parents[1])])}
    command = [sys.executable, "-c", WRITER, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "ready\n"
        os.kill(writer.pid, signal.SIGKILL)
    tos = Service(store=Store(root))
    for key in ("k", "multi"):
        body = tos.call("GET", key).body
        assert len(body) == 300_000
        assert len(set(body)) == 1
    assert len(files(root)) <= 4 + 3 * len(tos.store.bucket("demo").uploads)
    tos.store.close()


def test_a_transaction_that_fails_changes_no_file(root: Path) -> None:
    tos = service(store=Store(root))
    tos.put("k", b"shared")
    tos.call("PUT", "copy", x_tos_copy_source="demo/k")
    before = files(root)

    def half_a_change() -> None:
        bucket = tos.store.bucket("demo")
        with tos.store.transaction():
            tos.store.put(bucket, bucket.objects["k"].changed(content=tos.store.content(b"new")))
            tos.store.remove(bucket, "nothing")

    with pytest.raises(KeyError):
        half_a_change()
    assert files(root) == before
    tos = reopened(tos, root)
    assert tos.call("GET", "k").body == b"shared"
    tos.call("DELETE", "k")
    assert tos.call("GET", "copy").body == b"shared"
    tos.store.close()
