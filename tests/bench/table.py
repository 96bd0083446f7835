"""Results as tables in Markdown: ours against the peer, and everybody else beside."""

from __future__ import annotations

from collections.abc import Iterable
from statistics import median
from typing import Any

from compare import rate

Result = dict[str, Any]
NONE = "-"


def rates(result: Result, side: str) -> list[float]:
    found = result["sides"].get(side, {"runs": []})["runs"]
    return [value for run in found if (value := rate(run, result["unit"])) is not None]


def ratios(result: Result, other: str) -> list[float]:
    """Ours to another side's, run by run: the runs of one round are neighbours in time."""
    sides = result["sides"]
    if "ours" not in sides or other not in sides:
        return []
    pairs = zip(sides["ours"]["runs"], sides[other]["runs"], strict=False)
    both = [(rate(ours, result["unit"]), rate(theirs, result["unit"])) for ours, theirs in pairs]
    return [ours / theirs for ours, theirs in both if ours and theirs]


def spread(values: list[float]) -> str:
    """The median, and the least and the largest."""
    if not values:
        return NONE
    middle = short(median(values))
    return middle if len(values) == 1 else f"{middle} ({short(min(values))}-{short(max(values))})"


def short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def amount(result: Result, side: str) -> str:
    """How fast a side was, in the row's unit; why it was not, if it failed."""
    found = rates(result, side)
    if not found:
        return "failed" if result["sides"].get(side, {"runs": []})["runs"] else NONE
    return f"{short(1000 / median(found))} ms" if result["unit"] == "ms" else short(median(found))


def cpu(result: Result, side: str) -> float | None:
    """CPU seconds per object, or per GiB where bytes are counted."""
    runs = [run for run in result["sides"].get(side, {"runs": []})["runs"] if "error" not in run]
    if not runs:
        return None
    if result["unit"] == "MiB/s":
        return float(median(run["cpu_s"] / run["bytes"] * (1 << 30) for run in runs))
    return float(median(run["cpu_s"] / run["objects"] for run in runs))


def cpu_text(result: Result, side: str) -> str:
    value = cpu(result, side)
    if value is None:
        return NONE
    return f"{value:.2f} s" if result["unit"] == "MiB/s" else f"{short(value * 1e6)} us"


def rss(result: Result, side: str) -> float | None:
    runs = [run for run in result["sides"].get(side, {"runs": []})["runs"] if "error" not in run]
    return max((run["rss_growth_mib"] for run in runs), default=None)


def rss_text(result: Result, side: str) -> str:
    value = rss(result, side)
    return NONE if value is None else f"{value:.0f}"


def promises(result: Result) -> list[tuple[str, float, float, bool]]:
    """What the row promises: name, promised, found, kept. Only what was measured."""
    bars, found = result["bars"], []
    to_peer, to_limit = ratios(result, "peer"), ratios(result, "limit")
    ours, theirs, grown, speed = cpu(result, "ours"), cpu(result, "peer"), rss(result, "ours"), rates(result, "ours")
    if bars["ratio"] is not None and to_peer:
        found.append(at_least("ratio", bars["ratio"], median(to_peer)))
    if bars["of_limit"] is not None and to_limit:
        found.append(at_least("of the limit", bars["of_limit"], median(to_limit)))
    if bars["cpu"] is not None and ours and theirs:
        found.append(at_most("CPU", bars["cpu"], ours / theirs))
    if bars["rss_mib"] is not None and grown is not None:
        found.append(at_most("RSS", bars["rss_mib"], grown))
    if bars["seconds"] is not None and speed:
        found.append(at_most("seconds", bars["seconds"], 1 / median(speed)))
    return found


def at_least(name: str, bar: float, value: float) -> tuple[str, float, float, bool]:
    return name, bar, value, value >= bar


def at_most(name: str, bar: float, value: float) -> tuple[str, float, float, bool]:
    return name, bar, value, value <= bar


def promise_text(result: Result) -> str:
    signs = {"CPU": "<=", "RSS": "<=", "seconds": "<="}
    return "; ".join(
        f"{name} {signs.get(name, '>=')} {bar:g}: {'kept' if kept else f'**missed, {short(value)}**'}"
        for name, bar, value, kept in promises(result)
    )


