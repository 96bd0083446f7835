"""The plain official SDK, as a script that uses nothing else would call it. Setting `threads`: how many share the work."""

from __future__ import annotations

import importlib
import os
import random
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from contents import BIG, BUCKET, LISTED_BUCKET, LISTED_PREFIX, MIB, REGION, WRITTEN
from measure import Done, Job, Work, run_jobs
from names import resolve_localhost

PART_BYTES = 8 * MIB


def client(job: Job) -> Any:
    tos = importlib.import_module("tos")
    if (ca_bundle := job.setting("ca_bundle")) is not None:
        os.environ["REQUESTS_CA_BUNDLE"] = ca_bundle
    crc, threads = job.setting("crc", False), job.setting("threads", 1)
    return tos.TosClientV2(
        "ak", "sk", job.endpoint, REGION, enable_crc=crc, max_connections=max(10, threads), dns_cache_time=0
    )


def small_objects(job: Job) -> Work:
    keys = job.contents.small_keys()[: job.setting("objects")]
    sdk = client(job)

    def read(key: str) -> int:
        return len(sdk.get_object(BUCKET, key).read())

    def work() -> Done:
        with ThreadPoolExecutor(job.setting("threads", 1)) as pool:
            sizes = list(pool.map(read, keys))
        return Done(len(sizes), sum(sizes))

    return work


def big(job: Job) -> Work:
    size = job.contents.big_bytes
    sdk = client(job)

    def read(start: int) -> int:
        stop = min(start + PART_BYTES, size)
        return len(sdk.get_object(BUCKET, BIG, range_start=start, range_end=stop - 1).read())

    def work() -> Done:
        with ThreadPoolExecutor(job.setting("threads", 1)) as pool:
            return Done(1, sum(pool.map(read, range(0, size, PART_BYTES))))

    return work


def random_ranges(job: Job) -> Work:
    size = job.contents.range_bytes
    sdk = client(job)

    def read(start: int) -> int:
        return len(sdk.get_object(BUCKET, BIG, range_start=start, range_end=start + size - 1).read())

    def work() -> Done:
        with ThreadPoolExecutor(job.setting("threads", 1)) as pool:
            sizes = list(pool.map(read, job.contents.range_offsets()))
        return Done(len(sizes), sum(sizes))

    return work


def write(job: Job) -> Work:
    tos = importlib.import_module("tos")
    data, count = random.Random(2).randbytes(PART_BYTES), job.contents.big_bytes // PART_BYTES
    sdk = client(job)

    def work() -> Done:
        upload = sdk.create_multipart_upload(BUCKET, WRITTEN).upload_id

        def send(number: int) -> Any:
            sent = sdk.upload_part(BUCKET, WRITTEN, upload, number, content=data)
            return tos.models2.UploadedPart(number, sent.etag)

        with ThreadPoolExecutor(job.setting("threads", 1)) as pool:
            parts = list(pool.map(send, range(1, count + 1)))
        sdk.complete_multipart_upload(BUCKET, WRITTEN, upload, parts)
        return Done(1, count * PART_BYTES)

    return work


def listing(job: Job) -> Work:
    sdk = client(job)

    def work() -> Done:
        found, token, more = [], None, True
        while more:
            page = sdk.list_objects_type2(
                LISTED_BUCKET, LISTED_PREFIX, continuation_token=token, max_keys=1000, list_only_once=True
            )
            found += page.contents
            token, more = page.next_continuation_token, page.is_truncated
        return Done(len(found), 0)

    return work


def import_package(job: Job) -> Work:
    def work() -> Done:
        importlib.import_module("tos")
        return Done(1, 0, {"torch_imported": "torch" in sys.modules})

    return work


WORKLOADS = {
    "iterable": small_objects,
    "big": big,
    "ranges": random_ranges,
    "write": write,
    "listing": listing,
    "import": import_package,
}

if __name__ == "__main__":
    resolve_localhost()
    run_jobs(WORKLOADS, sys.argv[2], lambda: importlib.import_module("tos"))
