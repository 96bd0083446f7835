"""The public names and signatures.

Two tables: what users of tostorchconnector call, which has to work with only the imports changed; and, in
`public_api.txt`, everything that is public here, so that a change of it shows in a review. Rewrite that file with

    python tests/test_public_api.py
"""

import enum
import importlib
import inspect
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import Dataset, IterableDataset

import tosnative
from tosnative.testing import LocalTos

SNAPSHOT = Path(__file__).with_name("public_api.txt")

PEER_NAMES = [
    "TosCheckpoint",
    "TosObjectReader",
    "TosObjectWriter",
    "TosIterableDataset",
    "TosMapDataset",
    "TosObjectMeta",
    "ReaderType",
    "CredentialProvider",
    "TosClientConfig",
    "TosError",
    "TosException",
    "init_log",
    "init_logs",
]
PEER_MODULE_NAMES = ["parse_tos_url"]  # what its users take from its modules; here it comes from the root

CLOUD = ["cloud_type", "service_name", "idc", "cluster", "addr_family"]
DATASET = [
    *[
        "region",
        "endpoint",
        "transform",
        "cred",
        "client_conf",
        "use_native_client",
        "reader_type",
        "buffer_size",
        "enable_crc",
    ],
    "prefetch_concurrency",
    *CLOUD,
]
# name -> (parameters that can be given by position, in this order; parameters that can be given by name)
PEER_CALLS: dict[str, tuple[list[str], list[str]]] = {
    "CredentialProvider": (["ak", "sk"], []),
    "TosClientConfig": (["part_size", "max_retry_count", "shared_prefetch_tasks", "shared_upload_part_tasks"], []),
    "TosObjectMeta": (["bucket", "key", "size", "etag", "crc64"], []),
    "TosCheckpoint": (
        ["region", "endpoint", "cred", "client_conf", "use_native_client", "enable_crc", *CLOUD],
        [],
    ),
    "TosCheckpoint.reader": (["url", "reader_type", "buffer_size"], []),
    "TosCheckpoint.writer": (["url"], []),
    "TosMapDataset.from_urls": (["urls"], DATASET),
    "TosMapDataset.from_prefix": (["prefix"], [*DATASET, "delimiter"]),
    "TosMapDataset.from_local_files": (["local_files"], DATASET),
    "TosIterableDataset.from_urls": (["urls"], [*DATASET, "sharding"]),
    "TosIterableDataset.from_prefix": (["prefix"], [*DATASET, "sharding", "delimiter"]),
    "TosIterableDataset.from_local_files": (["local_files"], [*DATASET, "sharding"]),
    "init_log": (["level", "directory", "file_name_prefix"], []),
    "init_logs": (["directory", "common_log", "common_level", "audit_log", "audit_level"], []),
}
STREAM_METHODS = [
    "read",
    "read1",
    "readinto",
    "readinto1",
    "readline",
    "readlines",
    "seek",
    "tell",
    "close",
    "readable",
    "writable",
    "seekable",
]
WRITER_METHODS = ["write", "tell", "flush", "close", "writable", "readable", "seekable"]


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        for i in range(20):
            server.put("demo", f"p/{i:02d}.bin", bytes([i]) * 100)
        yield server


def resolve(name: str) -> Any:
    value: Any = tosnative
    for part in name.split("."):
        value = getattr(value, part)
    return value


# -- the names


def test_all_is_sorted_and_whole() -> None:
    assert list(tosnative.__all__) == sorted(set(tosnative.__all__))
    assert set(PEER_NAMES) <= set(tosnative.__all__)
    for name in tosnative.__all__:
        assert getattr(tosnative, name) is not None


def test_dir_shows_the_names_that_are_loaded_on_demand() -> None:
    assert set(tosnative.__all__) <= set(dir(tosnative))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no_such_name"):
        tosnative.no_such_name  # noqa: B018 - the access is the test


@pytest.mark.parametrize("name", PEER_MODULE_NAMES)
def test_what_came_from_modules_comes_from_the_root(name: str) -> None:
    assert callable(getattr(tosnative, name))


@pytest.mark.parametrize("name", PEER_NAMES)
def test_public_classes_pickle_by_their_name(name: str) -> None:
    assert pickle.loads(pickle.dumps(resolve(name))) is resolve(name)


