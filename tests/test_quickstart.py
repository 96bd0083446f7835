"""The quickstart as a user runs it: it learns, dies, resumes, and cleans up after itself."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tosnative.testing import LocalTos

ROOT = Path(__file__).resolve().parent.parent
QUICKSTART = ROOT / "examples" / "quickstart.py"


def run(*arguments: str, **environment: str) -> str:
    """Run the quickstart with no TOS_ setting but those given, and return its standard output."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("TOS_")}
    clean["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, str(QUICKSTART), *arguments],
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
    out = run()
    scores = [float(score) for score in re.findall(r"accuracy ([01]\.\d+)", out)]
    assert len(scores) == 2
    assert min(scores) > 0.95
    assert "killed by SIGKILL" in out
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
            *("--bucket", "mine", "--endpoint", tos.endpoint, "--epochs", "2"),
            TOS_REGION=tos.region,
            TOS_ACCESS_KEY=tos.cred.ak,
            TOS_SECRET_KEY=tos.cred.sk,
        )
        assert "tos://mine/quickstart-" in out
        assert tos.keys("mine") == ["precious"]
        assert not tos.uploads("mine")
