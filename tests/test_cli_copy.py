"""`tosnative cp`: every direction, whole folders, and keys that would lead out of the target."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.cli import main
from tosnative.cli.folder import check_name, write_below
from tosnative.testing import LocalTos


@pytest.fixture
def tos(monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as server:
        for name, value in server.environ().items():
            monkeypatch.setenv(name, value)
        yield server


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder, by its name there."""
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_file_up_and_down(tos: LocalTos, tmp_path: Path) -> None:
    data = os.urandom(20 << 20)
    (tmp_path / "model.pt").write_bytes(data)
    assert main(["cp", str(tmp_path / "model.pt"), "tos://demo/models/"]) == 0
    assert tos.get("demo", "models/model.pt") == data
    assert main(["cp", str(tmp_path / "model.pt"), "tos://demo/other.pt"]) == 0
    assert main(["cp", "tos://demo/other.pt", str(tmp_path / "back.pt")]) == 0
    assert (tmp_path / "back.pt").read_bytes() == data
    assert main(["cp", "tos://demo/models/model.pt", str(tmp_path) + "/into/"]) == 0
    assert (tmp_path / "into/model.pt").read_bytes() == data
    assert not tos.uploads("demo")


def test_a_folder_up_and_down(tos: LocalTos, tmp_path: Path) -> None:
    files = {"a.txt": b"a", "deep/b.txt": b"", "deep/er/c.bin": os.urandom(5 << 20)}
    for name, data in files.items():
        (tmp_path / "from" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "from" / name).write_bytes(data)
    assert main(["cp", "-r", str(tmp_path / "from"), "tos://demo/to"]) == 0
    assert tos.keys("demo") == [f"to/{name}" for name in sorted(files)]
    tos.put("demo", "to/deep/", b"")  # a marker that other tools leave for a folder
    tos.put("demo", "together/x", b"a sibling whose name begins alike")
    assert main(["cp", "-r", "tos://demo/to", str(tmp_path / "back")]) == 0
    assert tree(tmp_path / "back") == files


def test_within_tos(tos: LocalTos, capfd: pytest.CaptureFixture[str]) -> None:
    tos.put("demo", "a/1", b"one")
    tos.put("demo", "a/b/2", b"two")
    assert main(["cp", "-r", "tos://demo/a", "tos://demo/copy"]) == 0
    assert (tos.get("demo", "copy/1"), tos.get("demo", "copy/b/2")) == (b"one", b"two")
    assert main(["cp", "tos://demo/a/1", "tos://demo/single"]) == 0
    assert tos.get("demo", "single") == b"one"
    assert "copied 1 object, 3 B" in capfd.readouterr().out
    assert not [record for record in tos.requests if record.method == "GET" and record.key]


def test_several_sources_go_into_a_folder(tos: LocalTos, tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text(name)
    assert main(["cp", str(tmp_path / "a"), str(tmp_path / "b"), "tos://demo/both"]) == 0
    assert tos.keys("demo") == ["both/a", "both/b"]


def test_standard_input(tos: LocalTos) -> None:
    command = [sys.executable, "-m", "tosnative", "cp", "-", "tos://demo/piped"]
    assert subprocess.run(command, input=b"from a pipe", timeout=50).returncode == 0
    assert tos.get("demo", "piped") == b"from a pipe"


def test_one_failure_does_not_stop_the_rest(tos: LocalTos, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tos.put("demo", "p/a", b"a")
    tos.put("demo", "p/a/b", b"cannot be there: a is a file")
    tos.put("demo", "p/z", b"z")
    assert main(["cp", "-r", "tos://demo/p", str(tmp_path)]) == 1
    assert (tmp_path / "z").read_bytes() == b"z"
    (line,) = capfd.readouterr().err.splitlines()
    assert "tos://demo/p/a" in line


def test_a_failed_download_leaves_the_old_file(tos: LocalTos, tmp_path: Path) -> None:
    (tmp_path / "model.pt").write_bytes(b"old")
    assert main(["cp", "tos://demo/absent", str(tmp_path / "model.pt")]) == 1
    assert tree(tmp_path) == {"model.pt": b"old"}


def test_a_replaced_file_keeps_its_permissions(tos: LocalTos, tmp_path: Path) -> None:
    tos.put("demo", "key", b"new")
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "file").chmod(0o600)
    assert main(["cp", "tos://demo/key", str(tmp_path / "file")]) == 0
    assert (tmp_path / "file").read_bytes() == b"new"
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o600


# -- never outside the target folder


@pytest.mark.parametrize("name", ["../evil", "a/../../evil", "/evil", "//evil", "a//b", "./a", "a/.", "..", "a/..", ""])
def test_names_that_lead_out_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="below the target folder"), write_below(tmp_path / "target", name):
        pass
    assert tree(tmp_path) == {}


@pytest.mark.parametrize("key", ["p/a\\..\\b", "p/..a/b..", "p/ /x", "p/-rf", "p/\u202e", "p/a:b"])
def test_odd_names_are_files_like_others(tos: LocalTos, tmp_path: Path, key: str) -> None:
    tos.put("demo", key, b"odd")
    assert main(["cp", "-r", "tos://demo/p", str(tmp_path / "target")]) == 0
    assert tree(tmp_path) == {"target/" + key.removeprefix("p/"): b"odd"}


def test_a_hostile_bucket(tos: LocalTos, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    hostile = ["p/../../evil", "p//etc/evil", "p/ok/../../../evil", "p/./evil"]
    for key in [*hostile, "p/fine"]:
        tos.put("demo", key, b"evil")
    (tmp_path / "inner").mkdir()
    assert main(["cp", "-r", "tos://demo/p", str(tmp_path / "inner/target")]) == 1
    assert tree(tmp_path) == {"inner/target/fine": b"evil"}
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == len(hostile)
    assert all("below the target folder" in line for line in lines)


def test_a_single_key_cannot_choose_its_folder(tos: LocalTos, tmp_path: Path) -> None:
    tos.put("demo", "p/..", b"evil")
    (tmp_path / "target").mkdir()
    assert main(["cp", "tos://demo/p/..", str(tmp_path / "target")]) == 1
    assert tree(tmp_path) == {}


def test_links_in_the_target_are_not_followed(tos: LocalTos, tmp_path: Path) -> None:
    outside, target = tmp_path / "outside", tmp_path / "target"
    outside.mkdir()
    target.mkdir()
    (outside / "file").write_bytes(b"precious")
    (target / "link").symlink_to(outside)
    (target / "file").symlink_to(outside / "file")
    tos.put("demo", "p/link/new", b"evil")
    tos.put("demo", "p/file", b"replaces the link, not what it points at")
    assert main(["cp", "-r", "tos://demo/p", str(target)]) == 1
    assert tree(outside) == {"file": b"precious"}
    assert not (target / "file").is_symlink()


def test_a_target_that_is_a_link_itself_is_the_users_choice(tos: LocalTos, tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    tos.put("demo", "p/a", b"a")
    assert main(["cp", "-r", "tos://demo/p", str(tmp_path / "link")]) == 0
    assert tree(tmp_path / "real") == {"a": b"a"}


@given(st.text(alphabet="ab./\\\0", max_size=12))
def test_a_checked_name_stays_below(name: str) -> None:
    try:
        parts = check_name(name)
    except ValueError:
        return
    path = os.path.normpath(os.path.join("/target", name))
    assert path.startswith("/target/")
    assert path == "/target/" + "/".join(parts)
