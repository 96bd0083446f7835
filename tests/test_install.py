"""The built wheel in an empty environment: it is pure Python, and importing it costs next to nothing.

The environment is a new venv that sees the dependencies of the Python that runs the tests, and no copy of this project
but the wheel. What an import does is watched by an audit hook in a fresh process.
"""

import json
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
# The design's bound is 0.3 s on a quiet machine; this one only catches an import of torch or worse on a busy one.
GENEROUS_IMPORT_S = 3.0

PROBE = """
import json, logging, os, sys, threading, time
events = []
sys.addaudithook(lambda name, args: events.append(name) if name in (
    "socket.__new__", "socket.connect", "socket.getaddrinfo", "_thread.start_new_thread", "subprocess.Popen") else None)
fds = len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0
start = time.perf_counter()
import tosnative
seconds = time.perf_counter() - start
print(json.dumps({
    "file": tosnative.__file__,
    "seconds": seconds,
    "events": events,
    "threads": threading.active_count(),
    "new_fds": (len(os.listdir("/proc/self/fd")) if fds else 0) - fds,
    "heavy": sorted({"torch", "numpy", "pytest", "lightning", "safetensors"} & set(sys.modules)),
    "root_handlers": len(logging.getLogger().handlers),
    "handlers": [type(handler).__name__ for handler in logging.getLogger("tosnative").handlers],
    "level": logging.getLogger("tosnative").level,
}))
"""


def run(*command: str | Path, cwd: Path) -> str:
    """Run a command and return its standard output; its whole output is in the failure."""
    done = subprocess.run([str(part) for part in command], cwd=cwd, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{command}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The project's wheel, built from a copy so that the build leaves nothing in the clone."""
    source = tmp_path_factory.mktemp("source")
    shutil.copytree(ROOT / "tosnative", source / "tosnative", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", source / "dist", cwd=source)
    (built,) = (source / "dist").iterdir()
    return built


@pytest.fixture(scope="module")
def empty_environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of a venv with nothing but the wheel and a view of the dependencies."""
    home = tmp_path_factory.mktemp("environment")
    run(sys.executable, "-m", "venv", "--without-pip", home, cwd=home)
    python = home / "bin" / "python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps", "--no-index", wheel, cwd=home)
    purelib = Path(run(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=home).strip())
    # A folder that a .pth file names is only searched: .pth files inside it, as editable installs leave, do not run.
    (purelib / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return home / "bin"


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_the_wheel_is_pure_and_whole(wheel: Path) -> None:
    assert wheel.name.endswith("-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = next(archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
        entry_points = next(archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    modules = {str(path.relative_to(ROOT)) for path in (ROOT / "tosnative").rglob("*.py")}
    assert modules <= set(names)
    assert "tosnative/py.typed" in names
    assert {name.split("/")[0] for name in names if ".dist-info" not in name} == {"tosnative"}
    assert any(name.endswith("LICENSE") for name in names)
    assert "License-Expression: Apache-2.0" in metadata
    assert "tosnative = tosnative.cli:main" in entry_points
    assert "tosnative = tosnative.testing.fixtures" in entry_points


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_import_costs_nothing(empty_environment: Path, tmp_path: Path) -> None:
    # Twice: the first run writes the .pyc files, the second is what users see.
    seen = [json.loads(run(empty_environment / "python", "-W", "error", "-c", PROBE, cwd=tmp_path)) for _ in range(2)]
    sys.stdout.write(f"import tosnative: first {seen[0]['seconds']:.3f} s, then {seen[1]['seconds']:.3f} s\n")
    assert Path(seen[1]["file"]).is_relative_to(empty_environment.parent)
    assert seen[1]["heavy"] == []
    assert seen[1]["events"] == []
    assert seen[1]["threads"] == 1
    assert seen[1]["new_fds"] == 0
    assert seen[1]["root_handlers"] == 0
    assert set(seen[1]["handlers"]) <= {"NullHandler"}
    assert seen[1]["level"] == 0
    assert seen[1]["seconds"] < GENEROUS_IMPORT_S


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_the_installed_command_and_every_public_name_work(empty_environment: Path, tmp_path: Path) -> None:
    assert "usage: tosnative" in run(empty_environment / "tosnative", "--help", cwd=tmp_path)
    assert "usage: tosnative" in run(empty_environment / "python", "-m", "tosnative", "--help", cwd=tmp_path)
    run(empty_environment / "python", "-c", "from tosnative import *; TosMapDataset; TosIterableDataset", cwd=tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(150)
def test_the_command_does_without_torch(empty_environment: Path, tmp_path: Path) -> None:
    probe = "import sys; from tosnative.cli import main; sys.exit('torch' in sys.modules)"
    run(empty_environment / "python", "-c", probe, cwd=tmp_path)
