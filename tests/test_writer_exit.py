"""Writers that are dropped, inherited by a fork, or alive when the process ends: nothing is left behind."""

import gc
import io
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap

import object_writing
import pytest
import torch
import torch.utils.data
from interruptions import until
from object_writing import DATA, SIZES

from tosnative import reaper
from tosnative.client import TosClient
from tosnative.errors import TosAbortedError
from tosnative.testing import LocalTos
from tosnative.wire.engine import ENGINE
from tosnative.writer import TosObjectWriter

server, tos, fruitless = object_writing.server, object_writing.tos, object_writing.fruitless


# -- dropped


@pytest.mark.parametrize("size", SIZES)
def test_collected(tos: LocalTos, fruitless: TosClient, size: int) -> None:
    writer = TosObjectWriter(fruitless, "demo", "k")
    writer.write(DATA[:size])
    del writer
    gc.collect()
    reaper.drain()
    until(lambda: fruitless.budget.used == 0 and tos.uploads("demo") == [])


def test_collected_in_a_cycle_by_a_thread_that_holds_locks(tos: LocalTos, fruitless: TosClient) -> None:
    writer = TosObjectWriter(fruitless, "demo", "k")
    writer.write(DATA)
    cycle = [writer]
    cycle.append(cycle)  # type: ignore[arg-type]
    with fruitless.budget._lock, reaper._busy, ENGINE.get()._lock:
        del writer, cycle
        gc.collect()
    reaper.drain()
    until(lambda: fruitless.budget.used == 0 and tos.uploads("demo") == [])


def test_collected_while_the_service_does_not_answer(tos: LocalTos, fruitless: TosClient) -> None:
    """One upload that cannot be aborted keeps neither memory nor the others' clean-up waiting."""
    writer = TosObjectWriter(fruitless, "demo", "hung")
    writer.write(DATA)
    silence = tos.faults.add(method="DELETE", key="hung", hang="before")
    del writer
    gc.collect()
    until(lambda: silence.hits > 0)
    assert fruitless.budget.used == 0
    writer = TosObjectWriter(fruitless, "demo", "k")
    writer.write(DATA)
    del writer
    gc.collect()
    until(lambda: [key for key, _ in tos.uploads("demo")] == ["hung"])
    tos.restart()  # ends the silence; the abort is sent again
    tos.faults.clear()
    until(lambda: tos.uploads("demo") == [])


def test_a_writer_that_was_never_made(fruitless: TosClient) -> None:
    with pytest.raises(ValueError, match="size_hint"):
        TosObjectWriter(fruitless, "demo", "k", size_hint=-1)
    gc.collect()


# -- forked


class CollectsGarbage(torch.utils.data.Dataset[int]):
    """Holds an open writer, which its workers drop at their first sample."""

    def __init__(self, held: list[TosObjectWriter]) -> None:
        self.held = held

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if torch.utils.data.get_worker_info() is not None:
            self.held.clear()
            gc.collect()
        return index


def _in_child(box: list[TosObjectWriter], results: "multiprocessing.SimpleQueue[object]") -> None:
    writer = box.pop()
    for name in ("write", "close", "commit", "flush", "tell"):
        try:
            getattr(writer, name)(*([b"x"] if name == "write" else []))
        except TosAbortedError:
            results.put("refused")
    writer.abort()
    try:
        with writer:
            pass
    except TosAbortedError:
        results.put("refused")
    del writer
    gc.collect()
    reaper.drain()
    results.put("collected")


@pytest.mark.parametrize("size", SIZES)
def test_a_forked_child_touches_nothing(tos: LocalTos, fruitless: TosClient, size: int) -> None:
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()
    writer = TosObjectWriter(fruitless, "demo", "other")
    writer.write(DATA[:size])
    child = context.Process(target=_in_child, args=([writer], results))
    child.start()
    child.join()
    assert child.exitcode == 0
    assert [results.get() for _ in range(7)] == ["refused"] * 6 + ["collected"]
    writer.write(b"the end")
    writer.close()
    assert tos.get("demo", "other") == DATA[:size] + b"the end"
    tos.delete("demo", "other")
    tos.clear_requests()


# -- the end of the process

