"""Runs inside every side's process: takes jobs, measures the work of each, prints one line of JSON for each."""

from __future__ import annotations

import gc
import importlib.metadata
import json
import os
import platform
import resource
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from contents import Contents

PACKAGES = ("tosnative", "tostorchconnector", "tosnativeclient", "tosfsspec", "tosfs", "tos", "torch", "urllib3")


@dataclass(frozen=True)
class Job:
    """One piece of work: what to do, where, and how the side is set."""

    workload: str
    endpoint: str
    contents: Contents
    settings: dict[str, Any]

    def setting(self, name: str, default: Any = None) -> Any:
        return self.settings.get(name, default)


@dataclass
class Done:
    """What a piece of work moved, and other facts worth keeping."""

    objects: int
    nbytes: int
    facts: dict[str, Any] = field(default_factory=dict)


Work = Callable[[], Done]
Workload = Callable[[Job], Work]
"""Prepares a job, which is not measured, and returns the work, which is."""


def measure(work: Work) -> dict[str, Any]:
    """Seconds, CPU seconds of this process and of the children that ended meanwhile, and growth of the resident set."""
    gc.collect()  # what the imports left is not the work's
    before_mib = start_peak()
    used, began = cpu_s(), time.perf_counter()
    done = work()
    seconds, used = time.perf_counter() - began, cpu_s() - used
    return {
        "seconds": seconds,
        "objects": done.objects,
        "bytes": done.nbytes,
        "cpu_s": used,
        "rss_growth_mib": max(0.0, peak_mib() - before_mib),
        **done.facts,
    }


def cpu_s() -> float:
    total = 0.0
    for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN):
        used = resource.getrusage(who)
        total += used.ru_utime + used.ru_stime
    return total


def start_peak() -> float:
    """The resident set now, in MiB; the peak counts from here on where the system lets it be reset."""
    try:
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")
        return status_mib("VmRSS")
    except OSError:
        return peak_mib()


def peak_mib() -> float:
    try:
        return status_mib("VmHWM")
    except OSError:
        scale = 1 << 20 if platform.system() == "Darwin" else 1 << 10
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / scale


def status_mib(name: str) -> float:
    with open("/proc/self/status") as file:
        for line in file:
            if line.startswith(name + ":"):
                return int(line.split()[1]) / 1024
    raise OSError(f"no {name} in /proc/self/status")


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def run_jobs(workloads: Mapping[str, Workload], arguments: str, preload: Callable[[], object] = lambda: None) -> None:
    """Do what the command line asks for: jobs as JSON, or "serve"."""
    say({"versions": versions()})
    if arguments == "serve":
        preload()
        serve(workloads)
    else:
        do_jobs(workloads, arguments)


def serve(workloads: Mapping[str, Workload]) -> None:
    """Read jobs from standard input, a JSON list a line, and do those of each line in a child forked for them.

    So each run has a process of its own without importing everything again, which takes longer than most runs do.
    """
    gc.freeze()
    while line := sys.stdin.readline():
        child = os.fork()
        if not child:
            do_jobs(workloads, line)
            os._exit(0)
        say({"ended": os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])})


def do_jobs(workloads: Mapping[str, Workload], jobs: str) -> None:
    """One result a job; a job that fails says so, and the next one follows."""
    for item in json.loads(jobs):
        job = Job(**{**item, "contents": Contents(**item["contents"])})
        try:
            result = measure(workloads[job.workload](job))
        except Exception as error:  # noqa: BLE001 - foreign clients; the run goes on without this figure
            traceback.print_exc()
            result = {"error": f"{type(error).__name__}: {error}"[:500]}
        say(result)


def say(line: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
