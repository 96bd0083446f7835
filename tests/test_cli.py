"""The command: what it prints and does against a local TOS, in this process and, where it matters, in its own."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tosnative.cli import main
from tosnative.testing import LocalTos


@pytest.fixture
def tos(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalTos]:
    for name in [name for name in os.environ if name.upper().endswith("_PROXY") or name.startswith("TOS_")]:
        monkeypatch.delenv(name)
    with LocalTos(bucket="demo") as server:
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        yield server


def fill(tos: LocalTos, *keys: str) -> None:
    for key in keys:
        tos.put("demo", key, f"content of {key}".encode())


class Run:
    """Runs the command in this process and keeps what it printed."""

    def __init__(self, capfd: pytest.CaptureFixture[str]) -> None:
        self._capture = capfd
        self.out = self.err = ""

    def __call__(self, *arguments: str) -> int:
        self._capture.readouterr()
        try:
            code = main(list(arguments))
        except SystemExit as exit_:
            code = exit_.code if isinstance(exit_.code, int) else 1
        self.out, self.err = self._capture.readouterr()
        return code

    @property
    def json(self) -> list[dict[str, object]]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    return Run(capfd)


# -- looking


def test_ls_shows_one_level(tos: LocalTos, run: Run) -> None:
    fill(tos, "a.txt", "train/1.png", "train/2.png", "train/deep/3.png")
    assert run("ls", "tos://demo/train/") == 0
    assert [line.split()[-1] for line in run.out.splitlines()] == [
        "tos://demo/train/1.png",
        "tos://demo/train/2.png",
        "tos://demo/train/deep/",
    ]
    assert run("ls", "demo") == 0
    assert "tos://demo/train/" in run.out
    assert "1.png" not in run.out


def test_ls_recursive_as_json(tos: LocalTos, run: Run) -> None:
    fill(tos, "train/1.png", "train/deep/3.png", "other")
    assert run("ls", "-r", "--json", "tos://demo/train/") == 0
    assert [line["key"] for line in run.json] == ["train/1.png", "train/deep/3.png"]
    first = run.json[0]
    assert first["uri"] == "tos://demo/train/1.png"
    assert first["size"] == len(b"content of train/1.png")
    assert isinstance(first["last_modified"], float)
    assert first["etag"]


def test_ls_follows_pages(tos: LocalTos, run: Run) -> None:
    for i in range(2100):
        tos.put("demo", f"many/{i:05d}", b"")
    for arguments in (["-r"], []):
        assert run("ls", *arguments, "tos://demo/many/") == 0
        assert len(run.out.splitlines()) == 2100


def test_ls_of_nothing_says_so(tos: LocalTos, run: Run) -> None:
    assert run("ls", "tos://demo/absent/") == 1
    assert run.err.startswith("tosnative: nothing under tos://demo/absent/")


def test_stat(tos: LocalTos, run: Run) -> None:
    tos.put("demo", "key", b"123456789")
    assert run("stat", "--json", "tos://demo/key") == 0
    assert run.json[0]["size"] == 9
    assert run.json[0]["crc64"] == 0x995DC9BBDF1939FA
    assert run("stat", "tos://demo/key") == 0
    assert "9 bytes" in run.out


def test_cat_joins_objects(tos: LocalTos, run: Run) -> None:
    tos.put("demo", "a", b"one\n")
    tos.put("demo", "b", b"two\n")
    assert run("cat", "tos://demo/a", "tos://demo/b") == 0
    assert run.out == "one\ntwo\n"


def test_du(tos: LocalTos, run: Run) -> None:
    tos.put("demo", "p/a", b"x" * 1000)
    tos.put("demo", "p/b", b"x" * 24)
    assert run("du", "--json", "tos://demo/p/") == 0
    assert run.json == [{"uri": "tos://demo/p/", "objects": 2, "bytes": 1024}]
    assert run("du", "tos://demo/p/") == 0
    assert run.out.split() == ["1.0", "KiB", "2", "objects", "tos://demo/p/"]


# -- removing


def test_rm_removes_what_is_named_only(tos: LocalTos, run: Run) -> None:
    fill(tos, "a", "ab", "b")
    assert run("rm", "tos://demo/a") == 0
    assert run.out == "removed 1 object\n"
    assert tos.keys("demo") == ["ab", "b"]


def test_rm_recursive_spares_siblings(tos: LocalTos, run: Run) -> None:
    fill(tos, "data", "data/1", "data/deep/2", "database/3", "data.txt")
    assert run("rm", "-r", "--dry-run", "tos://demo/data") == 0
    assert run.out.splitlines()[-1] == "would remove 3 objects"
    assert len(tos.keys("demo")) == 5
    assert run("rm", "-r", "tos://demo/data") == 0
    assert tos.keys("demo") == ["data.txt", "database/3"]


@pytest.mark.parametrize(
    "arguments", [["tos://demo/data/"], ["tos://demo/"], ["-r", "tos://demo/"], ["-r", "tos://demo"]]
)
def test_rm_does_not_remove_more_than_was_asked(tos: LocalTos, run: Run, arguments: list[str]) -> None:
    fill(tos, "data/1")
    assert run("rm", *arguments) == 2
    assert tos.keys("demo") == ["data/1"]
    assert len(run.err.splitlines()) == 1


def test_rm_empties_a_bucket_when_told_twice(tos: LocalTos, run: Run) -> None:
    fill(tos, "a", "b/c")
    assert run("rm", "-r", "--yes", "tos://demo") == 0
    assert tos.keys("demo") == []


def test_rm_of_a_missing_key_fails(tos: LocalTos, run: Run) -> None:
    assert run("rm", "tos://demo/absent") == 1
    assert "absent" in run.err


# -- uploads that nobody completed


def test_uploads_lists_and_aborts_old_ones(tos: LocalTos, run: Run) -> None:
    # A process that dies at once leaves its upload behind.
    code = (
        "import os\nfrom tosnative import TosCheckpoint\n"
        "writer = TosCheckpoint().writer('tos://demo/torn')\n"
        "writer.write(bytes(9 << 20))\nwriter.flush()\n"
        "import time\n"
        "end = time.monotonic() + 30\n"
        "from tosnative.client import TosClient\n"
        "while time.monotonic() < end and not list(TosClient().list_uploads('demo')): pass\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=50).returncode == -9
    assert tos.keys("demo") == []
    assert run("uploads", "demo", "--json") == 0
    assert [(line["uri"], line["aborted"]) for line in run.json] == [("tos://demo/torn", False)]
    assert run("uploads", "demo", "--abort-older-than", "1d") == 0
    assert run.out.endswith("1 open upload under tos://demo/, 0 aborted\n")
    assert len(tos.uploads("demo")) == 1
    assert run("uploads", "tos://demo/", "--abort-older-than", "0s") == 0
    assert run.out.endswith("1 open upload under tos://demo/, 1 aborted\n")
    assert not tos.uploads("demo")


# -- a local TOS to work with


def test_serve_prints_where_and_who_and_ends_on_a_signal(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-m", "tosnative", "serve", "--json", "--bucket", "demo"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            for name, value in json.loads(server.stdout.readline())["environ"].items():
                monkeypatch.setenv(name, value)
            assert run("doctor", "demo") == 0, run.out
        finally:
            server.terminate()
        assert server.wait(30) in (0, -15)


# -- the doctor


def test_doctor_finds_nothing_wrong(tos: LocalTos, run: Run) -> None:
    assert run("doctor", "demo") == 0
    assert [line.split()[:2] for line in run.out.splitlines()] == [
        ["ok", name] for name in ("versions", "endpoint", "credentials", "connection", "clock", "bucket", "uploads")
    ]
    assert tos.cred.ak not in run.out
    assert tos.cred.sk not in run.out


def states(run: Run) -> dict[object, object]:
    return {line["question"]: line["state"] for line in run.json}


def test_doctor_without_credentials(tos: LocalTos, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOS_ACCESS_KEY")
    monkeypatch.delenv("TOS_SECRET_KEY")
    assert run("doctor", "demo") == 1
    (line,) = [line for line in run.out.splitlines() if line.startswith("FAIL")]
    assert line.endswith("-> set TOS_ACCESS_KEY and TOS_SECRET_KEY")


def test_doctor_without_endpoint(tos: LocalTos, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOS_ENDPOINT")
    monkeypatch.delenv("TOS_REGION")
    assert run("doctor", "demo", "--json") == 1
    assert states(run)["endpoint"] == "failed"


def test_doctor_with_a_wrong_bucket_key_or_port(tos: LocalTos, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run("doctor", "--json", "no-such-bucket") == 1
    assert (states(run)["connection"], states(run)["bucket"]) == ("ok", "failed")
    monkeypatch.setenv("TOS_SECRET_KEY", "wrong")
    assert run("doctor", "--json", "demo") == 1
    assert (states(run)["connection"], states(run)["bucket"]) == ("ok", "failed")


def test_doctor_with_nobody_listening(tos: LocalTos, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    # Port 1 is privileged and unused: refused at once.
    assert run("doctor", "--json", "--endpoint", "http://127.0.0.1:1", "demo") == 1
    assert states(run)["connection"] == "failed"


def test_doctor_asks_for_a_bucket(tos: LocalTos, run: Run) -> None:
    assert run("doctor") == 0
    assert "name a bucket: tosnative doctor tos://bucket" in run.out


# -- bad input: one line that says what to do


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["cat", "tos://demo/absent"], 1, ["absent", "check the key"]),
        (["cat", "tos://no-such-bucket/key"], 1, ["no-such-bucket", "check the bucket"]),
        (["cat", "tos://demo/folder/"], 2, ["folder", "not an object"]),
        (["cat", "tos://demo"], 2, ["bucket", "not an object"]),
        (["cat", "s3://demo/key"], 2, ["s3://", "tos://"]),
        (["cp", "s3://demo/key", "tos://demo/"], 2, ["s3://", "tos://"]),
        (["ls", "tos://Not_A_Bucket/"], 2, ["Not_A_Bucket"]),
        (["cp", "a", "b"], 2, ["tos://bucket/key"]),
        (["cp", "tos://demo/a"], 2, ["source and a target"]),
        (["cp", "/no/such/file", "tos://demo/a"], 1, ["/no/such/file"]),
        (["cp", "-r", "/no/such/folder", "tos://demo/a"], 2, ["/no/such/folder"]),
        (["uploads", "demo", "--abort-older-than", "soon"], 2, ["duration", "1d"]),
        (["frobnicate"], 2, ["frobnicate"]),
        ([], 2, ["command"]),
        (["ls", "demo", "--endpoint", "https://tos-s3-cn-beijing.volces.com"], 1, ["S3"]),
        (["ls", "demo", "--endpoint", "ftp://example.com"], 1, ["http"]),
    ],
)
def test_an_error_is_one_line(tos: LocalTos, run: Run, arguments: list[str], code: int, words: list[str]) -> None:
    assert run(*arguments) == code
    (line,) = run.err.splitlines()
    assert line.startswith("tosnative: ")
    assert all(word in line for word in words), line


def test_no_credentials_is_one_line(tos: LocalTos, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOS_ACCESS_KEY")
    monkeypatch.delenv("TOS_SECRET_KEY")
    assert run("ls", "demo") == 1
    (line,) = run.err.splitlines()
    assert "TOS_ACCESS_KEY" in line


def test_a_reader_that_goes_away_is_no_error(tos: LocalTos, tmp_path: Path) -> None:
    tos.put("demo", "big", b"x" * (4 << 20))
    command = f"{sys.executable} -m tosnative cat tos://demo/big | head -c 10"
    done = subprocess.run(["bash", "-c", command], capture_output=True, timeout=50, check=True)
    assert done.stdout == b"x" * 10
    assert done.stderr == b""


def test_no_progress_where_nobody_watches(tos: LocalTos, run: Run, tmp_path: Path) -> None:
    fill(tos, *(f"many/{i}" for i in range(50)))
    assert run("cp", "-r", "tos://demo/many", str(tmp_path)) == 0
    assert run.err == ""
