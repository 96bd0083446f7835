"""Calls of the peer's Rust client, each run in a process of its own by a Python that has it.

    python peer_calls.py NAME ENDPOINT REGION AK SK BUCKET

The one line printed is a JSON value; `test_peer_client` compares it with what the server holds.
"""

import hashlib
import json
import sys

import tosnativeclient

NAME, ENDPOINT, REGION, AK, SK, BUCKET = sys.argv[1:]
MIB = 1 << 20
CALLS = {}


def call(function):
    CALLS[function.__name__] = function
    return function


def pattern(size):
    return b"".join(number.to_bytes(4, "big") for number in range(size // 4 + 1))[:size]


def digest(data):
    return hashlib.sha256(data).hexdigest()


def read_all(stream, size):
    data = b""
    while len(data) < size:
        chunk = stream.read(len(data), size - len(data))
        if not chunk:
            break
        data += chunk
    stream.close()
    return data


def opened(client, key, **options):
    head = client.head_object(BUCKET, key)
    return client.get_object(BUCKET, key, head.etag, head.size, head.crc64, **options), head.size


@call
def read(client):
    """Each object whole: sizes below, at and above the client's first window and its part size."""
    found = {}
    for key in ("small", "window", "parts"):
        stream, size = opened(client, key)
        found[key] = [size, digest(read_all(stream, size))]
    stream, size = opened(client, "parts")
    found["middle"] = [20, digest(stream.read(9 * MIB, 20, read_once=False))]
    stream.close()
    stream = client.get_object(BUCKET, "small", preload=True)
    found["preloaded"] = [stream.size(), digest(read_all(stream, stream.size()))]
    return found


@call
def batch(client):
    """Many small objects at once, their metadata fetched by the client."""
    keys = [f"batch/{number:03d}" for number in range(50)]
    wanted = [(BUCKET, key, None, None, None) for key in keys]
    streams = client.batch_get_objects(wanted, prefetch_concurrency=16, fetch_etag_size=True)
    return [[stream.key, digest(read_all(stream, stream.size()))] for stream in streams]


@call
def write(client):
    """One put, an upload of three parts, an empty object, and one that must not replace another."""
    for key, size in (("w/small", 1000), ("w/large", 20 * MIB + 3), ("w/empty", 0)):
        stream = client.put_object(BUCKET, key, content_type="text/x-test")
        data = pattern(size)
        for start in range(0, size, MIB):
            stream.write(data[start : start + MIB])
        stream.close()
    client.put_object_directly(BUCKET, "w/direct", data=b"direct")
    stream = client.put_object(BUCKET, "w/small", forbid_overwrite=True)
    stream.write(b"other")
    return refused(stream.close)


def refused(function, *arguments):
    """What the client says of an error: its status where it knows it, else the message."""
    try:
        function(*arguments)
    except tosnativeclient.TosException as error:
        return error.args[0].status_code or error.args[0].message
    return None


@call
def listing(client):
    """Pages of 7, a delimiter, a start, and a walk."""
    pages = list(client.list_objects(BUCKET, "list/", max_keys=7))
    by_directory = list(client.list_objects(BUCKET, "list/", delimiter="/", max_keys=2))
    later = list(client.list_objects(BUCKET, "list/", start_after="list/a/004", max_keys=3))
    return {
        "pages": [len(page.contents) for page, _ in pages],
        "entries": [[item.key, item.size, item.etag, item.crc64] for page, _ in pages for item in page.contents],
        "prefixes": [prefix for page, _ in by_directory for prefix in page.common_prefixes],
        "keys": [item.key for page, _ in by_directory for item in page.contents],
        "later": [item.key for page, _ in later for item in page.contents],
        "walk": sorted(item.key for _, page in client.walk(BUCKET, "list/") for item in page.contents),
    }


@call
def metadata(client):
    """Head, lookup of a file, a directory and nothing, and the bucket's own facts."""
    head = client.head_object(BUCKET, "dir/file")
    file, directory = client.lookup(BUCKET, "dir/file"), client.lookup(BUCKET, "dir")
    bucket = client.head_bucket(BUCKET)
    return {
        "head": [head.key, head.size, head.etag, head.crc64, head.storage_class],
        "lookup": [file.is_file, directory.is_file, client.lookup(BUCKET, "nothing")],
        "missing": refused(client.head_object, BUCKET, "nothing"),
        "bucket": [bucket.name, client.get_bucket_type(BUCKET)],
        "buckets": [item.name for item in client.list_buckets()],
    }


@call
def remove(client):
    """Delete of one, of one that is not there, and of a tree."""
    client.delete_object(BUCKET, "gone/one")
    client.delete_object(BUCKET, "gone/never")
    client.delete(BUCKET, "gone/tree", recursive=True)


@call
def copy_and_rename(client):
    """A small and a large copy, a renamed object and a renamed tree."""
    client.copy(BUCKET, "to/small", "from/small")
    client.copy(BUCKET, "to/large", "from/large")
    client.rename(BUCKET, "to/renamed", "from/renamed")
    client.rename(BUCKET, "to/tree", "from/tree", recursive=True)


@call
def append(client):
    """An append, a marker, and a directory with its parents."""
    head = client.head_object(BUCKET, "log")
    stream = client.append_object(BUCKET, "log", head.etag, head.size, head.crc64)
    stream.write(b" and more")
    stream.close()
    client.touch(BUCKET, "touched")
    client.mkdir(BUCKET, "made/deep/", create_parents=True)


@call
def buckets(client):
    """A bucket of each kind is made, and one is deleted."""
    client.create_bucket("peer-flat")
    client.create_bucket("peer-deep", bucket_type="hns")
    types = [client.get_bucket_type("peer-flat"), client.get_bucket_type("peer-deep")]
    client.delete_bucket("peer-flat")
    return [types, refused(client.head_bucket, "peer-flat")]


@call
def connector(client):
    """The connector's own datasets, over a prefix and over URLs, with each kind of reader, and its checkpoint."""
    import torch
    from tostorchconnector import CredentialProvider, ReaderType, TosCheckpoint, TosIterableDataset, TosMapDataset

    connect = {"region": REGION, "endpoint": ENDPOINT, "cred": CredentialProvider(AK, SK)}
    prefix = f"tos://{BUCKET}/samples/"
    mapped = TosMapDataset.from_prefix(prefix, **connect)
    found = {"map": [[mapped[i].key, digest(mapped[i].read())] for i in range(len(mapped))]}
    streamed = TosIterableDataset.from_prefix(prefix, **connect)
    found["iterable"] = [[item.key, digest(item.read())] for item in streamed]
    checkpoint = TosCheckpoint(**connect)
    state = {"weights": torch.arange(1_000_000), "step": 7}
    with checkpoint.writer(f"tos://{BUCKET}/state.pt") as writer:
        torch.save(state, writer)
    for kind in (ReaderType.SEQUENTIAL, ReaderType.RANGED, ReaderType.DIRECT):
        with checkpoint.reader(f"tos://{BUCKET}/state.pt", reader_type=kind) as reader:
            loaded = torch.load(reader)
        found[kind.name] = bool(torch.equal(loaded["weights"], state["weights"]) and loaded["step"] == 7)
    return found


if __name__ == "__main__":
    tos = tosnativeclient.TosClient(region=REGION, endpoint=ENDPOINT, ak=AK, sk=SK)
    result = CALLS[NAME](tos)
    tos.close()
    print(json.dumps(result))  # noqa: T201