def main_table(results: Iterable[Result], judge: bool = True) -> str:
    """Ours and the peer. judge: say whether each row keeps what it promises."""
    head = (
        *("workload", "server", "unit", "ours", "peer", "ours / peer", "CPU ours", "CPU peer"),
        *("RSS MiB ours", "RSS MiB peer", "ours / limit", "promised"),
    )
    lines = [
        (
            *(result["name"], result["server"], result["unit"], amount(result, "ours"), amount(result, "peer")),
            *(spread(ratios(result, "peer")), cpu_text(result, "ours"), cpu_text(result, "peer")),
            *(rss_text(result, "ours"), rss_text(result, "peer"), spread(ratios(result, "limit"))),
            promise_text(result) if judge else NONE,
        )
        for result in results
    ]
    return markdown(head, lines)


def brief_table(results: Iterable[Result]) -> str:
    """What fits on a page: the rows in which the peer took part; ours and then the peer's where a cell has two figures."""
    head = ("workload", "server", "times as fast", "CPU", "memory growth, MiB", "of the bare loop")
    lines = []
    for result in results:
        if not ratios(result, "peer"):
            continue
        used = " and ".join(cpu_text(result, side) for side in ("ours", "peer"))
        grown = " and ".join(rss_text(result, side) for side in ("ours", "peer"))
        in_workers = result["workload"] in ("loader", "volumes")
        limits = ratios(result, "limit")
        lines.append(
            (
                *(result["name"], result["server"], spread(ratios(result, "peer")), used),
                *(NONE if in_workers else grown, short(median(limits)) if limits else NONE),
            )
        )
    return markdown(head, lines)


def others_table(results: Iterable[Result]) -> str:
    """The rows in which more than the peer took part; "" where there are none."""
    names = ("sdk", "tosfsspec", "tosfs", "limit")
    head = ("workload", "unit", "ours", *(text for name in names for text in (name, f"ours / {name}")))
    lines = [
        (
            *(result["name"], result["unit"], amount(result, "ours")),
            *(text for name in names for text in (amount(result, name), spread(ratios(result, name)))),
        )
        for result in results
        if any(name in result["sides"] for name in names[:3])
    ]
    return markdown(head, lines) if lines else ""


def derived(results: list[Result]) -> list[str]:
    """Figures that take more than one row, or another measure."""
    by_name = {result["name"]: result for result in results}
    return [*gil_lines(by_name), *load_lines(by_name), *listing_lines(by_name), *import_lines(by_name)]


def gil_lines(by_name: dict[str, Result]) -> list[str]:
    """How near work that holds the GIL comes to its ideal, where that work and our transfer take turns."""
    lines = []
    for name, result in by_name.items():
        amount_of_work, found, rest = name.partition(" ms of work a sample")
        free = by_name.get(f"0{found}{rest}")
        if not found or amount_of_work == "0" or free is None:
            continue
        worked = [run["work_s"] for run in result["sides"]["ours"]["runs"] if run.get("work_s")]
        transfer, speed = cpu(free, "ours"), rates(result, "ours")
        if worked and speed and transfer is not None:
            reached = median(speed) * (median(worked) + transfer)
            lines.append(f"{name}: {reached:.2f} of the ideal, 1 / (work + CPU of the transfer)")
    return lines


def load_lines(by_name: dict[str, Result]) -> list[str]:
    result = by_name.get("torch.load of 1 GiB")
    if result is None:
        return []
    ours, memory, limit = (rates(result, side) for side in ("ours", "memory", "limit"))
    if not (ours and memory and limit):
        return []
    ideal = 1 / median(memory) + 1 / median(limit)
    return [f"torch.load: {1 / median(ours) / ideal:.2f} times torch.load from memory plus the transfer at the limit"]


def listing_lines(by_name: dict[str, Result]) -> list[str]:
    result = by_name.get("listing, 5 ms a page")
    grown = rss(result, "ours") if result else None
    if result is None or grown is None:
        return []
    count = result["sides"]["ours"]["runs"][0].get("objects", 0)
    return [f"listing: {grown * (1 << 20) / count:.0f} bytes of memory per key, the key included"] if count else []


def import_lines(by_name: dict[str, Result]) -> list[str]:
    result = by_name.get("import")
    runs = result["sides"]["ours"]["runs"] if result else []
    return [
        "import: torch was " + ("imported" if run["torch_imported"] else "not imported")
        for run in runs[:1]
        if "error" not in run
    ]


def markdown(head: Iterable[str], lines: Iterable[Iterable[str]]) -> str:
    """A table; numbers are padded so that it can be read as text too."""
    cells = [list(head), *(list(line) for line in lines)]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    text = [" | ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)) for line in cells]
    rule = " | ".join("-" * max(3, width) for width in widths)
    return "\n".join(f"| {line} |" for line in (text[0], rule, *text[1:]))
