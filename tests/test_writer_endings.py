"""However a save ends that does not commit, and however much was written: the old object stays, and no upload is open."""

import gc
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import interruptions
import object_writing
import pytest
from interruptions import until
from object_writing import DATA, MIB

from tosnative.client import TosClient
from tosnative.parts import PartPlan
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

server, tos, fruitless = object_writing.server, object_writing.tos, object_writing.fruitless
client, interrupt = object_writing.client, interruptions.interrupt

LARGEST = 200 * MIB
SIZES = [0, 100, 20 * MIB, LARGEST]


class Failed(Exception):
    """What the application raises."""


def fill(writer: TosObjectWriter, size: int) -> None:
    for at in range(0, size, len(DATA)):
        writer.write(DATA[: size - at])


def fails(client: TosClient) -> None:
    def save() -> None:
        with TosObjectWriter(client, "demo", "k") as writer:
            fill(writer, LARGEST)
            raise Failed

    with pytest.raises(Failed):
        save()


def fails_without_a_block(client: TosClient) -> None:
    def save() -> None:
        writer = TosObjectWriter(client, "demo", "k")
        try:
            fill(writer, LARGEST)
            raise Failed
        finally:
            writer.close()

    with pytest.raises(Failed):
        save()


def is_interrupted(client: TosClient) -> None:
    def save() -> None:
        with TosObjectWriter(client, "demo", "k") as writer:
            fill(writer, LARGEST)
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        save()


def is_dropped(client: TosClient) -> None:
    fill(TosObjectWriter(client, "demo", "k"), LARGEST)
    gc.collect()


def aborts(client: TosClient) -> None:
    writer = TosObjectWriter(client, "demo", "k")
    fill(writer, LARGEST)
    writer.abort()


@pytest.mark.parametrize("end", [fails, fails_without_a_block, is_interrupted, is_dropped, aborts])
def test_after_200_mib(tos: LocalTos, fruitless: TosClient, end: Callable[[TosClient], None]) -> None:
    """More parts than are in flight together; of fewer bytes, see the other tests of writers."""
    end(fruitless)
    if end is is_dropped:
        until(lambda: fruitless.budget.used == 0 and tos.uploads("demo") == [])
    assert any("partNumber" in request.query for request in tos.requests)


PROGRAM = """
import logging, os, signal, sys, threading
from tosnative.client import TosClient
from tosnative.config import TosClientConfig
from tosnative.credentials import CredentialProvider
from tosnative.writer import TosObjectWriter

endpoint, region, ak, sk, size, ending = sys.argv[1:]
client = TosClient(
    region=region, endpoint=endpoint, cred=CredentialProvider(ak, sk), config=TosClientConfig(part_size=4 << 20)
)
signal.signal(signal.SIGTERM, lambda *_: sys.exit(15))
logging.basicConfig()
writer = TosObjectWriter(client, "demo", "k")
for at in range(0, int(size), 1 << 20):
    writer.write(bytes(min(int(size) - at, 1 << 20)))
if ending == "exit":
    sys.exit(3)
with writer:
    if ending == "close":
        writer.close()
    os.kill(os.getpid(), getattr(signal, ending))
    threading.Event().wait()
"""


def start(tos: LocalTos, folder: Path, size: int, ending: str) -> "subprocess.Popen[str]":
    script = folder / "program.py"
    script.write_text(PROGRAM)
    command = [sys.executable, str(script), tos.endpoint, tos.region, tos.ak, tos.sk, str(size), ending]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("ending", "code"), [("exit", 3), ("SIGINT", -2), ("SIGTERM", 15)])
def test_the_process_ends(
    tos: LocalTos, fruitless: TosClient, tmp_path: Path, ending: str, code: int, size: int
) -> None:
    with start(tos, tmp_path, size, ending) as process:
        _, errors = process.communicate(timeout=50)
    assert process.returncode == code, errors
    assert "Exception ignored" not in errors
    assert any("uploads" in request.query for request in tos.requests) == (size > 4 * MIB)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, -2), (signal.SIGTERM, 15)])
@pytest.mark.parametrize("size", [100, 20 * MIB])
def test_the_process_is_interrupted_while_it_commits(
    tos: LocalTos, client: TosClient, tmp_path: Path, number: signal.Signals, code: int, size: int
) -> None:
    """It ends as the signal says, not with an error of ours that somebody may catch and go on."""
    commit = {"method": "PUT"} if size == 100 else {"method": "POST", "query_has": "uploadId"}
    silence = tos.faults.add(hang="before", **commit)
    with start(tos, tmp_path, size, "close") as process:
        until(lambda: silence.hits > 0)
        process.send_signal(number)
        _, errors = process.communicate(timeout=50)
    assert process.returncode == code, errors
    assert tos.get("demo", "k") == b"old"
    assert ("whether the object was written is not known" in errors) == (size == 100)  # in the traceback, or in the log


def test_an_upload_that_a_daemon_thread_is_creating_at_exit(
    tos: LocalTos, fruitless: TosClient, tmp_path: Path
) -> None:
    """The thread does not live to abort it; exit waits for that."""
    slow = tos.faults.add(method="POST", query_has="uploads", delay_s=1.0)
    script = tmp_path / "program.py"
    script.write_text(
        PROGRAM[: PROGRAM.index("writer = ")]
        + "writer = TosObjectWriter(client, 'demo', 'k')\n"
        + "threading.Thread(target=writer.write, args=(bytes(9 << 20),), daemon=True).start()\n"
        + "sys.stdin.read()\n"
    )
    command = [sys.executable, str(script), tos.endpoint, tos.region, tos.ak, tos.sk, "0", "exit"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        until(lambda: slow.hits > 0)
        _, errors = process.communicate(timeout=50)
    assert process.returncode == 0, errors
    assert tos.uploads("demo") == []


def test_more_than_10000_parts_are_not_begun(tos: LocalTos, fruitless: TosClient) -> None:
    writer = TosObjectWriter(fruitless, "demo", "k")
    writer._upload._number = 9_999  # as if so many had been sent, of the first size each
    writer._upload._plan = PartPlan(4 * MIB, 10_000)

    def block() -> None:
        with writer:
            writer.write(DATA)

    with pytest.raises(ValueError, match="size_hint"):
        block()
    numbers = {int(request.query["partNumber"]) for request in tos.requests if "partNumber" in request.query}
    assert numbers <= {9_999, 10_000}
    with pytest.raises(ValueError, match="size_hint"):
        writer.close()
