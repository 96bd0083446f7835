"""Many small samples in a few large tar objects: a reader is a file, so `tarfile` streams out of it.

    python examples/tar_shards.py tos://my-bucket/shards/

Reads every .tar object below the prefix once, from front to back, in bounded memory.
"""

import sys
import tarfile
from collections.abc import Iterator

from torch.utils.data import DataLoader, IterableDataset

from tosnative import TosIterableDataset, TosObjectReader


class TarSamples(IterableDataset[tuple[str, bytes]]):
    """The files in the tar objects of a prefix; workers split the objects between them."""

    def __init__(self, prefix: str) -> None:
        self.shards: TosIterableDataset[TosObjectReader] = TosIterableDataset.from_prefix(prefix)

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        for shard in self.shards:
            if not shard.key.endswith(".tar"):
                continue
            with shard, tarfile.open(fileobj=shard, mode="r|") as archive:
                for member in archive:
                    content = archive.extractfile(member)
                    if content is not None:
                        yield f"{shard.key}:{member.name}", content.read()


def main(prefix: str) -> None:
    names, size = set(), 0
    for name, content in DataLoader(TarSamples(prefix), batch_size=None, num_workers=2):
        names.add(name)
        size += len(content)
    print(f"{len(names)} samples, {size:,} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
