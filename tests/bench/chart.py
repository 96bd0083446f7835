"""The charts. They need matplotlib (the extra `bench`); without it a note is printed and nothing is drawn."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from statistics import median
from typing import Any

from table import ratios

OURS, PEER, GREY = "#0b6e4f", "#c44536", "#8a8a8a"
COLOURS = {"ours": OURS, "peer": PEER, "limit": GREY, "ideal": "black"}
LABELS = {"ours": "tosnative", "peer": "tostorchconnector", "limit": "bare socket loop", "ideal": "ideal"}


def pyplot() -> Any | None:
    try:
        importlib.import_module("matplotlib").use("Agg")
        found = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        print("note: no chart, matplotlib is not installed (pip install 'tosnative[bench]')", file=sys.stderr)
        return None
    # The same results give the same file: no ids made by chance.
    found.rcParams["svg.hashsalt"] = "tosnative"
    return found


def draw_table(report: dict[str, Any], path: Path) -> None:
    """How many times the peer's speed ours is, row by row: the median as a bar, the range as a line."""
    plot = pyplot()
    measured = [row for row in report["rows"] if row["unit"] != "ms"]  # times to start have another scale
    rows = [(row["name"], found) for row in measured if (found := ratios(row, "peer"))]
    if plot is None or not rows:
        return
    rows.reverse()
    figure, axes = plot.subplots(figsize=(9, 1.2 + 0.32 * len(rows)))
    middles = [median(found) for _, found in rows]
    below = [middle - min(found) for middle, (_, found) in zip(middles, rows, strict=True)]
    above = [max(found) - middle for middle, (_, found) in zip(middles, rows, strict=True)]
    places = range(len(rows))
    axes.barh(places, [middle - 1 for middle in middles], left=1, color=[OURS if m >= 1 else PEER for m in middles])
    axes.errorbar(middles, places, xerr=[below, above], fmt="none", ecolor="black", elinewidth=1, capsize=2)
    for place, middle, (_, found) in zip(places, middles, rows, strict=True):
        axes.annotate(
            f"{middle:.3g}x", (max(found), place), (6, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_yticks(list(places), [name for name, _ in rows], fontsize=9)
    axes.set_xscale("log")
    axes.margins(x=0.15, y=0.01)
    axes.axvline(1, color="black", linewidth=1)
    axes.set_xlabel(
        f"times the speed of tostorchconnector {version_of(report, 'peer', 'tostorchconnector')} (log scale)"
    )
    axes.set_title(
        f"tosnative {version_of(report, 'ours', 'tosnative')} on {report['machine']['cpus']} CPUs, same server, same run"
    )
    finish(figure, path)


def draw_curves(report: dict[str, Any], path: Path) -> None:
    """One panel for each curve."""
    plot = pyplot()
    if plot is None:
        return
    high = (len(report["curves"]) + 1) // 2
    figure, panels = plot.subplots(high, 2, figsize=(10, 3.4 * high), squeeze=False)
    for axes in panels.flat[len(report["curves"]) :]:
        axes.set_axis_off()
    for axes, curve in zip(panels.flat, report["curves"], strict=False):
        for name, colour in COLOURS.items():
            points = [(p["x"], p[name]) for p in curve["points"] if p["x"] is not None and p.get(name) is not None]
            if points:
                axes.plot(*zip(*points, strict=True), "o-", color=colour, label=LABELS[name], markersize=3)
            for default in (p.get(name) for p in curve["points"] if p["x"] is None):
                if default is not None:
                    axes.axhline(default, color=colour, linestyle=":", label=f"{LABELS[name]}, defaults")
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.set_title(curve["name"] + caution(report))
        axes.set_xlabel(curve["x"])
        axes.set_ylabel(curve["unit"])
        axes.legend(fontsize=7)
    finish(figure, path)


def caution(report: dict[str, Any]) -> str:
    return " (short form: not a measurement)" if report["short"] else ""


def finish(figure: Any, path: Path) -> None:
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def version_of(report: dict[str, Any], side: str, package: str) -> str:
    return str(report["versions"].get(side, {}).get(package, ""))
