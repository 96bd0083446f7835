"""Throughput against the number in flight and against the size of the objects, ours, the peer's and the bare loop's."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from statistics import median
from typing import Any

from burden import per_ms, spin
from compare import Bench, rate
from contents import MIB, SIZES
from rows import DEFAULTS, Row, Settings
from table import cpu, rates

ROUNDS = 3
SERIES_BYTES = 256 * MIB
SHORT_SERIES_BYTES = 1 * MIB
WORK_MS = (0.05, 0.1, 0.25, 0.5, 1, 2, 5)
COUNTS = (1_000, 10_000, 100_000, 1_000_000)
IN_FLIGHT = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


@dataclass(frozen=True)
class Condition:
    """Where the best number in flight is looked for. object_bytes None: the 100 KiB of the table."""

    name: str
    place: str
    object_bytes: int | None = None
    deepest: int = 512


CONDITIONS = (
    Condition("100 KiB at once", "near"),
    Condition("100 KiB after 20 ms", "far"),
    Condition("100 KiB after 20 ms, 1 % after 1 s", "stalls"),
    Condition("4 KiB at once", "near", 4 << 10),
    Condition("64 MiB at once", "near", 64 << 20, deepest=16),
)


def measure_curves(bench: Bench, short: bool) -> list[dict[str, Any]]:
    """The curves. A point is {"x": ..., side: rate}, the median of the rounds; x None stands for a side's defaults."""
    bench = dataclasses.replace(bench, pairs=1 if short else ROUNDS)
    found = []
    for condition in CONDITIONS[:2] if short else CONDITIONS:
        depths = [depth for depth in IN_FLIGHT[3 if short else 0 :: 4 if short else 1] if depth <= condition.deepest]
        points = [point(bench, condition, depth, at_depth(condition, depth)) for depth in depths]
        points.append(point(bench, condition, None, as_it_comes(condition)))
        found.append({"name": condition.name, "x": "in flight", "unit": "objects/s", "points": points})
    for place in ("near",) if short else ("near", "far"):
        conditions = [Condition("", place, size) for size in (SIZES[:1] if short else SIZES)]
        points = [point(bench, condition, condition.object_bytes, tuned(condition)) for condition in conditions]
        found.append({"name": f"size of objects, {place}", "x": "bytes", "unit": "MiB/s", "points": points})
    found.append(scale(bench, COUNTS[:1] if short else COUNTS))
    found.append(working_curve(bench, WORK_MS[-1:] if short else WORK_MS))
    return found


def working_curve(bench: Bench, amounts: tuple[float, ...]) -> dict[str, Any]:
    """Objects a second against milliseconds of work that holds the GIL for each of them, beside the ideal.

    The ideal is 1 / (work + CPU that an object costs us where there is none): both take turns on one lock.
    """
    turns, points = per_ms(spin, 200_000), []
    transfer_s = cpu(bench.row(Row("no work", "iterable", "read", "objects/s", {"ours": DEFAULTS})), "ours") or 0.0
    for amount in amounts:
        job = {"spins": round(turns * amount), "objects": max(200, int(1000 / amount))}
        good = {"prefetch_concurrency": 64, "shared_prefetch_tasks": 128}
        sides = {"ours": (job,), "peer": ({**job, **good},)}
        taking_part = {name: one for name, one in sides.items() if name in bench.sides}
        result = bench.row(Row(f"{amount:g} ms of work", "iterable", "read", "objects/s", taking_part))
        works = [run["work_s"] for run in result["sides"]["ours"]["runs"] if "error" not in run]
        ideal = {"ideal": 1 / (median(works) + transfer_s)} if works else {}
        points.append({"x": amount, **ideal, **{name: middle(result, name) for name in taking_part}})
    return {"name": "work that holds the GIL", "x": "ms a sample", "unit": "objects/s", "points": points}


def middle(result: dict[str, Any], side: str) -> float | None:
    found = rates(result, side)
    return median(found) if found else None


def scale(bench: Bench, counts: tuple[int, ...]) -> dict[str, Any]:
    """What an object costs us in datasets of so many; once each, as the largest takes a minute or two."""
    row = Row("number of objects", "iterable", "near", "objects/s", {"ours": DEFAULTS})
    points = []
    for count in counts:
        run = bench.run("ours", row, {"object_bytes": SIZES[0], "objects": count})
        if "error" not in run:
            facts = {"cpu_us": run["cpu_s"] / count * 1e6, "rss_growth_mib": run["rss_growth_mib"]}
            points.append({"x": count, "ours": rate(run, row.unit), **facts})
    return {"name": "number of objects of 4 KiB", "x": "objects", "unit": row.unit, "points": points}


def few(condition: Condition, depth: int) -> Settings:
    """Fewer objects where they come one after the other from far away."""
    return {"objects": 200} if depth < 8 and condition.place != "near" else {}


def at_depth(condition: Condition, depth: int) -> dict[str, Settings]:
    same = {**sized(condition), **few(condition, depth)}
    peer = {"prefetch_concurrency": depth, "shared_prefetch_tasks": max(32, depth)}
    return {
        "ours": {"prefetch_concurrency": depth, **same},
        "peer": {**peer, **same},
        "limit": {"connections": depth, **same},
    }


def as_it_comes(condition: Condition) -> dict[str, Settings]:
    return {"ours": sized(condition), "peer": {**sized(condition), **few(condition, 1)}}


def tuned(condition: Condition) -> dict[str, Settings]:
    """Ours as it comes; the peer at a setting that is good for it nearly everywhere."""
    same = sized(condition)
    good = {"prefetch_concurrency": 64, "shared_prefetch_tasks": 128}
    return {"ours": same, "peer": {**good, **same}, "limit": {"connections": 32, **same}}


def sized(condition: Condition) -> Settings:
    return {} if condition.object_bytes is None else {"object_bytes": condition.object_bytes}


def point(bench: Bench, condition: Condition, x: int | None, settings: dict[str, Settings]) -> dict[str, Any]:
    unit = "MiB/s" if x is not None and x == condition.object_bytes else "objects/s"
    sides = {name: (one,) for name, one in settings.items() if name in bench.sides}
    result = bench.row(Row(f"{condition.name or condition.place}, {x}", "iterable", condition.place, unit, sides))
    return {"x": x, **{name: middle(result, name) for name in result["sides"]}}


def summary(curves: list[dict[str, Any]]) -> list[str]:
    """What an object costs in large datasets, and how near our defaults come to the best number that could be set by hand."""
    lines = [
        f"{point['x']:,} objects: {point['cpu_us']:.0f} us of CPU each, {point['rss_growth_mib']:.0f} MiB of memory in all"
        for curve in curves
        for point in curve["points"]
        if "cpu_us" in point
    ]
    for curve in curves:
        by_hand = [(p["ours"], p["x"]) for p in curve["points"] if p["x"] is not None and p.get("ours")]
        default = next((p.get("ours") for p in curve["points"] if p["x"] is None), None)
        if default and by_hand:
            best, depth = max(by_hand)
            lines.append(
                f"{curve['name']}: the defaults reach {default / best:.2f} of the best setting ({depth} in flight)"
            )
    return lines


def curve_table(curve: dict[str, Any]) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
    """Head and lines."""
    points = curve["points"]
    sides = [name for name in ("ours", "peer", "limit", "ideal") if any(name in point for point in points)]
    lines = [
        ("defaults" if p["x"] is None else str(p["x"]), *(f"{p[side]:,.0f}" if p.get(side) else "-" for side in sides))
        for p in points
    ]
    return (curve["x"], *(f"{side}, {curve['unit']}" for side in sides)), lines
