"""The benchmark itself: its short form does all of its work, and its arithmetic is right. Nothing here judges speed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import table

RUN = Path(__file__).with_name("run.py")


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(RUN), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_workload_works_on_every_side_that_is_here(tmp_path: Path) -> None:
    kept, chart = tmp_path / "results.json", tmp_path / "chart.svg"
    done = run("--short", "--json", str(kept), "--chart", str(chart))
    assert done.returncode == 0, done.stderr[-3000:]
    report = json.loads(kept.read_text())
    for row in report["rows"]:
        for side in {"ours", "limit", "memory", "sdk", "peer"} & row["sides"].keys():
            (result,) = row["sides"][side]["runs"]
            assert "error" not in result, (row["name"], side, result)
            assert result["seconds"] > 0
        assert "ours" in row["sides"]
        assert row["name"] in done.stdout
    assert report["versions"]["ours"]["tosnative"]
    assert report["machine"]["cpus"]


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_curve_has_points(tmp_path: Path) -> None:
    kept = tmp_path / "curves.json"
    done = run("--curves", "--short", "--no-nginx", "--json", str(kept))
    assert done.returncode == 0, done.stderr[-3000:]
    curves = json.loads(kept.read_text())["curves"]
    assert len({curve["name"] for curve in curves}) == len(curves) > 4
    for curve in curves:
        assert all(point["ours"] > 0 for point in curve["points"]), curve
        assert curve["name"] in done.stdout
    assert all(point["ideal"] > 0 for point in curves[-1]["points"])
    assert "the defaults reach" in done.stdout
    assert "us of CPU each" in done.stdout


def result(unit: str, ours: list[dict[str, Any]], peer: list[dict[str, Any]], **bars: float) -> dict[str, Any]:
    promised = {"ratio": None, "aim": None, "cpu": None, "of_limit": None, "rss_mib": None, "seconds": None, **bars}
    sides = {"ours": {"settings": {}, "runs": ours}, "peer": {"settings": {}, "runs": peer}}
    return {"name": "row", "server": "local", "unit": unit, "bars": promised, "sides": sides}


def took(seconds: float, cpu_s: float = 1.0) -> dict[str, Any]:
    return {"seconds": seconds, "objects": 100, "bytes": 100 << 20, "cpu_s": cpu_s, "rss_growth_mib": 1.0}


def test_ratios_are_taken_round_by_round() -> None:
    # The machine is half as fast in the second round: both sides are, and the ratio stays.
    found = result("objects/s", [took(1), took(2), took(1)], [took(3), took(6), took(4)], ratio=3.5)
    assert table.ratios(found, "peer") == [3.0, 3.0, 4.0]
    assert table.spread([3.0, 3.0, 4.0]) == "3 (3-4)"
    assert table.promises(found) == [("ratio", 3.5, 3.0, False)]
    assert table.ratios(found, "limit") == []


def test_a_failed_run_takes_its_pair_out() -> None:
    found = result("MiB/s", [took(1), {"error": "gone"}], [took(2), took(2)], cpu=0.5)
    assert table.ratios(found, "peer") == [2.0]
    assert table.amount(found, "ours") == "100"
    assert table.promises(found) == [("CPU", 0.5, 1.0, False)]
    assert "failed" in table.main_table([result("ms", [{"error": "gone"}], [took(2)])])


def test_names_of_rows_are_unique() -> None:
    names = run("--list").stdout.splitlines()
    assert len(names) > 30
    assert len(names) == len(set(names))
