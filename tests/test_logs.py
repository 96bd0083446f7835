"""Logging: silent until asked, then into files."""

import logging
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tosnative.logs import LOG, init_log, init_logs

AUDIT = logging.getLogger("tosnative.audit")


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    before = [(logger, logger.level, list(logger.handlers)) for logger in (LOG, AUDIT)]
    yield
    for logger, level, handlers in before:
        for handler in set(logger.handlers) - set(handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(level)


def test_nothing_is_set_up_at_import() -> None:
    code = "import logging, tosnative.logs; assert not logging.getLogger().handlers; tosnative.logs.LOG.warning('x')"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


def test_a_file_gets_the_lines_of_a_level_and_above(tmp_path: Path) -> None:
    init_log("warning", str(tmp_path / "new"), "mine")
    LOG.info("not this")
    LOG.getChild("wire").warning("but this")
    text = (tmp_path / "new" / "mine.log").read_text()
    assert "but this" in text
    assert "not this" not in text


def test_asking_again_replaces_the_level_and_writes_each_line_once(tmp_path: Path) -> None:
    init_log("error", str(tmp_path))
    init_log("debug", str(tmp_path))
    LOG.debug("once")
    assert (tmp_path / "tosnative.log").read_text().count("once") == 1


def test_two_files(tmp_path: Path) -> None:
    init_logs(str(tmp_path), common_level="off", audit_level=logging.INFO)
    LOG.critical("silenced")
    AUDIT.info("wrote tos://bkt/a")
    assert "wrote tos://bkt/a" in (tmp_path / "tosnative-audit.log").read_text()
    assert not (tmp_path / "tosnative.log").exists() or "silenced" not in (tmp_path / "tosnative.log").read_text()


@pytest.mark.parametrize(("name", "level"), [("trace", 10), ("WARN", 30), ("Info", 20), ("fatal", 50), (15, 15)])
def test_names_of_levels(tmp_path: Path, name: str | int, level: int) -> None:
    init_log(name, str(tmp_path))
    assert LOG.level == level


def test_an_unknown_level_is_a_value_error(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown log level 'loud'"):
        init_log("loud", str(tmp_path))
