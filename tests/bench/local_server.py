"""A local TOS, filled for a run, in a process of its own: prints its port as JSON, ends when its standard input does.

    python local_server.py '{"contents": {...}, "kind": "near", "certificate": null}'

kind: "near" answers at once; "sink" does too, and keeps only the size and the checksum of what is written to it; "far"
answers after 20 ms, at 100 MB/s on each connection, as object storage does; "stalls" is far and takes 1 s for one request in
a hundred; "listing" holds only the bucket that is listed, and takes 5 ms for a page.

It checks no signatures, so that it is the clients that are measured.
"""

from __future__ import annotations

import base64
import json
import os
import ssl
import sys
from collections.abc import Iterator

from contents import BUCKET, LISTED_BUCKET, LISTED_PREFIX, REGION, Contents, block, pieces

from tosnative.testing.content import Content, MemorySource, Piece
from tosnative.testing.crc64 import combine, crc64
from tosnative.testing.entities import Bucket, StoredObject
from tosnative.testing.faults import Action, Rule, Tail
from tosnative.testing.incoming import recycle
from tosnative.testing.keyindex import KeyIndex
from tosnative.testing.listing import ask_of, page_of
from tosnative.testing.messages import Buffer, Request, Response, ServerOptions
from tosnative.testing.operations import handle
from tosnative.testing.server import Server
from tosnative.testing.store import Store

ACTIONS = {
    "near": None,
    "sink": None,
    "far": Action(delay_s=0.020, bandwidth_bytes_s=100e6),
    "stalls": Action(delay_s=Tail(usual_s=0.020, slow_s=1.0, one_in=100), bandwidth_bytes_s=100e6),
    "listing": Action(delay_s=0.005),
}


def fill(store: Store, contents: Contents) -> None:
    """Put all objects into a new bucket; they share one block of bytes."""
    source = MemorySource(memoryview(block()))
    bucket = Bucket(BUCKET, store.now_ns())
    store.create_bucket(bucket)
    for number, (key, size) in enumerate(contents.objects()):
        content = Content(tuple(Piece(source, start, stop) for start, stop in pieces(size, number)))
        store.put(bucket, StoredObject(key, content, f"{number:032x}", checksum(content), store.now_ns()))


def checksum(content: Content) -> int:
    """The CRC64 of content whose pieces repeat: each distinct piece is read once."""
    known: dict[tuple[int, int], int] = {}
    total = 0
    for piece, view in zip(content.pieces, content.views(), strict=True):
        where = (piece.start, piece.end)
        if where not in known:
            known[where] = crc64(view)
        total = combine(total, known[where], piece.end - piece.start)
    return total


class Zeros:
    """Bytes that nobody keeps."""

    def view(self, start: int, end: int) -> memoryview:
        return memoryview(bytes(end - start))


class Sink(Store):
    """Checks what is written and forgets it, as first use of memory would cost more than all else that a server does."""

    _zeros = Zeros()

    def content(self, data: Buffer) -> Content:
        size = memoryview(data).nbytes
        recycle(data)
        return Content((Piece(self._zeros, 0, size),))


class CountedKeys(KeyIndex):
    """Keys that are counted, not stored: `train/00000000.bin` and so on."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count

    @staticmethod
    def name(number: int) -> str:
        return f"{LISTED_PREFIX}{number:08d}.bin"

    def from_key(self, start: str, *, inclusive: bool = True) -> Iterator[str]:
        low, high = 0, self.count
        while low < high:
            middle = (low + high) // 2
            name = self.name(middle)
            if name < start or (name == start and not inclusive):
                low = middle + 1
            else:
                high = middle
        return map(self.name, range(low, self.count))


class Listing:
    """Answers lists of a bucket that holds nothing else, cheaply: a page costs about a millisecond."""

    _ENTRY = (
        '{"Key":"%s","LastModified":"2026-01-01T00:00:00.000Z","ETag":"\\"0123456789abcdef0123456789abcdef\\"",'
        '"Size":102400,"StorageClass":"STANDARD","HashCrc64ecma":"12345678901234567890","Type":"Normal",'
        '"Owner":{"ID":"local","DisplayName":"local"}}'
    )

    def __init__(self, count: int) -> None:
        self._keys = CountedKeys(count)

    def answer(self, request: Request) -> Response:
        """Answers ListObjectsType2; anything else asked of the bucket (HEAD, say) finds it there and empty."""
        if "list-type" not in request.query:
            return Response(200, {"x-tos-bucket-type": "fns", "x-tos-bucket-region": REGION})
        token = request.query.get("continuation-token", "")
        after = base64.urlsafe_b64decode(token).decode() if token else request.query.get("start-after", "")
        ask = ask_of(request, after)
        page = page_of(self._keys, ask)
        facts = {
            "Name": LISTED_BUCKET,
            "Prefix": ask.prefix,
            "MaxKeys": ask.limit,
            "Delimiter": ask.delimiter,
            "KeyCount": len(page.keys) + len(page.prefixes),
            "IsTruncated": bool(page.next_marker),
            "CommonPrefixes": [{"Prefix": prefix} for prefix in page.prefixes],
        }
        if page.next_marker:
            facts["NextContinuationToken"] = base64.urlsafe_b64encode(page.next_marker.encode()).decode()
        entries = ",".join([self._ENTRY % key for key in page.keys])
        body = f'{json.dumps(facts)[:-1]},"Contents":[{entries}]}}'
        return Response(200, {"Content-Type": "application/json"}, body.encode())


def make_server(contents: Contents, kind: str, certificate: list[str] | None) -> Server:
    context = None
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*certificate)
    options = ServerOptions(check_signatures=False, check_dates=False)
    if kind == "listing":
        listing = Listing(contents.listed)
        server = Server(listing.answer, options, ssl_context=context, record=False)
    else:
        store = Sink() if kind == "sink" else Store()
        fill(store, contents)
        server = Server(lambda request: handle(store, request, options), options, ssl_context=context, record=False)
    action = ACTIONS[kind]
    if action is not None:
        server.faults.add(Rule(action))
    return server


def main() -> None:
    asked = json.loads(sys.argv[1])
    server = make_server(Contents(**asked["contents"]), asked["kind"], asked["certificate"])
    server.listen()

    def on_input(_mask: int) -> None:
        if not os.read(0, 4096):
            server.loop.stop()

    server.loop.selector.register(0, 1, on_input)
    print(json.dumps({"port": server.address[1]}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
