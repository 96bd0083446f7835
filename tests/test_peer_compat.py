"""A script written for tostorchconnector runs with only its imports changed.

The script below uses the calls as that product's users write them; `PEER` and `OURS` are its only two differing parts. The
first is not run here, it shows what was changed.
"""

import inspect
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from dataset_objects import connection, content

from tosnative import TosIterableDataset, TosMapDataset
from tosnative.testing import LocalTos

PEER = """
from tostorchconnector import (
    ReaderType, TosCheckpoint, TosIterableDataset, TosMapDataset, TosObjectReader, TosObjectWriter, init_log, init_logs,
)
from tostorchconnector.tos_client import CredentialProvider, TosClientConfig
from tostorchconnector.tos_common import parse_tos_url
from tostorchconnector.tos_object_meta import TosObjectMeta
from tostorchconnector import TosError, TosException
"""

OURS = """
from tosnative import (
    ReaderType, TosCheckpoint, TosIterableDataset, TosMapDataset, TosObjectReader, TosObjectWriter, init_log, init_logs,
)
from tosnative import CredentialProvider, TosClientConfig
from tosnative import parse_tos_url
from tosnative import TosObjectMeta
from tosnative import TosError, TosException
"""

SCRIPT = """
import hashlib, io, os, sys
import torch
from torch.utils.data import DataLoader

REGION, ENDPOINT, AK, SK, BUCKET, FOLDER = sys.argv[1:]

def content(key, size):
    seed = hashlib.sha256(key.encode()).digest()
    return (seed * (size // len(seed) + 1))[:size]

def transform(obj):
    assert isinstance(obj, TosObjectReader)
    assert obj.bucket == BUCKET and not obj.closed
    data = obj.read()
    assert obj.size == len(data) and obj.etag and obj.crc64 is not None
    return obj.key, len(data), data == content(obj.key, len(data))

def main():
    init_log("info", FOLDER, "script")
    init_logs(FOLDER, "common", "info", "audit", "info")
    cred = CredentialProvider(AK, SK)
    assert (cred.ak, cred.sk) == (AK, SK)
    conf = TosClientConfig(8 * 1024 * 1024, 3, 32, 32)
    assert (conf.part_size, conf.max_retry_count) == (8 * 1024 * 1024, 3)
    assert (conf.shared_prefetch_tasks, conf.shared_upload_part_tasks) == (32, 32)
    assert parse_tos_url("tos://b-1/k/x") == parse_tos_url("b-1/k/x") == ("b-1", "k/x")
    meta = TosObjectMeta(BUCKET, "key", 10, "etag", 7)
    assert (meta.bucket, meta.key, meta.size, meta.etag, meta.crc64) == (BUCKET, "key", 10, "etag", 7)

    prefix = f"tos://{BUCKET}/data/"
    urls = [f"tos://{BUCKET}/data/{n:03d}" for n in range(20)]
    lines = os.path.join(FOLDER, "lines.txt")
    with open(lines, "w") as file:
        file.write("\\n".join(urls[:10] + [url[len("tos://"):] for url in urls[10:]]))
    common = dict(region=REGION, endpoint=ENDPOINT, transform=transform, cred=cred, client_conf=conf)

    for more in ({}, dict(use_native_client=True, reader_type=ReaderType.RANGED, buffer_size=1024, enable_crc=True,
                          prefetch_concurrency=4), dict(reader_type=ReaderType.DIRECT, enable_crc=False)):
        for dataset in (
            TosMapDataset.from_prefix(prefix, **common, **more),
            TosMapDataset.from_prefix(prefix, delimiter="/", **common, **more),
            TosMapDataset.from_urls(urls, **common, **more),
            TosMapDataset.from_urls(iter(urls), **common, **more),
            TosMapDataset.from_local_files([lines], **common, **more),
        ):
            assert len(dataset) == 20
            assert dataset[3] == ("data/003", 303, True)
            assert [key for key, _, right in dataset.__getitems__([5, 1]) if right] == ["data/005", "data/001"]
            dataset.close()
        for dataset in (
            TosIterableDataset.from_prefix(prefix, **common, **more),
            TosIterableDataset.from_prefix(prefix, sharding=True, delimiter="/", **common, **more),
            TosIterableDataset.from_urls(iter(urls), sharding=True, **common, **more),
            TosIterableDataset.from_local_files([lines], sharding=True, **common, **more),
        ):
            with dataset as opened:
                assert [(key, right) for key, _, right in opened] == [(f"data/{n:03d}", True) for n in range(20)]

    loader = DataLoader(TosMapDataset.from_prefix(prefix, **common), batch_size=8, num_workers=2)
    assert sum(len(keys) for keys, _, _ in loader) == 20
    loader = DataLoader(TosIterableDataset.from_prefix(prefix, sharding=True, **common), batch_size=8, num_workers=2)
    assert sum(len(keys) for keys, _, _ in loader) == 20

    model = torch.nn.Linear(8, 4)
    with TosCheckpoint(REGION, ENDPOINT, cred, conf, True, True) as checkpoint:
        with checkpoint.writer(f"tos://{BUCKET}/model.pt") as writer:
            assert isinstance(writer, TosObjectWriter)
            torch.save(model.state_dict(), writer)
        assert (writer.bucket, writer.key, writer.closed) == (BUCKET, "model.pt", True)
        with checkpoint.reader(f"tos://{BUCKET}/model.pt") as reader:
            loaded = torch.load(reader)
        assert all(torch.equal(loaded[name], value) for name, value in model.state_dict().items())
        writer = checkpoint.writer(url=f"{BUCKET}/text")
        assert writer.write(b"bytes,") == 6 and writer.write(memoryview(b"view,")) == 5 and writer.write("text") == 4
        writer.flush()
        assert writer.tell() == 15
        writer.close()
        for kind in ReaderType.SEQUENTIAL, ReaderType.RANGED, ReaderType.DIRECT:
            reader = checkpoint.reader(f"tos://{BUCKET}/text", kind, 4)
            assert reader.readable() and reader.seekable() and not reader.writable()
            assert reader.read(6) == b"bytes," and reader.tell() == 6
            buffer = bytearray(5)
            assert reader.readinto(buffer) == 5 and bytes(buffer) == b"view,"
            assert reader.seek(-4, io.SEEK_END) == 11 and reader.read() == b"text"
            reader.close()
            assert reader.closed
    try:
        TosMapDataset.from_urls(f"tos://{BUCKET}/missing", **common)[0]
    except TosException as error:
        assert isinstance(error.args[0], TosError)
        assert error.args[0].status_code == 404 and error.args[0].message and error.args[0].request_id
        assert error.args[0].ec is not None
    else:
        raise AssertionError("a missing object was read")
    print("done")

if __name__ == "__main__":
    main()
"""


