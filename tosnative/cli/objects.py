"""The subcommands that look at objects or remove them: ls, stat, cat, du, rm, uploads."""

from __future__ import annotations

import dataclasses
import sys
import time
from itertools import islice

from tosnative.cli.output import Progress, complain, count, say, say_json, size_text, time_text
from tosnative.cli.places import Remote
from tosnative.cli.session import Session
from tosnative.errors import TosNotFoundError
from tosnative.listing import list_pages
from tosnative.meta import TosObjectMeta
from tosnative.uri import format_uri

__all__ = ["cat", "du", "ls", "rm", "stat", "uploads"]

_COPY_BYTES = 1 << 20
_DELETE_AT_ONCE = 1000  # the service's limit for one request


def _as_json(found: TosObjectMeta) -> dict[str, object]:
    return {"uri": format_uri(found.bucket, found.key)} | dataclasses.asdict(found)


def ls(session: Session) -> int:
    """One line per object, and per folder where not recursive, in key order."""
    where: Remote = session.args.uri
    seen = 0
    if session.args.recursive:
        for found in session.objects(where):
            _show(session, found)
            seen += 1
    else:
        seen = _ls_level(session, where)
    if not seen and where.key:
        raise TosNotFoundError(f"nothing under {where}; a prefix is case-sensitive, and that of a folder ends with '/'")
    return 0


def _ls_level(session: Session, where: Remote) -> int:
    """Show what lies directly under the prefix; return the number of lines."""
    seen = 0
    for page in list_pages(session.client, where.bucket, where.key, delimiter="/"):
        lines: dict[str, TosObjectMeta | None] = dict.fromkeys(page.prefixes)
        lines.update((found.key, found) for found in page.objects)
        for key in sorted(lines, key=str.encode):
            found = lines[key]
            if found is not None:
                _show(session, found)
            elif session.json:
                say_json({"uri": format_uri(where.bucket, key), "prefix": key})
            else:
                say(f"{'':>12}  {'':20}  {format_uri(where.bucket, key)}")
        seen += len(lines)
    return seen


def _show(session: Session, found: TosObjectMeta) -> None:
    if session.json:
        say_json(_as_json(found))
    else:
        size = f"{found.size or 0:,}" if session.args.bytes else size_text(found.size or 0)
        say(f"{size:>12}  {time_text(found.last_modified):20}  {format_uri(found.bucket, found.key)}")


def stat(session: Session) -> int:
    """What is known of each object."""
    for where in session.args.uri:
        found = session.client.head(where.bucket, where.key)
        if session.json:
            say_json(_as_json(found))
            continue
        say(str(where))
        say(f"  size           {found.size or 0:,} bytes")
        say(f"  last modified  {time_text(found.last_modified)}")
        say(f"  etag           {found.etag or '-'}")
        say(f"  crc64          {'-' if found.crc64 is None else found.crc64}")
    return 0


def cat(session: Session) -> int:
    """The objects' bytes on standard output, one after the other."""
    sys.stdout.flush()
    for where in session.args.uri:
        with session.streams.reader(str(where)) as reader:
            while block := reader.read(_COPY_BYTES):
                sys.stdout.buffer.write(block)
    sys.stdout.buffer.flush()
    return 0


def du(session: Session) -> int:
    """The number of objects under each prefix and their size."""
    for where in session.args.uri:
        with Progress() as progress:
            for found in session.objects(where):
                progress.add(1, found.size or 0)
        if session.json:
            say_json({"uri": str(where), "objects": progress.objects, "bytes": progress.bytes})
        else:
            say(f"{size_text(progress.bytes):>12}  {count(progress.objects, 'object'):>16}  {where}")
    return 0


def rm(session: Session) -> int:
    """Remove objects; with --recursive also what lies below them, never a sibling whose name begins alike."""
    for where in session.args.uri:
        if not where.key and session.args.recursive and not session.args.yes:
            complain(f"this would remove every object of the bucket {where.bucket}: add --yes if that is meant")
            return 2
        if where.is_folder and not session.args.recursive:
            complain(f"{where} is a folder: add --recursive to remove what lies below it")
            return 2
    removed = 0
    with Progress() as progress:
        for where in session.args.uri:
            removed += _remove(session, where, progress)
    word = "would remove" if session.args.dry_run else "removed"
    if session.json:
        say_json({"objects": removed, "bytes": progress.bytes, "dry_run": session.args.dry_run})
    else:
        say(f"{word} {count(removed, 'object')}")
    return 0


def _remove(session: Session, where: Remote, progress: Progress) -> int:
    found = session.below(where) if session.args.recursive else iter([session.client.head(where.bucket, where.key)])
    removed = 0
    while some := list(islice(found, _DELETE_AT_ONCE)):
        if session.args.dry_run:
            for uri in (format_uri(one.bucket, one.key) for one in some):
                say_json({"uri": uri}) if session.json else say(uri)
        else:
            session.client.delete_many(where.bucket, [one.key for one in some])
        removed += len(some)
        progress.add(len(some), sum(one.size or 0 for one in some))
    if not removed:
        raise TosNotFoundError(f"nothing to remove under {where}")
    return removed


def uploads(session: Session) -> int:
    """The multipart uploads that nobody completed; with --abort-older-than those are aborted and their parts freed."""
    where: Remote = session.args.uri
    limit: float | None = session.args.abort_older_than
    now = time.time()
    listed = aborted = 0
    for found in session.client.list_uploads(where.bucket, where.key):
        old = limit is not None and found.initiated is not None and now - found.initiated >= limit
        if old:
            session.client.abort_upload(where.bucket, found.key, found.upload_id)
        listed += 1
        aborted += old
        uri = format_uri(where.bucket, found.key)
        if session.json:
            say_json({"uri": uri, "upload_id": found.upload_id, "initiated": found.initiated, "aborted": old})
        else:
            say(f"{time_text(found.initiated)}  {'aborted' if old else 'open':7}  {uri}  {found.upload_id}")
    if not session.json:
        say(f"{count(listed, 'open upload')} under {where}" + (f", {aborted:,} aborted" if limit is not None else ""))
    return 0
