"""The command's grammar, and what becomes of an error: one line on standard error."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn

from tosnative.cli import copy, doctor, objects
from tosnative.cli.output import complain
from tosnative.cli.places import bucket_or_remote, duration_s, place, remote, remote_object
from tosnative.cli.session import Session
from tosnative.errors import TosException
from tosnative.testing import serve

__all__ = ["main"]

_EPILOG = """\
TOS_ENDPOINT (or TOS_REGION), TOS_ACCESS_KEY, TOS_SECRET_KEY and, if needed, TOS_SECURITY_TOKEN say where and who.
Exit codes: 0 done, 1 failed, 2 wrong usage. Each command explains itself: tosnative cp --help
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        complain(f"{message} (see {self.prog} --help)")
        self.exit(2)


def _parser() -> argparse.ArgumentParser:
    formatter = argparse.RawDescriptionHelpFormatter
    parser = _Parser(
        prog="tosnative", description="Work with objects in TOS.", epilog=_EPILOG, formatter_class=formatter
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="command")
    connection = _Parser(add_help=False)
    connection.add_argument("--endpoint", help="such as tos-cn-beijing.volces.com; default: TOS_ENDPOINT")
    connection.add_argument("--region", help="such as cn-beijing; default: TOS_REGION, or inferred from the endpoint")

    def command(name: str, run: Callable[[Session], int], help_text: str, json: bool = True) -> argparse.ArgumentParser:
        added = commands.add_parser(name, parents=[connection], help=help_text, description=run.__doc__)
        added.set_defaults(run=run)
        if json:
            added.add_argument("--json", action="store_true", help="one JSON object per line")
        return added

    _add_looking(command)
    _add_changing(command)
    commands.add_parser(
        "serve", help="run a local TOS for tests and trying out (tosnative serve --help)", add_help=False
    )
    return parser


def _add_looking(command: Callable[..., argparse.ArgumentParser]) -> None:
    ls = command("ls", objects.ls, "list objects and folders under a prefix")
    ls.add_argument("uri", type=bucket_or_remote, help="tos://bucket/prefix, taken as it stands")
    ls.add_argument("-r", "--recursive", action="store_true", help="every object below, not one level")
    ls.add_argument("-b", "--bytes", action="store_true", help="sizes in bytes")
    stat = command("stat", objects.stat, "show size, time, ETag and CRC64 of objects")
    stat.add_argument("uri", type=remote_object, nargs="+", help="tos://bucket/key")
    cat = command("cat", objects.cat, "write objects to standard output", json=False)
    cat.add_argument("uri", type=remote_object, nargs="+", help="tos://bucket/key")
    du = command("du", objects.du, "count objects and bytes under a prefix")
    du.add_argument("uri", type=bucket_or_remote, nargs="+", help="tos://bucket/prefix, taken as it stands")
    check = command("doctor", doctor.doctor, "check endpoint, credentials, connection, clock and bucket")
    check.add_argument("uri", type=bucket_or_remote, nargs="?", help="the bucket to ask for")


def _add_changing(command: Callable[..., argparse.ArgumentParser]) -> None:
    cp = command("cp", copy.cp, "copy between this machine and TOS, or within TOS")
    cp.add_argument(
        "places", type=place, nargs="+", metavar="place", help="sources, then the target; - is standard input"
    )
    cp.add_argument("-r", "--recursive", action="store_true", help="everything below the source folders")
    rm = command("rm", objects.rm, "remove objects")
    rm.add_argument("uri", type=remote, nargs="+", help="tos://bucket/key")
    rm.add_argument("-r", "--recursive", action="store_true", help="the key, and everything below key/")
    rm.add_argument("-n", "--dry-run", action="store_true", help="only say what would be removed")
    rm.add_argument("--yes", action="store_true", help="allow emptying a whole bucket")
    uploads = command("uploads", objects.uploads, "list, and clean up, uploads that nobody completed")
    uploads.add_argument("uri", type=bucket_or_remote, help="tos://bucket/prefix, taken as it stands")
    uploads.add_argument("--abort-older-than", type=duration_s, metavar="AGE", help="such as 1d or 12h")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code. Arguments come from the command line where none are given."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["serve"]:
        return serve.main(arguments[1:])
    args = _parser().parse_args(arguments)
    if args.command == "cp" and len(args.places) < 2:
        complain("cp needs a source and a target (see tosnative cp --help)")
        return 2
    try:
        with Session(args) as session:
            run: Callable[[Session], int] = args.run
            code = run(session)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        # The reader of our output has gone, as `head` does: what is still buffered has nowhere to go.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except KeyboardInterrupt:
        complain("interrupted")
        return 130
    except (TosException, OSError, ValueError) as error:
        complain(str(error))
        return 1
