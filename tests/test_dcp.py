"""Distributed checkpoints in one process: what they hold, how they are read, and what becomes of the one before."""

import io
import logging
import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.planner import LoadPlan

from tests import dcp_service
from tests.dcp_ranks import connection, empty, same, state
from tests.dcp_service import URL
from tosnative.dcp import TosStorageReader, TosStorageWriter
from tosnative.errors import TosChangedError, TosException, TosExistsError, TosIntegrityError, TosNotFoundError
from tosnative.testing import LocalTos

tos = dcp_service.tos
pytestmark = dcp_service.ALONE


def save(tos: LocalTos, what: dict[str, Any], url: str = URL, **options: Any) -> None:
    dcp.save(what, storage_writer=TosStorageWriter(url, **connection(tos), **options))


def load(tos: LocalTos, into: dict[str, Any], url: str = URL) -> dict[str, Any]:
    dcp.load(into, storage_reader=TosStorageReader(url, **connection(tos)))
    return into


def shards(tos: LocalTos) -> list[str]:
    return [key for key in tos.keys("demo", "run/step-1/") if key.endswith(".distcp")]


def cause(raised: pytest.ExceptionInfo[CheckpointException]) -> BaseException:
    error = raised.value.failures[0][0]
    assert isinstance(error, BaseException)
    return error


