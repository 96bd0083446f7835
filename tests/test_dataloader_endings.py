"""Datasets in processes that end in the middle: nothing hangs, nothing is left, and the next run starts."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import threading
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dataset_objects import asked, connection, fill, key_and_bytes, key_only
from descriptors import open_files
from torch.utils.data import DataLoader, get_worker_info

from tosnative.client import TosClient
from tosnative.config import TosClientConfig
from tosnative.datasets import TosIterableDataset, TosMapDataset
from tosnative.reader import TosObjectReader
from tosnative.source import PrefixSource
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

pytestmark = pytest.mark.timeout(120)
URI = "tos://demo/p/"


@pytest.fixture(scope="module")
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo", process=True) as tos:
        fill(tos, "p/", 60)
        yield tos


@pytest.fixture(autouse=True)
def _anew(tos: LocalTos) -> Iterator[None]:
    tos.faults.clear()
    tos.clear_requests()
    yield
    tos.faults.clear()


def in_child(work: Any) -> int:
    """Run work() in a forked child; returns its process id."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            if code:
                traceback.print_exc()
            os._exit(code)
    return pid


def code_of(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def test_one_of_several_forked_processes_lists_for_all(tos: LocalTos) -> None:
    dataset = TosMapDataset.from_prefix(URI, transform=key_only, **connection(tos))
    children = [in_child(lambda: dataset[0]) for _ in range(6)]
    assert [code_of(pid) for pid in children] == [0] * 6
    assert len(dataset) == 60
    assert asked(tos)["LIST"] == 1


def test_a_process_that_dies_while_listing_leaves_the_task_to_the_next(tos: LocalTos) -> None:
    tos.faults.add(query_has="list-type", times=1, hang="before")
    dataset = TosMapDataset.from_prefix(URI, transform=key_only, **connection(tos))
    first = in_child(lambda: len(dataset))
    waiting = threading.Event()
    while asked(tos)["LIST"] < 1:
        waiting.wait(0.001)
    second = in_child(lambda: dataset[59])
    os.kill(first, signal.SIGKILL)
    assert code_of(first) == -signal.SIGKILL
    assert code_of(second) == 0
    assert len(dataset) == 60
    assert asked(tos)["LIST"] == 2


def test_half_a_listing_in_the_shared_file_is_none(tos: LocalTos) -> None:
    dataset = TosMapDataset.from_prefix(URI, transform=key_only, **connection(tos))
    source = dataset._source
    assert isinstance(source, PrefixSource)
    source.share_before_fork()
    assert source._shared is not None
    other = TosMapDataset.from_prefix(URI, **connection(tos))
    with open(os.dup(source._shared), "wb") as file:
        other.index.write(file)
    os.ftruncate(source._shared, os.fstat(source._shared).st_size - 1)
    assert len(dataset) == 60
    assert list(dataset.index) == list(other.index)


def test_threads_of_a_process_list_once(tos: LocalTos) -> None:
    dataset = TosMapDataset.from_prefix(URI, transform=key_only, **connection(tos))
    threads = [threading.Thread(target=len, args=(dataset,)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert asked(tos)["LIST"] == 1


def test_a_listing_that_fails_is_tried_again_at_the_next_use(tos: LocalTos) -> None:
    fault = tos.faults.add(query_has="list-type", status=403, code="AccessDenied")
    dataset = TosIterableDataset.from_prefix(URI, transform=key_only, **connection(tos))
    loader = DataLoader(dataset, batch_size=8, num_workers=2)
    with pytest.raises(PermissionError, match="AccessDenied"):
        list(loader)
    fault.remove()
    assert len([key for batch in loader for key in batch]) == 60


LOOP = """
    import os, sys
    from torch.utils.data import DataLoader
    sys.path.insert(0, {tests!r})
    from dataset_objects import key_and_bytes
    from tosnative import CredentialProvider, TosIterableDataset

    dataset = TosIterableDataset.from_prefix(
        "tos://demo/p/", transform=key_and_bytes, region={region!r}, endpoint={endpoint!r},
        cred=CredentialProvider({ak!r}, {sk!r}),
    )
    print(os.getpid(), flush=True)
    while True:
        for _ in DataLoader(dataset, batch_size=4, num_workers={workers}):
            print("batch", flush=True)
"""


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_interrupted_or_killed_in_the_middle_of_an_epoch(tos: LocalTos, workers: int, number: signal.Signals) -> None:
    tests = str(Path(__file__).parent)
    program = textwrap.dedent(LOOP).format(
        tests=tests, region=tos.region, endpoint=tos.endpoint, ak=tos.ak, sk=tos.sk, workers=workers
    )
    for _ in range(2):
        with subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        ) as process:
            assert process.stdout is not None
            leader = int(process.stdout.readline())
            for _ in range(3):
                assert process.stdout.readline() == "batch\n"
            # Ctrl-C reaches the whole group, a kill only the process; the workers then notice that it is gone.
            (os.killpg if number == signal.SIGINT else os.kill)(leader, number)
            output, errors = process.communicate(timeout=60)
            assert process.returncode in (-number, 1, 130), errors
            assert set(output.split()) <= {"batch"}
            if number == signal.SIGINT:
                assert "KeyboardInterrupt" in errors


class KillsItsWorker:
    """A transform whose worker dies by SIGKILL in the middle, once for each time that the file is there; it may be writing."""

    def __init__(self, file: Path, client: TosClient) -> None:
        self.file, self.client = file, client

    def __call__(self, reader: TosObjectReader) -> str:
        if get_worker_info() is not None and self.file.exists():
            try:
                self.file.unlink()
            except FileNotFoundError:  # the other worker took it
                return reader.key
            writer = TosObjectWriter(self.client, "demo", "left")
            writer.write(bytes(9 << 20))
            os.kill(os.getpid(), signal.SIGKILL)
        return reader.key


@pytest.mark.parametrize(
    ("kind", "method"), [(TosMapDataset, "fork"), (TosIterableDataset, "fork"), (TosMapDataset, "forkserver")]
)
def test_a_worker_that_is_killed(tos: LocalTos, tmp_path: Path, kind: Any, method: str) -> None:
    """The epoch ends in torch's error, the next is whole; nothing is left but the upload, which is found."""
    client = TosClient(
        region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=TosClientConfig(part_size=4 << 20)
    )
    deadly = KillsItsWorker(tmp_path / "deadly", client)
    dataset = kind.from_prefix(URI, transform=deadly, **connection(tos))
    loader = DataLoader(dataset, batch_size=4, num_workers=2, multiprocessing_context=method, collate_fn=list)
    assert len([key for batch in loader for key in batch]) == 60
    gc.collect()
    before, threads = open_files(), threading.active_count()
    deadly.file.touch()
    with pytest.raises(RuntimeError, match=r"killed by signal|exited unexpectedly"):
        list(loader)
    assert sorted(key for batch in loader for key in batch) == [f"p/{number:04d}" for number in range(60)]
    gc.collect()
    assert multiprocessing.active_children() == []
    assert open_files() == before
    assert threading.active_count() <= threads
    ((key, upload_id),) = tos.uploads("demo")
    assert (key, tos.keys("demo", "left")) == ("left", [])
    client.abort_upload("demo", key, upload_id)
    dataset.close()


@pytest.mark.parametrize("kind", [TosMapDataset, TosIterableDataset])
def test_memory_does_not_grow_with_epochs(tos: LocalTos, kind: Any) -> None:
    dataset = kind.from_prefix(URI, transform=key_and_bytes, **connection(tos))
    size = []
    for _ in range(4):
        for _ in DataLoader(dataset, batch_size=8):
            pass
        gc.collect()
        size.append(len(gc.get_objects()))
    assert dataset._client.budget.used == 0
    assert size[-1] - size[1] < 500
