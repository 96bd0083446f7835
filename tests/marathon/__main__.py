"""The five proofs, by command: python -m tests.marathon read|write|tail|leak|soak [--long] [--seed N] [--json] [--peer].

The last line on standard output holds the figures; exit status 1 says that something is not as it must be, and standard
error what.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from tests.marathon import leak, reads, soak, tail, writes
from tests.marathon.figures import line

Found = tuple[dict[str, Any], list[str]]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.marathon", description=__doc__.partition("\n")[0])
    parser.add_argument("proof", choices=list(PROOFS))
    parser.add_argument("--long", action="store_true", help="the long form (default: the short one)")
    parser.add_argument("--seed", type=int, default=1, help="decides what is read and saved, and the faults' chances")
    parser.add_argument("--json", action="store_true", help="the figures as one line of JSON")
    parser.add_argument("--peer", action="store_true", help="read, write: the peer too, by TOSNATIVE_PEER_PYTHON")
    parser.add_argument(
        "--count", type=int, help="as many reads, saves, batches or epochs, in place of the form's number"
    )
    parser.add_argument("--seconds", type=float, help="soak: for so long")
    parser.add_argument("--ttfb-ms", type=float, default=0.0, help="tail: what every answer takes besides")
    parser.add_argument("--quiet", action="store_true", help="no lines of progress")
    return parser


def _read(args: argparse.Namespace) -> Found:
    plan = _sized(args, reads.LONG if args.long else reads.Plan(), "reads")
    found = reads.run(plan, _peer(args), args.quiet)
    return found, reads.judge(found)


def _write(args: argparse.Namespace) -> Found:
    plan = _sized(args, writes.LONG if args.long else writes.Plan(), "saves")
    found = writes.run(plan, _peer(args), args.quiet)
    return found, writes.judge(found)


def _tail(args: argparse.Namespace) -> Found:
    plan = _sized(args, tail.LONG if args.long else tail.Plan(), "batches")
    found = tail.run(replace(plan, ttfb_s=args.ttfb_ms / 1000), args.quiet)
    return found, tail.judge(found, args.long)


def _leak(args: argparse.Namespace) -> Found:
    plan = _sized(args, leak.LONG if args.long else leak.Plan(), "epochs")
    found = leak.run(plan, args.quiet)
    return found, leak.judge(plan, found)


def _soak(args: argparse.Namespace) -> Found:
    plan = replace(soak.LONG if args.long else soak.Plan(), seed=args.seed)
    if args.seconds is not None:
        plan = replace(plan, seconds=args.seconds)
    found = soak.run(plan, lambda figures: line(figures, args.json), args.quiet)
    return found, soak.judge(plan, found, args.long)


PROOFS: dict[str, Callable[[argparse.Namespace], Found]] = {
    "read": _read,
    "write": _write,
    "tail": _tail,
    "leak": _leak,
    "soak": _soak,
}


def _sized(args: argparse.Namespace, plan: Any, what: str) -> Any:
    plan = replace(plan, seed=args.seed)
    return plan if args.count is None else replace(plan, **{what: args.count})


def _peer(args: argparse.Namespace) -> str | None:
    python = os.environ.get("TOSNATIVE_PEER_PYTHON")
    if args.peer and not python:
        raise SystemExit("--peer: TOSNATIVE_PEER_PYTHON must name a Python that has tostorchconnector")
    return python if args.peer else None


def main(argv: Sequence[str] | None = None) -> int:
    """Run one proof; returns the exit status."""
    args = _parser().parse_args(argv)
    found, problems = PROOFS[args.proof](args)
    for problem in problems:
        print(f"{args.proof}: {problem}", file=sys.stderr)
    print(line({**found, "passed": not problems}, args.json), flush=True)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