@pytest.mark.timeout(170)
def test_a_script_with_only_its_imports_changed(local_tos: LocalTos, tmp_path: Path) -> None:
    for number in range(20):
        key = f"data/{number:03d}"
        local_tos.put("test", key, content(key, 300 + number))
    script = tmp_path / "script.py"
    script.write_text(OURS + SCRIPT)
    command = [sys.executable, "-W", "error", str(script)]
    command += [local_tos.region, local_tos.endpoint, local_tos.ak, local_tos.sk, "test", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "done\n"
    assert local_tos.uploads("test") == []


def test_the_scripts_differ_in_their_imports_only() -> None:
    def names(imports: str) -> list[str]:
        words = textwrap.dedent(imports).replace("(", " ").replace(")", " ").replace(",", " ").split()
        return sorted(word for word in words if word[0].isupper() or ("_" in word and "." not in word))

    assert [name for name in names(PEER) if not name.startswith("tos")] == names(OURS)


# Every keyword of tostorchconnector 1.1.19's constructors.
SHARED = [
    "region",
    "endpoint",
    "transform",
    "cred",
    "client_conf",
    "use_native_client",
    "reader_type",
    "buffer_size",
    "enable_crc",
    "prefetch_concurrency",
    "cloud_type",
    "service_name",
    "idc",
    "cluster",
    "addr_family",
]
DEFAULTS: dict[str, Any] = {
    "region": "",
    "transform": lambda reader: reader,
    "use_native_client": True,
    "enable_crc": True,
    "prefetch_concurrency": 0,
}


@pytest.mark.parametrize("kind", [TosMapDataset, TosIterableDataset])
@pytest.mark.parametrize("constructor", ["from_urls", "from_prefix", "from_local_files"])
def test_every_keyword_with_its_default_is_taken(
    local_tos: LocalTos, tmp_path: Path, kind: Any, constructor: str
) -> None:
    (tmp_path / "lines").write_text("tos://test/a")
    argument = {"from_urls": ["tos://test/a"], "from_prefix": "tos://test/", "from_local_files": [tmp_path / "lines"]}
    keywords = {name: DEFAULTS.get(name) for name in SHARED}
    if constructor == "from_prefix":
        keywords["delimiter"] = None
    if kind is TosIterableDataset:
        keywords["sharding"] = False
    keywords.update(endpoint=local_tos.endpoint, region=local_tos.region, cred=local_tos.cred)
    local_tos.put("test", "a", b"abc")
    with getattr(kind, constructor)(argument[constructor], **keywords) as dataset:
        assert [reader.read() for reader in dataset] == [b"abc"]


def test_private_cloud_parameters_warn_where_they_are_set(local_tos: LocalTos) -> None:
    for name in ("cloud_type", "service_name", "idc", "cluster", "addr_family"):
        with pytest.warns(UserWarning, match=name) as caught:
            TosMapDataset.from_prefix("tos://test/", **connection(local_tos), **{name: "x"})
        assert caught[0].filename == __file__, "the warning points at the line that set it"


def test_the_first_argument_is_positional_and_the_rest_are_keywords() -> None:
    for kind in (TosMapDataset, TosIterableDataset):
        for constructor, first in (
            ("from_urls", "urls"),
            ("from_prefix", "prefix"),
            ("from_local_files", "local_files"),
        ):
            parameters = inspect.signature(getattr(kind, constructor)).parameters
            assert next(iter(parameters)) == first
            assert all(
                parameter.kind in (parameter.KEYWORD_ONLY, parameter.VAR_KEYWORD)
                for name, parameter in parameters.items()
                if name != first
            )
