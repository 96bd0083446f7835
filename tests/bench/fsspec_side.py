"""A file system of the fsspec kind, tosfs or tosfsspec: python fsspec_side.py tosfs '[...]'.

Setting `threads`: 0 hands all paths over in one call, n > 0 calls for one at a time from n threads.
"""

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

MODULE = sys.argv[1]
CLASSES = {"tosfs": ("tosfs.core", "TosFileSystem"), "tosfsspec": ("tosfsspec", "TosFileSystem")}


def file_system(job: Job) -> Any:
    module, name = CLASSES[MODULE]
    kind = getattr(importlib.import_module(module), name)
    keywords = {"endpoint": job.endpoint, "region": REGION, "key": "ak", "secret": "sk"}
    return kind(**keywords, enable_crc=job.setting("crc", False), skip_instance_cache=True)


def small_objects(job: Job) -> Work:
    fs = file_system(job)
    paths = [f"{BUCKET}/{key}" for key in job.contents.small_keys()[: job.setting("objects")]]
    threads = job.setting("threads", 0)

    def work() -> Done:
        if not threads:
            sizes = [len(data) for data in fs.cat(paths).values()]
        else:
            with ThreadPoolExecutor(threads) as pool:
                sizes = [len(data) for data in pool.map(fs.cat_file, paths)]
        return Done(len(sizes), sum(sizes))

    return work


def big(job: Job) -> Work:
    fs = file_system(job)
    buffer = bytearray(8 * MIB)

    def work() -> Done:
        size = 0
        with fs.open(f"{BUCKET}/{BIG}", "rb") as file:
            while count := file.readinto(buffer):
                size += count
        return Done(1, size)

    return work


def random_ranges(job: Job) -> Work:
    fs = file_system(job)
    size = job.contents.range_bytes

    def read(start: int) -> int:
        return len(fs.cat_file(f"{BUCKET}/{BIG}", start=start, end=start + size))

    def work() -> Done:
        with ThreadPoolExecutor(job.setting("threads", 0) or 32) as pool:
            sizes = list(pool.map(read, job.contents.range_offsets()))
        return Done(len(sizes), sum(sizes))

    return work


def write(job: Job) -> Work:
    fs = file_system(job)
    chunk, count = random.Random(2).randbytes(MIB), job.contents.big_bytes // MIB

    def work() -> Done:
        with fs.open(f"{BUCKET}/{WRITTEN}", "wb") as file:
            for _ in range(count):
                file.write(chunk)
        return Done(1, count * MIB)

    return work


def listing(job: Job) -> Work:
    fs = file_system(job)

    def work() -> Done:
        return Done(len(fs.find(f"{LISTED_BUCKET}/{LISTED_PREFIX}")), 0)

    return work


def import_package(job: Job) -> Work:
    def work() -> Done:
        importlib.import_module(CLASSES[MODULE][0])
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
    # Or tosfs asks a management service on the internet to tag the bucket, before each file.
    os.environ["TOS_BUCKET_TAG_ENABLE"] = "false"
    run_jobs(WORKLOADS, sys.argv[2], lambda: importlib.import_module(CLASSES[MODULE][0]))
