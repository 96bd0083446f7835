"""tosnative, or the peer whose API it shares: one driver serves both.

python torch_side.py tosnative '[{"workload": "iterable", ...}]'
"""

from __future__ import annotations

import importlib
import io
import random
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import burden
from contents import BIG, BUCKET, CHECKPOINT, LISTED_BUCKET, LISTED_PREFIX, MIB, REGION, WRITTEN, repeated
from measure import Done, Job, Work, run_jobs

MODULE = sys.argv[1]
BUFFER_BYTES = 8 * MIB
CONFIG_SETTINGS = ("part_size", "shared_prefetch_tasks", "shared_upload_part_tasks")
DATASET_SETTINGS = ("prefetch_concurrency",)
# What the peer exports. Ours has more, some of which import Lightning and torch.distributed.checkpoint when they are used.
BOTH_HAVE = (
    *("TosCheckpoint", "TosObjectReader", "TosObjectWriter", "TosIterableDataset", "TosMapDataset", "TosObjectMeta"),
    *("ReaderType", "CredentialProvider", "TosClientConfig", "TosError", "TosException", "init_log", "init_logs"),
)


class Api:
    """The calls of a script that was written for either, with a job's settings."""

    def __init__(self, job: Job) -> None:
        self.job = job
        self.module = importlib.import_module(MODULE)
        for name in self.module.__all__:
            getattr(self.module, name)  # a name may be imported when it is first used: not while the clock runs
        config: dict[str, Any] = {name: job.settings[name] for name in CONFIG_SETTINGS if name in job.settings}
        if (ca_bundle := job.setting("ca_bundle")) is not None:
            config["connection"] = self.module.ConnectionOptions(ca_bundle=ca_bundle)
        self.connection: dict[str, Any] = {
            "region": REGION,
            "endpoint": job.endpoint,
            "cred": self.module.CredentialProvider("ak", "sk"),
            "client_conf": self.module.TosClientConfig(**config) if config else None,
            "enable_crc": job.setting("crc", False),
        }

    def dataset(self, name: str, keys: list[str], transform: Any = None) -> Any:
        """A dataset over the keys, or over their common prefix, which then has to be listed."""
        keywords = {name: self.job.settings[name] for name in DATASET_SETTINGS if name in self.job.settings}
        if transform is not None:
            keywords["transform"] = transform
        kind = getattr(self.module, name)
        if self.job.setting("source", "urls") == "prefix":
            return kind.from_prefix(f"tos://{BUCKET}/{keys[0].rpartition('/')[0]}/", **keywords, **self.connection)
        return kind.from_urls([f"tos://{BUCKET}/{key}" for key in keys], **keywords, **self.connection)

    def small_keys(self) -> list[str]:
        size = self.job.setting("object_bytes")
        keys = self.job.contents.small_keys() if size is None else self.job.contents.sized_keys(size)
        return repeated(keys, self.job.setting("objects"))

    def checkpoint(self) -> Any:
        return self.module.TosCheckpoint(**self.connection)

    def reader(self, checkpoint: Any, key: str) -> Any:
        kind = self.job.setting("reader")
        return checkpoint.reader(
            f"tos://{BUCKET}/{key}",
            reader_type=None if kind is None else self.module.ReaderType[kind],
            buffer_size=self.job.setting("buffer_size"),
        )


def iterable(job: Job) -> Work:
    api = Api(job)
    keys, spins, digests = api.small_keys(), job.setting("spins", 0), job.setting("digests", 0)

    def take(reader: Any) -> int:
        size = len(reader.read())
        burden.spin(spins)
        burden.digest(digests)
        return size

    def work() -> Done:
        with api.checkpoint() as checkpoint, burden.uploading(checkpoint, job.setting("uploading", False)) as uploaded:
            sizes = list(api.dataset("TosIterableDataset", keys, take))
        return Done(len(sizes), sum(sizes), {"work_s": work_s, **uploaded})

    work_s = sum(burden.shortest(*one) for one in ((burden.spin, spins), (burden.digest, digests)) if one[1])
    return work


def batches(job: Job) -> Work:
    api = Api(job)
    keys, batch = api.small_keys(), job.setting("batch", 64)

    def work() -> Done:
        dataset = api.dataset("TosMapDataset", keys)
        sizes = []
        for start in range(0, len(dataset), batch):
            rows = list(range(start, min(start + batch, len(dataset))))
            sizes += [len(reader.read()) for reader in dataset.__getitems__(rows)]
        return Done(len(sizes), sum(sizes))

    return work


def decode(reader: Any) -> Any:
    torch = importlib.import_module("torch")
    return torch.frombuffer(bytearray(reader.read()), dtype=torch.uint8)


def length(reader: Any) -> int:
    return len(reader.read())


def loader(job: Job) -> Work:
    data = importlib.import_module("torch.utils.data")
    api = Api(job)
    keys = api.small_keys()

    def work() -> Done:
        dataset = api.dataset("TosMapDataset", keys, decode)
        batches = data.DataLoader(dataset, batch_size=64, num_workers=job.setting("workers", 2))
        shapes = [tuple(batch.shape) for batch in batches]
        return Done(sum(rows for rows, _ in shapes), sum(rows * size for rows, size in shapes))

    return work