# -- the peer's calls


@pytest.mark.parametrize("name", PEER_CALLS)
def test_parameters_of_the_peer(name: str) -> None:
    by_position, by_name = PEER_CALLS[name]
    parameters = inspect.signature(resolve(name)).parameters
    positional = [p.name for p in parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD and p.name != "self"]
    assert positional[: len(by_position)] == by_position
    takes_options = any(p.kind is p.VAR_KEYWORD for p in parameters.values())
    if not takes_options:  # the names in **options are tried out below
        assert set(by_name) <= set(parameters)


def keywords(tos: LocalTos) -> dict[str, Any]:
    """Every keyword that a dataset of the peer takes, with a value that it accepts."""
    return {
        "region": tos.region,
        "endpoint": tos.endpoint,
        "transform": tosnative.TosObjectReader.read,
        "cred": tos.cred,
        "client_conf": tosnative.TosClientConfig(),
        "use_native_client": True,
        "reader_type": tosnative.ReaderType.SEQUENTIAL,
        "buffer_size": 1 << 20,
        "enable_crc": True,
        "prefetch_concurrency": 4,
        **dict.fromkeys(CLOUD),
    }


@pytest.mark.parametrize("kind", ["TosMapDataset", "TosIterableDataset"])
def test_every_keyword_of_the_peers_datasets(kind: str, tos: LocalTos, tmp_path: Path) -> None:
    options = keywords(tos)
    assert set(options) == set(DATASET)
    if kind == "TosIterableDataset":
        options["sharding"] = False
    expected = [bytes([i]) * 100 for i in range(20)]
    urls = [f"tos://demo/p/{i:02d}.bin" for i in range(20)]
    listing = tmp_path / "urls.txt"
    listing.write_text("\n".join([*urls[:10], *(url.removeprefix("tos://") for url in urls[10:])]) + "\n")
    cls = resolve(kind)
    assert list(cls.from_prefix("tos://demo/p/", delimiter=None, **options)) == expected
    assert list(cls.from_urls(iter(urls), **options)) == expected
    assert list(cls.from_local_files([str(listing)], **options)) == expected


@pytest.mark.parametrize("kind", ["TosMapDataset", "TosIterableDataset"])
def test_a_misspelt_keyword_is_refused(kind: str, tos: LocalTos) -> None:
    with pytest.raises(TypeError, match="prefetch_concurency"):
        resolve(kind).from_prefix("tos://demo/p/", endpoint=tos.endpoint, prefetch_concurency=4)


def test_the_cloud_parameters_are_accepted_with_a_warning(tos: LocalTos) -> None:
    with pytest.warns(UserWarning, match="idc"):
        tosnative.TosMapDataset.from_prefix(
            "tos://demo/p/", region=tos.region, endpoint=tos.endpoint, cred=tos.cred, idc="somewhere"
        ).close()


def test_positional_checkpoint(tos: LocalTos) -> None:
    config = tosnative.TosClientConfig(8 << 20, 3, 32, 32)
    assert (config.part_size, config.max_retry_count) == (8 << 20, 3)
    assert (config.shared_prefetch_tasks, config.shared_upload_part_tasks) == (32, 32)
    store = tosnative.TosCheckpoint(tos.region, tos.endpoint, tos.cred, config, True, True)
    with store:
        with store.writer("tos://demo/c/model.pt") as writer:
            torch.save({"weight": torch.arange(10)}, writer)
        with store.reader("tos://demo/c/model.pt", tosnative.ReaderType.RANGED, 1 << 20) as reader:
            assert torch.equal(torch.load(reader, weights_only=True)["weight"], torch.arange(10))
        with store.reader("demo/c/model.pt") as reader:
            assert (reader.bucket, reader.key, reader.closed) == ("demo", "c/model.pt", False)
            assert reader.size == len(reader.read())


