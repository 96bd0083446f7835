"""Every rank and worker of a distributed job reads its own share of a prefix.

    torchrun --nproc-per-node 2 examples/distributed.py tos://my-bucket/train/

TOS_ENDPOINT, TOS_REGION, TOS_ACCESS_KEY and TOS_SECRET_KEY say where and who.
"""

import sys

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from tosnative import TosIterableDataset, TosObjectReader


def measure(reader: TosObjectReader) -> tuple[str, int]:
    return reader.key, len(reader.read())


def main(prefix: str) -> None:
    dist.init_process_group("gloo")
    # sharding=True: rank and world size are looked up when the epoch begins. uneven="drop": every rank gets equally
    # many samples, so that no rank waits in a collective for one that has already finished.
    dataset = TosIterableDataset.from_prefix(prefix, transform=measure, sharding=True, uneven="drop")
    samples = size = 0
    for keys, sizes in DataLoader(dataset, batch_size=16, num_workers=2):
        samples += len(keys)
        size += int(sizes.sum())
    print(f"rank {dist.get_rank()} of {dist.get_world_size()}: {samples} samples, {size:,} bytes", flush=True)
    total = torch.tensor([samples])
    dist.all_reduce(total)
    if dist.get_rank() == 0:
        print(f"all ranks: {int(total)} samples", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