def volumes(job: Job) -> Work:
    data = importlib.import_module("torch.utils.data")
    api = Api(job)
    keys = job.contents.volume_keys()

    def work() -> Done:
        dataset = api.dataset("TosMapDataset", keys, length)
        batches = data.DataLoader(dataset, batch_size=1, num_workers=job.setting("workers", 1))
        sizes = [int(size) for batch in batches for size in batch]
        return Done(len(sizes), sum(sizes))

    return work


def big(job: Job) -> Work:
    api = Api(job)
    buffer = bytearray(BUFFER_BYTES)

    def work() -> Done:
        size = 0
        with api.checkpoint() as checkpoint, api.reader(checkpoint, BIG) as reader:
            while count := reader.readinto(buffer):
                size += count
        return Done(1, size)

    return work


def ranges(job: Job) -> Work:
    api = Api(job)
    offsets, size, threads = job.contents.range_offsets(), job.contents.range_bytes, job.setting("threads", 32)

    def work() -> Done:
        with api.checkpoint() as checkpoint, ThreadPoolExecutor(threads) as pool:

            def read(share: list[int]) -> int:
                buffer, got = bytearray(size), 0
                with api.reader(checkpoint, BIG) as reader:
                    for offset in share:
                        reader.seek(offset)
                        got += reader.readinto(buffer)
                return got

            total = sum(pool.map(read, (offsets[start::threads] for start in range(threads))))
        return Done(len(offsets), total)

    return work


def write(job: Job) -> Work:
    api = Api(job)
    chunk, count = random.Random(2).randbytes(MIB), job.contents.big_bytes // MIB

    def work() -> Done:
        with api.checkpoint() as checkpoint:
            writer = checkpoint.writer(f"tos://{BUCKET}/{WRITTEN}")
            for _ in range(count):
                writer.write(chunk)
            writer.close()
        return Done(1, count * MIB)

    return work


def state_dict(nbytes: int) -> dict[str, Any]:
    torch = importlib.import_module("torch")
    noise = torch.rand(nbytes // 64 // 4 // 1024, 1024)
    return {f"layers.{number}.weight": noise + number for number in range(64)}


def save(job: Job) -> Work:
    torch = importlib.import_module("torch")
    api = Api(job)
    state = state_dict(job.contents.big_bytes)

    def work() -> Done:
        with api.checkpoint() as checkpoint, checkpoint.writer(f"tos://{BUCKET}/{CHECKPOINT}") as writer:
            torch.save(state, writer)
        return Done(1, job.contents.big_bytes)

    return work


def load(job: Job) -> Work:
    torch = importlib.import_module("torch")
    api = Api(job)

    def work() -> Done:
        with api.checkpoint() as checkpoint, api.reader(checkpoint, CHECKPOINT) as reader:
            state = torch.load(reader, weights_only=True)
        return Done(1, sum(tensor.nbytes for tensor in state.values()))

    return work


def load_from_memory(job: Job) -> Work:
    """What torch.load costs where nothing is transferred."""
    torch = importlib.import_module("torch")
    file = io.BytesIO()
    torch.save(state_dict(job.contents.big_bytes), file)
    file.seek(0)

    def work() -> Done:
        state = torch.load(file, weights_only=True)
        return Done(1, sum(tensor.nbytes for tensor in state.values()))

    return work


def listing(job: Job) -> Work:
    api = Api(job)

    def work() -> Done:
        dataset = api.module.TosMapDataset.from_prefix(f"tos://{LISTED_BUCKET}/{LISTED_PREFIX}", **api.connection)
        count = len(dataset)
        assert count == job.contents.listed
        return Done(count, 0)

    return work


def import_package(job: Job) -> Work:
    def work() -> Done:
        importlib.import_module(MODULE)
        return Done(1, 0, {"torch_imported": "torch" in sys.modules})

    return work


def import_names(job: Job) -> Work:
    """The names that both have, where the script has imported torch before."""
    importlib.import_module("torch.utils.data")

    def work() -> Done:
        module = importlib.import_module(MODULE)
        return Done(1, 0, {"names": len([getattr(module, name) for name in BOTH_HAVE])})

    return work


def first_sample(job: Job) -> Work:
    importlib.import_module("torch")
    api = Api(job)
    keys = job.contents.small_keys()

    def samples() -> Iterator[Any]:
        return iter(api.dataset("TosIterableDataset", keys))

    def work() -> Done:
        return Done(1, len(next(samples()).read()))

    return work


WORKLOADS = {
    "iterable": iterable,
    "batches": batches,
    "loader": loader,
    "volumes": volumes,
    "big": big,
    "ranges": ranges,
    "write": write,
    "save": save,
    "load": load,
    "load_from_memory": load_from_memory,
    "listing": listing,
    "import": import_package,
    "import_names": import_names,
    "first": first_sample,
}


def preload() -> None:
    importlib.import_module("torch.utils.data")
    importlib.import_module("tos")  # the control plane's, imported at the first call of it
    module = importlib.import_module(MODULE)
    for name in module.__all__:
        getattr(module, name)


if __name__ == "__main__":
    run_jobs(WORKLOADS, sys.argv[2], preload)
