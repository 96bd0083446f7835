"""Fuzz the parsers: python -m tests.fuzz TARGET|all [--seconds N | --runs N] [--seed N] [--corpus DIR] [--plain].

Coverage guides the inputs where atheris is installed; elsewhere, or with --plain, seeds and words are only mixed. A defect ends
the run with its traceback, the input in hexadecimal and exit status 1 (77 under atheris).
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.util
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

MAX_BYTES = 4096


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__.partition("\n")[0])
    parser.add_argument("target", help="the name of a target, or all")
    parser.add_argument("--seconds", type=float, default=None, help="for so long (default: 60)")
    parser.add_argument("--runs", type=int, default=None, help="so many inputs")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--corpus", help="a folder where inputs that reached something new are kept")
    parser.add_argument("--plain", action="store_true", help="without atheris")
    parser.add_argument("--scratch", help=argparse.SUPPRESS)
    return parser


def _pick(targets: dict[str, Any], name: str) -> Any:
    if name not in targets:
        sys.exit(f"there is no target {name!r}: all, {', '.join(targets)}")
    return targets[name]


def _load(instrumenting: Any) -> dict[str, Any]:
    """The targets; imported late, as atheris has to instrument what they import."""
    with instrumenting:
        found: dict[str, Any] = importlib.import_module("tests.fuzz.targets").TARGETS
    return found


def _guided(name: str, args: argparse.Namespace) -> None:
    """Run one target under atheris, which ends the process."""
    atheris = importlib.import_module("atheris")
    target = _pick(_load(atheris.instrument_imports(include=["tosnative"])), name)
    corpus = Path(args.corpus or args.scratch, name)
    corpus.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed{number}").write_bytes(seed)
    words = Path(args.scratch, "words")
    words.write_text("".join(f'"{"".join(f"{chr(92)}x{byte:02x}" for byte in word)}"\n' for word in target.words))
    bound = f"-runs={args.runs}" if args.runs is not None else f"-max_total_time={args.seconds or 60:.0f}"
    options = [f"-seed={args.seed}", f"-max_len={MAX_BYTES}", f"-artifact_prefix={args.scratch}/", f"-dict={words}"]
    atheris.Setup([sys.argv[0], bound, *options, "-print_final_stats=1", str(corpus)], target.check)
    atheris.Fuzz()


def _mix(target: Any, chance: random.Random) -> bytes:
    """Seeds and words, cut, joined, and with bytes of them changed."""
    data = bytearray(chance.choice(target.seeds))
    for _ in range(chance.randint(0, 6)):
        at = chance.randint(0, len(data))
        stop = min(len(data), at + chance.choice((0, 0, 1, 2, 10)))
        piece = chance.choice((b"", *target.words, chance.randbytes(chance.randint(1, 3))))
        if chance.random() < 0.1:
            piece = chance.choice(target.seeds)
        data[at:stop] = piece
    return bytes(data[:MAX_BYTES])


def _plain(name: str, args: argparse.Namespace) -> int:
    target, chance = _pick(_load(contextlib.nullcontext()), name), random.Random(args.seed)
    end = time.monotonic() + (args.seconds or 60)
    count = 0
    while count < args.runs if args.runs is not None else time.monotonic() < end:
        data = target.seeds[count] if count < len(target.seeds) else _mix(target, chance)
        try:
            target.check(data)
        except BaseException:
            print(f"{name}: {data.hex()}", file=sys.stderr)
            raise
        count += 1
    print(f"{name}: {count} inputs, no defect", file=sys.stderr)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    args = _parser().parse_args(argv)
    if args.target == "all":
        rest = list(sys.argv[1:] if argv is None else argv)
        rest.remove("all")
        command = [sys.executable, "-m", "tests.fuzz"]
        return max(subprocess.call([*command, name, *rest]) for name in _load(contextlib.nullcontext()))
    if importlib.util.find_spec("atheris") is None or args.plain:
        return _plain(args.target, args)
    if args.scratch:
        _guided(args.target, args)
    with tempfile.TemporaryDirectory() as scratch:  # of this process, as atheris ends its own without a word
        command = [sys.executable, "-m", "tests.fuzz", *(sys.argv[1:] if argv is None else argv), "--scratch", scratch]
        return subprocess.call(command)


if __name__ == "__main__":
    sys.exit(main())
