"""One row after the other: choose each side's settings, run the sides in alternating order, keep every run."""

from __future__ import annotations

import dataclasses
import sys
from dataclasses import dataclass, field
from typing import Any

from contents import Contents
from rows import Row, Settings
from servers import Servers
from sides import Asked, Driver, Side, run_side

# These are there for orientation: they take part in so many rounds only.
OCCASIONAL = {"sdk": 2, "tosfs": 2, "tosfsspec": 2, "memory": 3}
SHORT_OBJECTS = 32
FORKS = ("loader", "volumes")
# Measured in an interpreter that is started for it: what it has imported is what is asked.
FRESH = ("import", "import_names", "first")

Run = dict[str, Any]


@dataclass
class Bench:
    """What a run works with. versions: filled in as the sides tell."""

    servers: Servers
    contents: Contents
    sides: dict[str, Side]
    pairs: int
    timeout_s: float
    versions: dict[str, dict[str, str]] = field(default_factory=dict)
    drivers: dict[str, Driver] = field(default_factory=dict)

    def row(self, row: Row) -> dict[str, Any]:
        """Measure one row; the result goes into the JSON as it is."""
        taking_part = {name: settings for name, settings in row.sides.items() if name in self.sides}
        if row.needs is not None:
            self.run(row.needs[0], dataclasses.replace(row, workload=row.needs[1]), {})
        found: dict[str, Any] = {}
        for name, settings in taking_part.items():
            chosen, sweep = self.choose(name, row, settings)
            found[name] = {"settings": chosen, "sweep": sweep, "runs": []}
        for number in range(self.pairs):
            names = list(found) if number % 2 == 0 else list(reversed(found))
            for name in names:
                if number < OCCASIONAL.get(name, self.pairs):
                    found[name]["runs"].append(self.run(name, row, found[name]["settings"]))
        return self.result(row, found)

    def choose(self, name: str, row: Row, settings: tuple[Settings, ...]) -> tuple[Settings, list[dict[str, Any]]]:
        """The fastest settings of one run each, and how fast each was."""
        if len(settings) == 1:
            return settings[0], []
        rates = [rate(self.run(name, row, one), row.unit) or 0.0 for one in settings]
        sweep = [{"settings": one, "rate": found} for one, found in zip(settings, rates, strict=True)]
        return settings[rates.index(max(rates))], sweep

    def run(self, name: str, row: Row, settings: Settings) -> Run:
        asked = self.asked(row, settings)
        if row.workload in FRESH:
            (run,), versions = run_side(self.sides[name], [asked], self.contents, self.timeout_s)
            self.versions.setdefault(name, versions)
        else:
            (run,) = self.driver(name).run([asked], self.contents, self.timeout_s)
        return self.checked(name, row, settings, run)

    def driver(self, name: str) -> Driver:
        if name not in self.drivers or not self.drivers[name].usable:
            self.drivers[name] = Driver(self.sides[name])
            self.versions[name] = self.drivers[name].versions
        return self.drivers[name]

    def close(self) -> None:
        for driver in self.drivers.values():
            driver.close()

    def asked(self, row: Row, settings: Settings) -> Asked:
        ca_bundle = self.servers.ca_bundle(row.place)
        trust = {} if ca_bundle is None else {"ca_bundle": ca_bundle}
        return Asked(row.workload, self.servers.endpoint(row.place), {**settings, **trust})

    def checked(self, name: str, row: Row, settings: Settings, run: Run) -> Run:
        """The run, turned into an error where it moved less or more than it should have."""
        wanted = expected(row.workload, self.contents, settings)
        if "error" not in run and wanted is not None and (run["objects"], run["bytes"]) != wanted:
            run = {"error": f"moved {run['objects']} objects of {run['bytes']} bytes in place of {wanted}"}
        if "error" in run:
            sys.stderr.write(f"{row.name}: {name} {settings or 'defaults'}: {run['error']}\n")
        return run

    def result(self, row: Row, found: dict[str, Any]) -> dict[str, Any]:
        facts = dataclasses.asdict(row)
        del facts["sides"], facts["needs"]
        return {**facts, "server": self.servers.name(row.place), "sides": found}


def short_form(bench: Bench, rows: list[Row]) -> list[dict[str, Any]]:
    """Every row once for every side, one process per side: shows that all of it works, not how fast."""
    found: list[dict[str, Any]] = [{} for _ in rows]
    # Workers are forked before a side has made connections: some clients do not survive a fork beside their threads.
    order = sorted(range(len(rows)), key=lambda number: rows[number].workload not in FORKS)
    for name, side in bench.sides.items():
        mine = [(number, short_settings(rows[number], name)) for number in order if name in rows[number].sides]
        first = [dataclasses.replace(row, workload=row.needs[1]) for row in rows if row.needs and row.needs[0] == name]
        asked = [bench.asked(row, {}) for row in first] + [bench.asked(rows[n], settings) for n, settings in mine]
        runs, bench.versions[name] = run_side(side, asked, bench.contents, bench.timeout_s)
        for (number, settings), run in zip(mine, runs[len(first) :], strict=True):
            checked = bench.checked(name, rows[number], settings, run)
            found[number][name] = {"settings": settings, "sweep": [], "runs": [checked]}
    return [bench.result(row, sides) for row, sides in zip(rows, found, strict=True)]


def short_settings(row: Row, side: str) -> Settings:
    settings = row.sides[side][-1]
    if "far" in row.place and row.workload in ("iterable", "batches", "loader"):
        return {**settings, "objects": SHORT_OBJECTS}
    return settings


def expected(workload: str, contents: Contents, settings: Settings) -> tuple[int, int] | None:
    """The objects and bytes that a job has to move; None where there is nothing to compare with."""
    if workload in ("iterable", "batches", "loader"):
        size = settings.get("object_bytes", contents.small_bytes)
        keys = contents.sized_keys(size) if "object_bytes" in settings else contents.small_keys()
        count = settings.get("objects", len(keys))
        return count, count * size
    return {
        "volumes": (contents.volumes, contents.volumes * contents.volume_bytes),
        "big": (1, contents.big_bytes),
        "write": (1, contents.big_bytes),
        "save": (1, contents.big_bytes),
        "load": (1, contents.big_bytes),
        "ranges": (contents.ranges, contents.ranges * contents.range_bytes),
        "listing": (contents.listed, 0),
    }.get(workload)


def rate(run: Run, unit: str) -> float | None:
    """How fast a run was: in MiB or objects a second, whatever the unit of the table; None if it failed."""
    if "error" in run:
        return None
    moved = run["bytes"] / (1 << 20) if unit == "MiB/s" else run["objects"]
    return float(moved / run["seconds"])
