"""The README keeps its word: its snippets run, its commands exist, its tables name every setting."""

import dataclasses
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path

import pytest
from PIL import Image

import tosnative
from tosnative.testing import LocalTos

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


@dataclass(frozen=True)
class Snippet:
    """A fenced block: its language, its text, the title of its section, and the line on which its text begins."""

    language: str
    text: str
    section: str
    line: int


def snippets() -> Iterator[Snippet]:
    """Every fenced block. A section is what stands under one heading of the second level."""
    section, language, begin, block = "", None, 0, []
    for number, line in enumerate(README.splitlines(), 1):
        if language is None and line.startswith("```"):
            language, begin, block = line[3:].strip(), number + 1, []
        elif line.startswith("```"):
            yield Snippet(language or "", "\n".join(block) + "\n", section, begin)
            language = None
        elif language is not None:
            block.append(line)
        elif line.startswith("## "):
            section = line[3:]
    assert language is None, "the last fence is not closed"


def python_sections() -> dict[str, str]:
    """The Python of each section as one script, whose line numbers are those of the README. Tests stand apart."""
    found: dict[str, str] = {}
    for snippet in snippets():
        if snippet.language == "python" and "def test_" not in snippet.text:
            script = found.get(snippet.section, "")
            found[snippet.section] = script + "\n" * (snippet.line - 1 - script.count("\n")) + snippet.text
    return found


def png(shade: int) -> bytes:
    buffer = BytesIO()
    Image.new("L", (8, 8), shade).save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture
def environment(tmp_path: Path) -> Iterator[dict[str, str]]:
    """The environment of a README reader who has a bucket "my-bucket" with a few objects, and the command installed."""
    with LocalTos(bucket="my-bucket") as tos:
        for i in range(16):
            tos.put("my-bucket", f"train/{'cat' if i < 8 else 'dog'}/{i:03d}.png", png(i))
        tos.put("my-bucket", "notes/hello.txt", b"hello\nworld\n")
        command = tmp_path / "bin" / "tosnative"
        command.parent.mkdir()
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m tosnative "$@"\n')
        command.chmod(0o755)
        clean = {name: value for name, value in os.environ.items() if not name.startswith("TOS_")}
        yield clean | {
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "PATH": f"{command.parent}{os.pathsep}{os.environ['PATH']}",
            **tos.environ(),
        }


def run(command: list[str], environment: dict[str, str], folder: Path) -> str:
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=50)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr
    assert "Warning" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.parametrize("section", python_sections())
def test_python_snippets(section: str, environment: dict[str, str], tmp_path: Path) -> None:
    script = tmp_path / "README.py"
    script.write_text(python_sections()[section])
    run([sys.executable, str(script)], environment, tmp_path)


@pytest.mark.parametrize("snippet", [s for s in snippets() if "def test_" in s.text], ids=lambda s: f"line {s.line}")
def test_snippets_that_are_tests(snippet: Snippet, environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "test_snippet.py").write_text(snippet.text)
    installed = any(point.name == "tosnative" for point in importlib.metadata.entry_points(group="pytest11"))
    plugin = [] if installed else ["-p", "tosnative.testing.fixtures"]
    out = run([sys.executable, "-m", "pytest", "-q", *plugin, "test_snippet.py"], environment, tmp_path)
    assert "1 passed" in out


@pytest.mark.parametrize("snippet", [s for s in snippets() if s.language == "bash"], ids=lambda s: f"line {s.line}")
def test_bash_snippets(snippet: Snippet, environment: dict[str, str], tmp_path: Path) -> None:
    run(["bash", "-euo", "pipefail", "-c", snippet.text], environment, tmp_path)


def test_every_language_is_one_that_is_checked() -> None:
    # sh: commands that set up a machine or an account, which the tests below look at as far as they can.
    assert {snippet.language for snippet in snippets()} == {"python", "bash", "sh"}


def commands(text: str) -> list[str]:
    return [line.split("#")[0].strip() for line in text.splitlines() if line.strip()]


def test_the_first_two_commands_are_the_ones_that_ci_runs() -> None:
    first = next(iter(snippets()))
    main_job, tests = commands(first.text)
    assert first.language == "sh"
    assert README.index("```sh") < 800
    assert tests in (ROOT / ".ci" / "run").read_text()
    for command in (main_job, tests):
        shell, script = command.split()
        assert shutil.which(shell)
        run([shell, "-n", script], dict(os.environ), ROOT)
    assert "examples/quickstart.py" in (ROOT / main_job.split()[1]).read_text()


def test_every_setting_is_in_a_table() -> None:
    for config in (tosnative.TosClientConfig, tosnative.ConnectionOptions):
        for field in dataclasses.fields(config):
            assert f"| `{field.name}` |" in README, f"{config.__name__}.{field.name} is not in the README"


def test_every_public_name_is_mentioned() -> None:
    assert not [name for name in tosnative.__all__ if name not in README]


def test_every_table_row_names_a_setting_or_a_name_that_exists() -> None:
    fields = {f.name for c in (tosnative.TosClientConfig, tosnative.ConnectionOptions) for f in dataclasses.fields(c)}
    section = README[README.index("## Settings") : README.index("## How it compares")]
    assert set(re.findall(r"^\| `(\w+)` \|", section, re.M)) == fields


def test_links_to_files_lead_somewhere() -> None:
    targets = re.findall(r"\]\(([^)#]+)\)", README)
    assert targets
    assert not [target for target in targets if "://" not in target and not (ROOT / target).exists()]


def test_the_section_for_figures_is_marked() -> None:
    assert README.index("<!-- figures: begin") < README.index("<!-- figures: end -->")
