"""The examples as users run them; above all the quickstart: it learns, dies, resumes, and cleans up after itself."""

import io
import os
import re
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from tosnative.testing import LocalTos

ROOT = Path(__file__).resolve().parent.parent
PYTHON = (sys.executable,)
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def run(example: str, *arguments: str, launcher: tuple[str, ...] = PYTHON, **environment: str) -> str:
    """Run an example with no TOS_ setting but those given, and return its standard output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TOS_")}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [*launcher, str(ROOT / "examples" / example), *arguments],
        capture_output=True,
        text=True,
        timeout=280,
        env=clean | environment,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_quickstart_needs_no_account() -> None:
    out = run("quickstart.py")
    scores = [float(score) for score in re.findall(r"held-out digits ([01]\.\d+)", out)]
    assert len(scores) == 2
    assert scores[0] > 0.95
    assert scores[1] > 0.8  # half as many epochs
    assert "SIGKILL in the middle of torch.save" in out
    assert "1 open upload" in out
    # Six epochs, the third of which dies while saving: 1 and 2 are kept, 3 is trained twice.
    assert "resuming from" in out
    assert "epoch-2.pt" in out
    assert [int(epoch) for epoch in re.findall(r"epoch (\d)  ", out)] == [1, 2, 3, 3, 4, 5, 6, 1, 2, 3]
    assert re.search(r"[\d,]+ samples/s", out)
    assert re.search(r"[\d.]+ MiB", out)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_quickstart_on_a_bucket_of_ones_own_leaves_nothing_behind() -> None:
    with LocalTos(bucket="mine") as tos:
        tos.put("mine", "precious", b"stays")
        out = run(
            "quickstart.py",
            *("--bucket", "mine", "--endpoint", tos.endpoint, "--epochs", "4"),
            **{name: value for name, value in tos.environ().items() if name != "TOS_ENDPOINT"},
        )
        assert "tos://mine/quickstart-" in out
        assert tos.keys("mine") == ["precious"]
        assert not tos.uploads("mine")


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_distributed_ranks_share_a_prefix() -> None:
    with LocalTos(bucket="demo") as tos:
        for i in range(41):
            tos.put("demo", f"train/{i:02d}", b"x" * 10)
        out = run("distributed.py", "tos://demo/train/", launcher=TORCHRUN, OMP_NUM_THREADS="1", **tos.environ())
        assert sorted(line for line in out.splitlines() if line.startswith("rank")) == [
            "rank 0 of 2: 20 samples, 200 bytes",
            "rank 1 of 2: 20 samples, 200 bytes",
        ]
        assert "all ranks: 40 samples" in out
        read = [record.key for record in tos.requests if record.key]
        assert len(read) == len(set(read)) == 40


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_tar_shards_stream() -> None:
    with LocalTos(bucket="demo") as tos:
        for shard in range(4):
            buffer = io.BytesIO()
            with tarfile.open(fileobj=buffer, mode="w") as archive:
                for i in range(10):
                    info = tarfile.TarInfo(f"{i}.bin")
                    info.size = 1000 * i
                    archive.addfile(info, io.BytesIO(bytes(info.size)))
            tos.put("demo", f"shards/{shard}.tar", buffer.getvalue())
        out = run("tar_shards.py", "tos://demo/shards/", **tos.environ())
        assert out == "40 samples, 180,000 bytes\n"