TENSORS = {
    "large": torch.randn(700, 900),
    "half": torch.randn(1000, 600).bfloat16(),
    "scalar": torch.tensor(3.5),
    "none": torch.zeros(0, 4),
    "bool": torch.rand(400, 300) > 0.5,
    "int8": torch.arange(100_000).to(torch.int8),
    "complex": torch.randn(300, 300, dtype=torch.complex64),
    "conjugate": torch.randn(300, 300, dtype=torch.complex64).conj(),
    "transposed": torch.randn(900, 500).t(),
    "view": torch.randn(3000, 300)[::2, 7:],
    "small view": torch.randn(3000, 300)[5],
    "channels last": torch.randn(8, 16, 32, 32).to(memory_format=torch.channels_last),
    "parameter": torch.nn.Parameter(torch.randn(300, 400)),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_of_every_kind(tos: LocalTos, name: str) -> None:
    tensor = TENSORS[name]
    save(tos, {"a": torch.ones(3), "t": tensor})
    for target in (torch.zeros_like(tensor), torch.zeros(tensor.shape, dtype=tensor.dtype)):
        assert torch.equal(load(tos, {"t": target.detach()})["t"], tensor)


def test_another_type_and_layout_than_was_saved(tos: LocalTos) -> None:
    tensor = torch.randn(900, 700)
    save(tos, {"t": tensor})
    assert torch.equal(load(tos, {"t": torch.zeros(900, 700, dtype=torch.float64)})["t"], tensor.double())
    assert torch.equal(load(tos, {"t": torch.zeros(700, 900).t()})["t"], tensor)


class Tagged(torch.Tensor):
    """As quantization libraries have them: torch.save writes more of it than its memory."""


def test_tensors_of_classes_of_their_own(tos: LocalTos) -> None:
    tensor = torch.randn(300, 400).as_subclass(Tagged)
    save(tos, {"t": tensor})
    torch.serialization.add_safe_globals([Tagged])
    loaded = load(tos, {"t": torch.zeros(300, 400).as_subclass(Tagged)})["t"]
    assert type(loaded) is Tagged
    assert torch.equal(loaded, tensor)


def test_a_bucket_with_folders() -> None:
    with LocalTos(hns_buckets=["demo"]) as tos:
        for seed in (1, 2):
            save(tos, state(seed))
            assert same(load(tos, empty(state(seed))), state(seed))
        assert len(shards(tos)) == 1


def test_nested_states_and_what_is_no_tensor(tos: LocalTos) -> None:
    saved = state(3) | {"extra": {"list": [1, {"deep": torch.ones(2)}], "bytes": b"\0" * 100_000}}
    save(tos, saved)
    target = empty(state(3)) | {"extra": {"list": [0, {"deep": torch.zeros(2)}], "bytes": b""}}
    load(tos, target)
    assert same(target, state(3))
    assert target["extra"]["bytes"] == b"\0" * 100_000
    assert torch.equal(target["extra"]["list"][1]["deep"], torch.ones(2))


def test_modules_load_in_place(tos: LocalTos) -> None:
    saved, other = torch.nn.Linear(300, 500), torch.nn.Linear(300, 500)
    save(tos, {"model": saved})
    load(tos, {"model": other})
    assert torch.equal(saved.weight, other.weight)


@pytest.mark.filterwarnings("ignore:TypedStorage")  # torch 2.4's own writer
def test_a_checkpoint_copied_to_a_disk_is_torchs_own_and_the_other_way_round(tos: LocalTos, tmp_path: Path) -> None:
    save(tos, state(1))
    for key in tos.keys("demo", "run/step-1/"):
        (tmp_path / key.rpartition("/")[2]).write_bytes(tos.get("demo", key))
    target = empty(state(1))
    dcp.load(target, storage_reader=dcp.FileSystemReader(tmp_path))
    assert same(target, state(1))

    dcp.save(state(2), storage_writer=dcp.FileSystemWriter(tmp_path / "other"))
    for path in (tmp_path / "other").iterdir():
        tos.put("demo", f"copied/{path.name}", path.read_bytes())
    assert same(load(tos, empty(state(2)), "tos://demo/copied"), state(2))


def test_a_save_over_another_leaves_nothing_of_it(tos: LocalTos) -> None:
    tos.put("demo", "run/step-1/notes.txt", b"not ours")
    tos.put("demo", "run/step-1/deeper/__0_0.distcp", b"not ours")
    save(tos, state(1))
    first = set(shards(tos)) - {"run/step-1/deeper/__0_0.distcp"}
    save(tos, state(2))
    assert not first & set(tos.keys("demo"))
    assert {"run/step-1/notes.txt", "run/step-1/deeper/__0_0.distcp"} < set(tos.keys("demo"))
    assert len(tos.keys("demo")) == 4
    assert same(load(tos, empty(state(2))), state(2))


def test_what_cannot_be_deleted_is_reported(tos: LocalTos, caplog: pytest.LogCaptureFixture) -> None:
    save(tos, state(1))
    tos.faults.add(method="POST", query_has="delete", status=403, code="AccessDenied")
    with caplog.at_level(logging.WARNING, "tosnative"):
        save(tos, state(2))
    assert "1 shards of earlier saves could not be deleted" in caplog.text
    assert same(load(tos, empty(state(2))), state(2))
    tos.faults.clear()
    save(tos, state(3))
    assert len(shards(tos)) == 1


def test_without_overwrite(tos: LocalTos) -> None:
    save(tos, state(1), overwrite=False)
    with pytest.raises(CheckpointException) as raised:
        save(tos, state(2), overwrite=False)
    assert isinstance(cause(raised), TosExistsError)
    assert same(load(tos, empty(state(1))), state(1))


@pytest.mark.parametrize("overwrite", [True, False])
def test_a_commit_whose_answer_is_lost(tos: LocalTos, overwrite: bool) -> None:
    fault = tos.faults.add(method="PUT", key="*/.metadata", reset="after", times=1)
    save(tos, state(1), overwrite=overwrite)
    assert fault.hits == 1
    assert same(load(tos, empty(state(1))), state(1))


def test_a_checkpoint_that_appears_before_the_commit_is_not_overwritten(tos: LocalTos) -> None:
    class Slow(TosStorageWriter):
        def finish(self, metadata: Any, results: Any) -> None:
            tos.put("demo", "run/step-1/.metadata", b"of another save")
            super().finish(metadata, results)

    with pytest.raises(CheckpointException) as raised:
        dcp.save(state(1), storage_writer=Slow(URL, overwrite=False, **connection(tos)))
    assert isinstance(cause(raised), TosExistsError)
    assert tos.get("demo", "run/step-1/.metadata") == b"of another save"


def test_a_save_that_fails_leaves_the_one_before(tos: LocalTos) -> None:
    save(tos, state(1))
    for key in ("*.distcp", "*/.metadata"):
        tos.faults.add(method="PUT", key=key, status=403, code="AccessDenied")
        with pytest.raises(CheckpointException, match="AccessDenied"):
            save(tos, state(2))
        tos.faults.clear()
        assert same(load(tos, empty(state(1))), state(1))
    assert tos.uploads("demo") == []


def test_two_saves_at_once_never_mix(tos: LocalTos) -> None:
    class Slow(TosStorageWriter):
        """Has written its shards; before it commits another save begins and ends."""

        def finish(self, metadata: Any, results: Any) -> None:
            save(tos, state(2))
            super().finish(metadata, results)

    with pytest.raises(CheckpointException, match="shards of this save are gone"):
        dcp.save(state(1), storage_writer=Slow(URL, **connection(tos)))
    assert same(load(tos, empty(state(2))), state(2))


@pytest.mark.skipif(
    "enable_plan_caching" not in DefaultSavePlanner.__init__.__code__.co_varnames, reason="this torch caches no plans"
)
def test_plans_that_a_planner_keeps(tos: LocalTos) -> None:
    writer = TosStorageWriter(URL, **connection(tos))
    for seed in (1, 2, 3):
        dcp.save(state(seed), storage_writer=writer, planner=DefaultSavePlanner(enable_plan_caching=True))
        assert same(load(tos, empty(state(seed))), state(seed))
        assert len(shards(tos)) == 1


def test_nothing_of_a_file_is_asked_of_an_object(tos: LocalTos, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("an object has no file descriptor and needs no sync")

    monkeypatch.setattr(os, "sync", refuse)
    monkeypatch.setattr(os, "fsync", refuse)
    save(tos, state(1))
    assert same(load(tos, empty(state(1))), state(1))


def test_checkpoint_ids(tos: LocalTos) -> None:
    writer, reader = TosStorageWriter(URL, **connection(tos)), TosStorageReader(URL, **connection(tos))
    for step in (2, 3):
        dcp.save(state(step), checkpoint_id=f"tos://demo/run/step-{step}", storage_writer=writer)
    assert writer.checkpoint_id == "tos://demo/run/step-3/"
    for step in (2, 3):
        target = empty(state(step))
        dcp.load(target, checkpoint_id=f"tos://demo/run/step-{step}/", storage_reader=reader)
        assert same(target, state(step))
    assert TosStorageReader.validate_checkpoint_id("tos://demo/a")
    assert not any(map(TosStorageWriter.validate_checkpoint_id, ("tos://demo/", "s3://demo/a", "/tmp/a", Path("/a"))))
    for url in ("tos://demo", "tos://demo/", "s3://demo/a"):
        with pytest.raises(ValueError, match="demo"):
            writer.reset(url)


def test_construction(tos: LocalTos) -> None:
    with pytest.raises(TypeError, match="sharding"):
        TosStorageWriter(URL, sharding=True, **connection(tos))  # type: ignore[call-arg]
    for made in (TosStorageWriter(URL, **connection(tos)), TosStorageReader(URL, **connection(tos))):
        arrived = pickle.loads(pickle.dumps(made))
        assert repr(arrived) == f"{type(made).__name__}({URL})"
        assert tos.sk not in repr(made)
    assert tos.requests == []
    with pytest.raises(ValueError, match="use_collectives"):
        TosStorageWriter(URL, **connection(tos)).set_up_storage_writer(True, rank=0, use_collectives=False)


def test_no_checkpoint_and_one_that_lost_a_shard(tos: LocalTos) -> None:
    reader = TosStorageReader(URL, **connection(tos))
    with pytest.raises(TosNotFoundError, match="no checkpoint was ever committed under tos://demo/run/step-1/"):
        reader.read_metadata()
    save(tos, state(1))
    [shard] = shards(tos)
    content = tos.get("demo", shard)
    tos.put("demo", shard, content[: len(content) // 2])
    with pytest.raises(CheckpointException) as raised:
        load(tos, empty(state(1)))
    assert isinstance(cause(raised), TosIntegrityError)
    tos.delete("demo", shard)
    with pytest.raises(CheckpointException, match="load again") as raised:
        load(tos, empty(state(1)))
    assert isinstance(cause(raised), TosNotFoundError)


def test_ranks_that_read_the_metadata_of_different_saves(tos: LocalTos) -> None:
    reader = TosStorageReader(URL, **connection(tos))
    plans = []
    for seed in (1, 2):
        save(tos, state(seed))
        reader.set_up_storage_reader(reader.read_metadata(), True)
        plans.append(reader.prepare_local_plan(LoadPlan([])))
    assert reader.prepare_global_plan([plans[1], plans[1]]) == [plans[1], plans[1]]
    with pytest.raises(TosChangedError, match="load again"):
        reader.prepare_global_plan(plans)


def test_errors_are_ours_and_travel(tos: LocalTos) -> None:
    save(tos, state(1))
    tos.faults.add(method="GET", key="*.distcp", skip=1, status=403, code="AccessDenied")
    reader = TosStorageReader(URL, **connection(tos))
    with pytest.raises(CheckpointException) as raised:
        dcp.load(empty(state(1)), storage_reader=reader)
    assert reader._client.budget.used == 0
    error = pickle.load(io.BytesIO(pickle.dumps(cause(raised))))
    assert isinstance(error, TosException)
    assert (error.error.bucket, error.error.key) == ("demo", shards(tos)[0])