PROLOGUE = """
import os, signal, sys, threading
import multiprocessing
from tosnative.client import TosClient
from tosnative.config import TosClientConfig
from tosnative.writer import TosObjectWriter
def make():
    endpoint, region, ak, sk = sys.argv[1:5]
    from tosnative.credentials import CredentialProvider
    return TosClient(region=region, endpoint=endpoint, cred=CredentialProvider(ak, sk), config=TosClientConfig(part_size=4 << 20))
def begin(client):
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(bytes(9 << 20))
    return writer
"""

ENDINGS = {
    "end of the script": ("writer = begin(make())", 0),
    "sys.exit": ("writer = begin(make()); sys.exit(3)", 3),
    "sys.exit in the block": ("with begin(make()) as writer:\n    sys.exit(3)", 3),
    "an error nobody catches": ("writer = begin(make()); 1 / 0", 1),
    "sys.exit while a thread writes": (
        "box = []\nt = threading.Thread(target=lambda: box.append(begin(make())))\nt.start(); t.join(); sys.exit(3)",
        3,
    ),
    "Ctrl-C": (
        "with begin(make()) as writer:\n    os.kill(os.getpid(), signal.SIGINT)\n    threading.Event().wait()",
        -2,
    ),
    "SIGTERM turned into an exception": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))\n"
        "with begin(make()) as writer:\n    os.kill(os.getpid(), signal.SIGTERM)\n    threading.Event().wait()",
        15,
    ),
    "SIGTERM turned into an exception, no block": (
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))\n"
        "writer = begin(make())\nos.kill(os.getpid(), signal.SIGTERM)\nthreading.Event().wait()",
        15,
    ),
    **{
        f"a {method} worker": (
            "def work():\n    global writer\n    writer = begin(make())\n"
            "if __name__ == '__main__':\n"
            f"    child = multiprocessing.get_context('{method}').Process(target=work)\n"
            "    child.start(); child.join(); sys.exit(child.exitcode)",
            0,
        )
        for method in ("fork", "spawn", "forkserver")
    },
}


@pytest.mark.parametrize("ending", ENDINGS)
def test_the_process_ends(tos: LocalTos, fruitless: TosClient, ending: str, tmp_path: "os.PathLike[str]") -> None:
    body, code = ENDINGS[ending]
    script = os.path.join(tmp_path, "script.py")
    with open(script, "w") as file:
        file.write(textwrap.dedent(PROLOGUE) + body + "\n")
    command = [sys.executable, script, tos.endpoint, tos.region, tos.ak, tos.sk]
    done = subprocess.run(command, capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == code, done.stderr
    assert any("uploads" in request.query for request in tos.requests)
    assert "Exception ignored" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_that_kills_at_once_leaves_an_upload_that_can_be_found(
    tos: LocalTos, fruitless: TosClient, tmp_path: "os.PathLike[str]", number: int
) -> None:
    script = os.path.join(tmp_path, "script.py")
    with open(script, "w") as file:
        file.write(textwrap.dedent(PROLOGUE) + f"writer = begin(make())\nos.kill(os.getpid(), {int(number)})\n")
    command = [sys.executable, script, tos.endpoint, tos.region, tos.ak, tos.sk]
    assert subprocess.run(command, timeout=50, check=False).returncode == -number
    assert tos.get("demo", "k") == b"old"
    (left,) = fruitless.list_uploads("demo")
    assert left.key == "k"
    assert left.initiated is not None
    fruitless.abort_upload("demo", left.key, left.upload_id)


def test_dataloader_workers_collect_an_inherited_writer(tos: LocalTos, fruitless: TosClient) -> None:
    writer = TosObjectWriter(fruitless, "demo", "other")
    writer.write(DATA)
    loader = torch.utils.data.DataLoader(CollectsGarbage([writer]), num_workers=2, multiprocessing_context="fork")
    assert sorted(int(item) for item in loader) == list(range(8))
    writer.close()
    assert tos.get("demo", "other") == DATA
    tos.delete("demo", "other")
    tos.clear_requests()


def test_a_buffered_writer_around_a_writer_commits_when_it_is_collected(tos: LocalTos, fruitless: TosClient) -> None:
    wrapped = io.BufferedWriter(TosObjectWriter(fruitless, "demo", "other"))  # type: ignore[arg-type]
    wrapped.write(b"documented")
    del wrapped
    gc.collect()
    assert tos.get("demo", "other") == b"documented"
    tos.delete("demo", "other")