def test_streams_and_datasets_are_what_they_stand_for() -> None:
    assert issubclass(tosnative.TosObjectReader, io.BufferedIOBase)
    assert issubclass(tosnative.TosObjectWriter, io.BufferedIOBase)
    assert issubclass(tosnative.TosMapDataset, Dataset)
    assert issubclass(tosnative.TosIterableDataset, IterableDataset)
    assert issubclass(tosnative.ReaderType, enum.Enum)
    assert {"SEQUENTIAL", "RANGED", "DIRECT"} == {kind.name for kind in tosnative.ReaderType}
    # One concrete class: torch.load calls read() with readinto()'s exception still set.
    assert all(name in vars(tosnative.TosObjectReader) for name in ("read", "readinto", "seek", "tell", "close"))
    assert all(callable(getattr(tosnative.TosObjectReader, name)) for name in STREAM_METHODS)
    assert all(callable(getattr(tosnative.TosObjectWriter, name)) for name in WRITER_METHODS)


def test_map_dataset_calls(tos: LocalTos) -> None:
    options = {"region": tos.region, "endpoint": tos.endpoint, "cred": tos.cred}
    with tosnative.TosMapDataset.from_prefix("tos://demo/p/", **options) as dataset:
        assert len(dataset) == 20
        reader = dataset[3]
        assert (reader.bucket, reader.key) == ("demo", "p/03.bin")
        assert [one.read() for one in dataset.__getitems__([5, 1])] == [bytes([5]) * 100, bytes([1]) * 100]
        assert reader.read() == bytes([3]) * 100
        assert reader.etag
        assert isinstance(reader.crc64, int)


def test_credentials_and_meta() -> None:
    cred = tosnative.CredentialProvider("the-ak", "the-sk")
    assert (cred.ak, cred.sk) == ("the-ak", "the-sk")
    assert "the-sk" not in repr(cred)
    assert "the-ak" not in repr(cred)
    meta = tosnative.TosObjectMeta("b", "k", 3, "etag", 7)
    assert (meta.bucket, meta.key, meta.size, meta.etag, meta.crc64) == ("b", "k", 3, "etag", 7)


def test_the_error_pair(tos: LocalTos) -> None:
    store = tosnative.TosCheckpoint(tos.region, tos.endpoint, tos.cred)
    with store, pytest.raises(tosnative.TosException) as caught:
        store.reader("tos://demo/absent").read()
    error = caught.value.args[0]
    assert isinstance(error, tosnative.TosError)
    assert error.status_code == 404
    assert error.request_id
    assert error.message
    assert isinstance(error.ec, str)


# -- everything that is public here


# Special methods that users rely on by syntax.
SPECIAL = ["__len__", "__getitem__", "__getitems__", "__iter__", "__enter__", "__exit__"]


def describe(name: str, value: Any) -> Iterator[str]:
    """Lines that change whenever what users can write changes."""
    if isinstance(value, type):
        bases = ", ".join(base.__name__ for base in value.__bases__ if not base.__name__.startswith("_"))
        yield f"class {name}({bases})"
        if not issubclass(value, (enum.Enum, Exception)):
            yield f"    {name}{signature(value)}"
        for member, inner in sorted(members(value).items()):
            if isinstance(inner, (staticmethod, classmethod)) or inspect.isfunction(inner):
                yield f"    .{member}{signature(getattr(value, member))}"
            else:
                yield f"    .{member}"
    elif callable(value):
        yield f"def {name}{signature(value)}"
    else:
        yield name


def members(cls: type) -> dict[str, Any]:
    """The public members that classes of ours define, inherited ones too."""
    found: dict[str, Any] = {}
    for base in reversed(cls.__mro__):
        if base.__module__.startswith("tosnative"):
            found |= {name: inner for name, inner in vars(base).items() if not name.startswith("_") or name in SPECIAL}
    return found


def signature(value: Any) -> str:
    """Parameters and defaults, without the annotations, which Python versions print differently."""
    parameters = inspect.signature(value).parameters.values()
    plain = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in parameters]
    return str(inspect.Signature(plain))


def describe_all() -> str:
    lines = []
    for module_name in ("tosnative", "tosnative.testing"):
        module = importlib.import_module(module_name)
        lines.append(f"# {module_name}")
        for name in sorted(module.__all__):
            lines += describe(name, getattr(module, name))
        lines.append("")
    return "\n".join(lines)


def test_public_api_is_as_written_down() -> None:
    assert describe_all() == SNAPSHOT.read_text(encoding="utf-8"), "if meant, run: python tests/test_public_api.py"


if __name__ == "__main__":
    SNAPSHOT.write_text(describe_all(), encoding="utf-8")
