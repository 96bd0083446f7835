"""The subcommand cp: files and objects, this machine and TOS, one or a whole folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tosnative.cli.folder import check_name, write_below, write_file
from tosnative.cli.output import Progress, complain, count, say, say_json, size_text
from tosnative.cli.places import STANDARD_INPUT, Local, Place, Remote
from tosnative.cli.session import Session, is_marker
from tosnative.errors import TosException, TosNotFoundError
from tosnative.reader import TosObjectReader

__all__ = ["cp"]

_BLOCK_BYTES = 1 << 20
_SERVICE_COPIES_BYTES = 5 << 30  # the largest object that one copy request takes
_TOGETHER = 16  # files copied at the same time; each large one has parts in flight besides


@dataclass(frozen=True, slots=True)
class Job:
    """One file or object to copy. `run` does it and returns the number of bytes."""

    source: str
    target: str
    run: Callable[[], int]


def cp(session: Session) -> int:
    """Copy every source to the target. What fails is named on standard error, and the rest goes on."""
    *sources, target = session.args.places
    wrong = _misuse(sources, target, session.args.recursive)
    if wrong:
        complain(wrong)
        return 2
    with Progress() as progress:
        failed = _run(_jobs(session, sources, target), progress)
    if session.json:
        say_json({"objects": progress.objects, "bytes": progress.bytes, "seconds": progress.seconds, "failed": failed})
    else:
        rate = size_text(progress.bytes / progress.seconds)
        not_done = f"; {failed:,} failed" if failed else ""
        say(f"copied {count(progress.objects, 'object')}, {size_text(progress.bytes)} at {rate}/s{not_done}")
    return 1 if failed else 0


def _run(jobs: Iterator[Job], progress: Progress) -> int:
    """Run the jobs, never more than twice _TOGETHER of them started or waiting; return how many failed."""
    failed = 0
    pending: dict[Future[int], Job] = {}

    def settle(down_to: int) -> None:
        nonlocal failed
        while len(pending) > down_to:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                job = pending.pop(future)
                try:
                    progress.add(1, future.result())
                except (TosException, OSError, ValueError) as error:
                    failed += 1
                    complain(f"{job.source} -> {job.target}: {error}")

    with ThreadPoolExecutor(_TOGETHER, thread_name_prefix="tosnative-cp") as pool:
        try:
            for job in jobs:
                pending[pool.submit(job.run)] = job
                settle(2 * _TOGETHER)
            settle(0)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return failed


def _misuse(sources: list[Place], target: Place, recursive: bool) -> str | None:
    """What is wrong with the arguments, seen before anything is copied; None where nothing is."""
    if recursive and isinstance(target, Local) and target.path.is_file():
        return f"{target.text} is a file; --recursive needs a folder as its target"
    for source in sources:
        if isinstance(source, Local) and isinstance(target, Local):
            return "cp needs tos://bucket/key on at least one side"
        if source == Local(STANDARD_INPUT):
            if recursive or len(sources) > 1 or target.is_folder:
                return "standard input is one object: it needs the key of an object as its target"
        elif source.is_folder and not recursive:
            return f"{source} is a folder: add --recursive"
        elif recursive and isinstance(source, Local) and not source.path.is_dir():
            return f"{source} is no folder: --recursive needs one"
    return None


def _jobs(session: Session, sources: list[Place], target: Place) -> Iterator[Job]:
    into = target.is_folder or len(sources) > 1 or session.args.recursive
    for source in sources:
        if isinstance(source, Local):
            assert isinstance(target, Remote)  # two local places are a misuse
            yield from _up(session, source, target, into)
        elif isinstance(target, Remote):
            yield from _between(session, source, target, into)
        else:
            yield from _down(session, source, target, into)


def _objects(session: Session, source: Remote) -> Iterator[tuple[Remote, str, int | None]]:
    """The objects that a remote source means: each with its name below the source's folder, and its size where known."""
    if not session.args.recursive:
        yield source, source.key.rpartition("/")[2], None
        return
    below = Remote(source.bucket, source.folder())
    empty = True
    for found in session.objects(below):
        empty = False
        if not is_marker(found):
            yield Remote(source.bucket, found.key), found.key[len(below.key) :], found.size
    if empty:
        raise TosNotFoundError(f"nothing under {below}")


def _key(target: Remote, name: str, as_folder: bool) -> Remote:
    return Remote(target.bucket, target.folder() + name) if as_folder else target


# -- TOS to TOS


def _between(session: Session, source: Remote, target: Remote, into: bool) -> Iterator[Job]:
    for found, name, size in _objects(session, source):
        to = _key(target, name, into)

        def run(found: Remote = found, to: Remote = to, size: int | None = size) -> int:
            return _copy_within(session, found, to, size)

        yield Job(str(found), str(to), run)


def _copy_within(session: Session, source: Remote, target: Remote, size: int | None) -> int:
    """Have the service copy the object; what is too large for that passes through this machine, in bounded memory."""
    client, streams = session.client, session.streams
    if size is None:
        size = client.head(source.bucket, source.key).size or 0
    if size <= _SERVICE_COPIES_BYTES:
        client.copy(source.bucket, source.key, target.bucket, target.key)
        return size
    with streams.reader(str(source)) as reader, streams.writer(str(target), size) as writer:
        return _pump(reader, writer.write)


# -- TOS to this machine


def _down(session: Session, source: Remote, target: Local, into: bool) -> Iterator[Job]:
    streams = session.streams
    for found, name, _ in _objects(session, source):

        def run(found: Remote = found, name: str = name) -> int:
            if into:
                check_name(name)  # before the object is asked for
            file = write_below(target.path, name) if into else write_file(target.path)
            with streams.reader(str(found)) as reader, file as opened:
                return _pump(reader, lambda block: _write_all(opened, block))

        yield Job(str(found), f"{target.path}/{name}" if into else target.text, run)


def _pump(source: TosObjectReader, write: Callable[[memoryview], object]) -> int:
    """Pass an object's bytes to `write` block by block; each block is only valid during the call. Returns their number."""
    size = 0
    block = memoryview(bytearray(_BLOCK_BYTES))
    while got := source.readinto(block):
        write(block[:got])
        size += got
    return size


def _write_all(file: BinaryIO, data: memoryview) -> None:
    while data:
        data = data[file.write(data) :]


# -- this machine to TOS


def _files(session: Session, source: Local) -> Iterator[tuple[Path, str]]:
    """The files that a local source means, each with its name below the source; links are followed to files only."""
    if not session.args.recursive:
        yield source.path, source.path.name
        return
    for folder, inner, names in os.walk(source.path):
        inner.sort()
        for name in sorted(names):
            path = Path(folder, name)
            if path.exists() and not path.is_file():
                complain(f"{path} is neither a file nor a folder: left out")
                continue
            yield path, path.relative_to(source.path).as_posix()


def _up(session: Session, source: Local, target: Remote, into: bool) -> Iterator[Job]:
    if source.text == STANDARD_INPUT:
        yield Job("standard input", str(target), lambda: _upload(session, sys.stdin.buffer, target))
        return
    for path, name in _files(session, source):
        to = _key(target, name, into)

        def run(path: Path = path, to: Remote = to) -> int:
            with open(path, "rb", buffering=0) as file:
                return _upload(session, file, to)

        yield Job(str(path), str(to), run)


def _upload(session: Session, file: BinaryIO, target: Remote) -> int:
    with session.streams.writer(str(target)) as writer:
        while block := file.read(_BLOCK_BYTES):
            writer.write(block)
        return writer.tell()
