"""A local TOS as a process of its own: `python -m tosnative.testing.serve --bucket demo`."""

from __future__ import annotations

import argparse
import dataclasses
import ipaddress
import json
import shlex
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

from tosnative.testing.address import Address, LocalCredentials
from tosnative.testing.channel import serve_controlled
from tosnative.testing.control import Control, Settings
from tosnative.testing.errors import ServiceError
from tosnative.testing.messages import ServerOptions

_SWITCHES = {
    "crc_on_ranges": "answers to ranges carry the whole object's CRC64",
    "flat_list_on_hns": "lists without a delimiter work on buckets with directories",
    "stat_matches_directory": "?stat on d finds a directory d/",
    "unsorted_parts": "Complete takes parts in any order",
    "multipart_etag_dashed": "ETags of multipart objects end in -<parts>",
}


def parser() -> argparse.ArgumentParser:
    """The options of the command, for whoever offers it under another name."""
    made = argparse.ArgumentParser(
        prog="serve",
        description="Run a local TOS. In memory unless --root is given; ends on Ctrl-C or SIGTERM.",
    )
    made.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
    made.add_argument("--port", type=int, default=0, help="port to listen on, 0: any free one (default)")
    made.add_argument("--root", metavar="DIR", help="keep buckets and objects in this directory")
    made.add_argument("--bucket", action="append", default=[], metavar="NAME", help="create this bucket; repeatable")
    made.add_argument("--hns", action="append", default=[], metavar="NAME", help="the same, with directories")
    made.add_argument("--ak", default="AKLocalTos", help="access key id (default: %(default)s)")
    made.add_argument("--sk", default="SKLocalTos", help="secret access key (default: %(default)s)")
    made.add_argument("--token", help="security token that requests must carry (default: none)")
    made.add_argument("--region", default="cn-test", help="region that requests are signed for (default: %(default)s)")
    made.add_argument("--domain", action="append", default=[], metavar="NAME", help="host name of the service itself")
    made.add_argument("--no-signatures", action="store_true", help="serve everybody, signed or not")
    made.add_argument("--no-date-check", action="store_true", help="accept signatures of any age")
    made.add_argument("--min-part-size", type=int, metavar="BYTES", help="smallest part but the last (default: 4 MiB)")
    made.add_argument("--certificate", nargs=2, metavar=("CHAIN", "KEY"), help="PEM files: speak TLS too on the port")
    made.add_argument("--json", action="store_true", help="print the address as one line of JSON")
    switches = made.add_argument_group("where public sources leave open what TOS does")
    for name, meaning in _SWITCHES.items():
        flag = "--" + name.replace("_", "-")
        switches.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=meaning)
    made.add_argument("--control-fd", type=int, help=argparse.SUPPRESS)
    return made


def settings_of(arguments: argparse.Namespace) -> Settings:
    """What the server is built from, as the command line says it."""
    options = ServerOptions(
        region=arguments.region,
        credentials={arguments.ak: (arguments.sk, arguments.token)},
        check_signatures=not arguments.no_signatures,
        check_dates=not arguments.no_date_check,
    )
    given = {name: value for name in _SWITCHES if (value := getattr(arguments, name)) is not None}
    if arguments.min_part_size is not None:
        given["min_part_size_bytes"] = arguments.min_part_size
    if arguments.domain:
        given["domains"] = (*options.domains, *arguments.domain)
    return Settings(
        host=arguments.host,
        port=arguments.port,
        root=str(Path(arguments.root).absolute()) if arguments.root is not None else None,
        buckets=tuple(dict.fromkeys(arguments.bucket)),
        hns_buckets=tuple(dict.fromkeys(arguments.hns)),
        certificate=tuple(arguments.certificate) if arguments.certificate else None,
        record=False,
        options=dataclasses.replace(options, **given),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status once the server has ended."""
    arguments = parser().parse_args(argv)
    if arguments.control_fd is not None:
        # Ctrl-C in the terminal is for the process that started this one.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        serve_controlled(arguments.control_fd)
        return 0
    try:
        control = Control(settings_of(arguments))
    except (OSError, ValueError, ServiceError) as error:
        _say(f"serve: cannot start: {error}", error=True)
        return 1
    try:
        _end_on_signals(control)
        control.server.listen()
        _warn_if_exposed(arguments)
        _announce(arguments, control)
        control.server.serve_forever()
    finally:
        control.close()
    return 0


def _end_on_signals(control: Control) -> None:
    def end(_number: int, _frame: FrameType | None) -> None:
        control.server.loop.stop()

    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGTERM, end)


def _warn_if_exposed(arguments: argparse.Namespace) -> None:
    if _is_loopback(arguments.host):
        return
    known = "without any signature" if arguments.no_signatures else "with the credentials below"
    _say(
        f"Warning: listening on {arguments.host}. Everybody who can reach this machine can read and write here "
        f"{known}. Use --host 127.0.0.1 to keep it to yourself.",
        error=True,
    )


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _announce(arguments: argparse.Namespace, control: Control) -> None:
    cred = LocalCredentials(arguments.ak, arguments.sk, arguments.token)
    names = [*arguments.bucket, *arguments.hns]
    address = Address(names[0] if names else "", arguments.region, cred, bool(arguments.certificate))
    address.host, address.port = control.address()
    if arguments.json:
        _say(json.dumps({"endpoint": address.endpoint, "buckets": control.buckets(), "environ": address.environ()}))
        return
    where = f"in {arguments.root}" if arguments.root else "in memory"
    _say(f"Local TOS at {address.endpoint} ({where}); buckets: {', '.join(control.buckets()) or 'none yet'}.")
    _say("To use it from another shell:")
    for name, value in address.environ().items():
        _say(f"  export {name}={shlex.quote(value)}")
    _say("Ctrl-C ends it.")


def _say(line: str, error: bool = False) -> None:
    stream = sys.stderr if error else sys.stdout
    stream.write(line + "\n")
    stream.flush()


if __name__ == "__main__":
    sys.exit(main())
