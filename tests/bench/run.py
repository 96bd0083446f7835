"""Measure tosnative beside its peers: python tests/bench/run.py (README.md in this folder says how to read it)."""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import platform
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from burden import digest, per_ms, spin
from chart import draw_curves, draw_table
from compare import Bench, short_form
from contents import LONG, SHORT
from curves import SERIES_BYTES, SHORT_SERIES_BYTES, curve_table, measure_curves, summary
from rows import Row, Work, all_rows
from servers import Servers
from sides import find_sides
from table import brief_table, derived, main_table, markdown, others_table, promises

SHORT_TIMEOUT_S = 40.0
LONG_TIMEOUT_S = 600.0


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="run.py", description="Measure tosnative beside its peers on this machine.")
    made.add_argument(
        "--short", action="store_true", help="little of everything, once: shows that it works, not how fast"
    )
    made.add_argument("--pairs", type=int, default=5, help="rounds of each row (default: %(default)s)")
    made.add_argument("--only", action="append", metavar="PATTERN", help="rows whose name matches; repeatable")
    made.add_argument("--without", action="append", default=[], metavar="SIDE", help="leave out a side; repeatable")
    made.add_argument("--no-nginx", action="store_true", help="serve the reads with the project's own server too")
    made.add_argument("--curves", action="store_true", help="measure the curves in place of the table")
    made.add_argument("--json", type=Path, metavar="FILE", help="keep all results; with --redraw, read them")
    made.add_argument("--chart", type=Path, metavar="FILE", help="draw (.svg or .png); needs matplotlib")
    made.add_argument("--redraw", action="store_true", help="measure nothing: print and draw what --json holds")
    made.add_argument("--brief", action="store_true", help="print only a table that fits on a page")
    made.add_argument("--list", action="store_true", help="print the names of the rows")
    return made


def measured_work() -> Work:
    return Work(per_ms(spin, 200_000), per_ms(digest, 500))


def machine() -> dict[str, Any]:
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.partition(":")[2].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass
    return {"cpu": model, "cpus": os.cpu_count(), "system": platform.platform(), "python": platform.python_version()}


def chosen(rows: list[Row], patterns: list[str] | None) -> list[Row]:
    return [row for row in rows if not patterns or any(fnmatch.fnmatch(row.name, pattern) for pattern in patterns)]


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    sides, notes = find_sides()
    sides = {name: side for name, side in sides.items() if name not in arguments.without}
    rows = chosen(all_rows(Work(20, 1) if arguments.short else measured_work()), arguments.only)
    contents = SHORT if arguments.short else LONG
    if arguments.curves:
        contents = replace(contents, sized_bytes=SHORT_SERIES_BYTES if arguments.short else SERIES_BYTES)
    servers = Servers(contents, nginx=not arguments.no_nginx)
    if servers.nginx_version is None:
        notes.append("nginx is not used: the project's own server serves the reads as well")
    if (load := os.getloadavg()[0]) > 0.5:
        notes.append(f"the machine was not idle (load average {load:.1f}): expect wide ranges")
    if servers.certificate is None:
        notes.append("rows over TLS are left out: there is no openssl command to make a certificate")
        rows = [row for row in rows if servers.offers(row.place)]
    for note in notes:
        print(f"note: {note}", file=sys.stderr)
    report: dict[str, Any] = {
        "machine": machine(),
        "nginx": servers.nginx_version,
        "notes": notes,
        "short": arguments.short,
    }
    report |= {"began": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "rows": [], "curves": []}
    bench = Bench(servers, contents, sides, arguments.pairs, SHORT_TIMEOUT_S if arguments.short else LONG_TIMEOUT_S)
    report["versions"] = bench.versions
    try:
        fill(report, bench, rows, arguments)
    finally:
        bench.close()
        servers.close()
    return report


def fill(report: dict[str, Any], bench: Bench, rows: list[Row], arguments: argparse.Namespace) -> None:
    """Measure, and keep what there is after every row: a run takes long."""
    if arguments.curves:
        report["curves"] = measure_curves(bench, short=arguments.short)
    elif arguments.short:
        report["rows"] = short_form(bench, rows)
    for row in [] if arguments.curves or arguments.short else rows:
        report["rows"].append(bench.row(row))
        print(main_table(report["rows"][-1:]).splitlines()[-1], file=sys.stderr, flush=True)
        keep(report, arguments.json)
    keep(report, arguments.json)


def keep(report: dict[str, Any], path: Path | None) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(report, indent=1) + "\n")


def show(report: dict[str, Any], arguments: argparse.Namespace) -> None:
    if arguments.brief:
        print(brief_table(report["rows"]))
    else:
        show_all(report)
    if arguments.chart is not None:
        (draw_curves if report["curves"] else draw_table)(report, arguments.chart)


def show_all(report: dict[str, Any]) -> None:
    rows = report["rows"]
    if rows:
        print(main_table(rows, judge=not report["short"]))
        if others := others_table(rows):
            print("", others, sep="\n")
        if not report["short"]:
            print("", *(f"- {line}" for line in derived(rows)), sep="\n")
    for curve in report["curves"]:
        print(f"{curve['name']}\n\n{markdown(*curve_table(curve))}\n")
    if report["curves"]:
        print(*(f"- {line}" for line in summary(report["curves"])), sep="\n")
    print(
        f"\n{report['machine']['cpu']}, {report['machine']['cpus']} CPUs, {report['machine']['system']}, nginx {report['nginx']}"
    )
    for name, found in report["versions"].items():
        print(f"{name}: {', '.join(f'{package} {version}' for package, version in found.items())}")


def failures(report: dict[str, Any]) -> list[str]:
    """Rows in which our own side failed."""
    runs = [(row["name"], run) for row in report["rows"] for run in row["sides"].get("ours", {"runs": []})["runs"]]
    return sorted({name for name, run in runs if "error" in run})


def main(argv: Sequence[str] | None = None) -> int:
    arguments = parser().parse_args(argv)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the servers end with it
    if arguments.list:
        print("\n".join(row.name for row in all_rows(Work(1, 1))))
        return 0
    report = json.loads(arguments.json.read_text()) if arguments.redraw else measure(arguments)
    show(report, arguments)
    if report["rows"] and not (report["short"] or arguments.brief):
        kept = [one[3] for row in report["rows"] for one in promises(row)]
        print(f"{sum(kept)} of {len(kept)} promises kept")
    if failed := failures(report):
        print(f"tosnative failed in: {'; '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
