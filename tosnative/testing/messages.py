"""What the wire half of the local server and its storage half say to each other, and the server's switches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

Buffer: TypeAlias = bytes | bytearray | memoryview
"""Anything that is sent or stored without being copied."""

Credentials: TypeAlias = Mapping[str, tuple[str, str | None]]
"""Access key -> (secret key, security token or None)."""

MIB = 1 << 20
GIB = 1 << 30


@dataclass(slots=True)
class Request:
    """One request as it arrived, routed and decoded, its body complete.

    `bucket` is None for a request to the service itself; `key` is None (never "") for one to a bucket. `query` holds
    decoded names and values ('+' was a space), where `?name` and `?name=` both read "". Header names are in lower
    case, values are as they came, decoded as Latin-1. The receiver owns `body` and may keep it without a copy: the
    server does not touch it again. `path_style` says that the bucket came from the path and not from the host name.
    `arrived` is `time.monotonic()` when the head was complete; `connection` numbers the connections from 1.
    """

    method: str
    bucket: str | None
    key: str | None
    query: dict[str, str]
    headers: dict[str, str]
    body: Buffer = b""
    arrived: float = 0.0
    connection: int = 0
    target: str = ""
    path_style: bool = False


@dataclass(slots=True)
class Response:
    """An answer. The server completes it on the way out.

    The server adds `x-tos-request-id`, `x-tos-id-2`, `Server`, `Date` and, unless `headers` has it, `Content-Length`
    = the size of `body`. Answers to HEAD carry the length but no body; errors to HEAD, and 204 and 304, carry a length
    of 0 and no body. So a HEAD is answered exactly as the GET would be, body included. `body` may be several buffers,
    which are sent one after the other; memoryviews are sent without a copy and must not change until they are sent.
    """

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: Buffer | Sequence[Buffer] = b""


@dataclass(frozen=True)
class ServerOptions:
    """The switches of a local server; everything that public sources leave open about TOS is one of them.

    Wire:
        check_signatures: off answers everybody, signed or not.
        check_dates: off accepts signatures of any age.
        max_clock_skew_s: how far a request's date may be from now.
        domains: host names that are the service itself. A request to `bucket.<domain>` is for that bucket, one to the
            bare domain uses path style. IP addresses, names without a dot and public TOS endpoints count without being
            listed. Any other host name is taken as `bucket.<anything>`.
        max_head_bytes, max_body_bytes: larger requests are refused.

    Storage:
        min_part_size_bytes: smallest part but the last that completes an upload. Public sources disagree: the
            service's pages say 4 MiB, the official SDK's constant says 5 MiB.
        etag_md5_max_bytes: larger bodies get an ETag made from their CRC64 instead of their MD5, which would be the
            slowest step of an upload. Clients treat ETags as opaque.

    Not established in public; each has a plausible default, and none is a statement about TOS:
        crc_on_ranges: a 206 answer carries the CRC64 of the whole object.
        flat_list_on_hns: a list without a delimiter is answered on a bucket with directories (else 400).
        stat_matches_directory: `?stat` on `d` finds a directory `d/...` (else only `d/` does).
        unsorted_parts: Complete accepts parts in any order (else 400 InvalidPartOrder).
        range_error_code, forbid_overwrite_code: the Code of the 416 and of the 409.
        multipart_etag_dashed: the ETag of a multipart object ends in `-<number of parts>`.
    """

    region: str = "cn-test"
    credentials: Credentials = field(default_factory=dict, repr=False)
    check_signatures: bool = True
    check_dates: bool = True
    max_clock_skew_s: float = 900.0
    domains: tuple[str, ...] = ("localhost", "tos.local")
    max_head_bytes: int = 64 << 10
    max_body_bytes: int = 5 * GIB

    min_part_size_bytes: int = 4 * MIB
    etag_md5_max_bytes: int = 1 * MIB

    crc_on_ranges: bool = True
    flat_list_on_hns: bool = True
    stat_matches_directory: bool = True
    unsorted_parts: bool = True
    range_error_code: str = "InvalidRange"
    forbid_overwrite_code: str = "DuplicateObject"
    multipart_etag_dashed: bool = True
