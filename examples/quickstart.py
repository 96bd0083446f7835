"""Train on images that stream out of TOS, checkpoint into TOS, get killed, resume. No account needed.

    python examples/quickstart.py                        # starts a TOS on this machine, in a child process
    python examples/quickstart.py --bucket my-bucket     # a real bucket; TOS_ENDPOINT, TOS_REGION, TOS_ACCESS_KEY and
                                                         # TOS_SECRET_KEY say where and who

A run against a real bucket writes about 80 MB below one unique prefix and removes them at the end.
"""

import argparse
import io
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from PIL import Image
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import nn
from torch.utils.data import DataLoader

from tosnative import (
    TosCheckpoint,
    TosClientConfig,
    TosIterableDataset,
    TosMapDataset,
    TosObjectReader,
    TosObjectWriter,
)
from tosnative.cli import main as tosnative_command
from tosnative.testing import LocalTos

BATCH = 32
SMALL_PARTS = TosClientConfig(part_size=5 << 20)  # so that a checkpoint of 6 MiB is uploaded in parts
DIES_AFTER = 5 << 20  # bytes: the first part is on its way by then


@dataclass(frozen=True)
class Run:
    """Where one run keeps its objects and how long it trains. The endpoint and the keys are in the environment."""

    url: str  # tos://bucket/prefix
    epochs: int
    workers: int

    def checkpoint(self, epoch: int) -> str:
        return f"{self.url}/checkpoints/epoch-{epoch}.pt"


@dataclass
class Tally:
    """What went over the wire, for the last lines of the output."""

    samples: int = 0
    seconds: float = 0.0
    bytes_read: int = 0
    bytes_written: int = 0


# -- the samples: one PNG object per digit, its class is the last folder of its key


def png(pixels: np.ndarray) -> bytes:
    """An 8 x 8 digit of scikit-learn (values 0 to 16) as a PNG file."""
    buffer = io.BytesIO()
    Image.fromarray((pixels.reshape(8, 8) * 15).astype(np.uint8)).save(buffer, "PNG")
    return buffer.getvalue()


def upload_digits(run: Run) -> int:
    """Upload every digit; return the number of bytes sent."""
    pixels, labels = load_digits(return_X_y=True)
    indices = np.arange(len(labels))
    train, test = train_test_split(indices, test_size=0.2, stratify=labels, random_state=0)
    names = {i: f"{part}/{labels[i]}/{i:04d}.png" for part, some in (("train", train), ("test", test)) for i in some}

    with TosCheckpoint() as store, ThreadPoolExecutor(16) as pool:

        def upload(i: int) -> int:
            with store.writer(f"{run.url}/digits/{names[i]}") as writer:
                return writer.write(png(pixels[i]))

        return sum(pool.map(upload, indices))


def decode(reader: TosObjectReader) -> tuple[torch.Tensor, int, int]:
    """The transform: a reader is a file, so whatever reads files reads objects. Gives image, class and bytes."""
    image = torch.from_numpy(np.array(Image.open(reader), dtype=np.float32))
    return image.unsqueeze(0) / 255, int(reader.key.split("/")[-2]), reader.tell()


# -- the model and one epoch of training: plain PyTorch, nothing of TOS in it


def make_model() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(1, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 64, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Flatten(), nn.Linear(64 * 16, 512), nn.ReLU(), nn.Linear(512, 10),
    )  # fmt: skip


def train_epoch(model: nn.Module, optimizer: torch.optim.Optimizer, batches: Iterable[Any], tally: Tally) -> str:
    """One epoch; adds to the tally and returns a line about it."""
    model.train()
    losses, samples, start = [], 0, time.perf_counter()
    for images, labels, sizes in batches:
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        samples += len(labels)
        tally.bytes_read += int(sizes.sum())
    seconds = time.perf_counter() - start
    tally.samples += samples
    tally.seconds += seconds
    return f"loss {np.mean(losses):.3f}   {samples:,} samples at {samples / seconds:,.0f}/s"


def accuracy(model: nn.Module, run: Run) -> float:
    """The share of held-out digits that the model gets right; they stream in, in key order."""
    dataset = TosIterableDataset.from_prefix(f"{run.url}/digits/test/", transform=decode)
    model.eval()
    right = total = 0
    with torch.no_grad():
        for images, labels, _ in DataLoader(dataset, batch_size=BATCH, num_workers=run.workers):
            right += int((model(images).argmax(1) == labels).sum())
            total += len(labels)
    return right / total


# -- checkpoints


class DiesHalfWay(io.RawIOBase):
    """A writer whose process is killed by SIGKILL, as by an out-of-memory killer, once `limit` bytes went through."""

    def __init__(self, writer: TosObjectWriter, limit: int) -> None:
        self.writer, self.limit = writer, limit

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        count = self.writer.write(data)
        if self.writer.tell() > self.limit:
            time.sleep(0.5)  # for the first part to arrive, so that it is a torn upload and not one that never began
            say("             SIGKILL in the middle of torch.save")
            os.kill(os.getpid(), signal.SIGKILL)
        return count


def save(store: TosCheckpoint, url: str, state: dict[str, Any], dies_after: int | None) -> int:
    """Stream a checkpoint into TOS; only the end of the `with` block makes it visible. Returns its size in bytes."""
    with store.writer(url) as writer:
        torch.save(state, writer if dies_after is None else DiesHalfWay(writer, dies_after))
        return writer.tell()


def load_newest(store: TosCheckpoint, run: Run) -> dict[str, Any] | None:
    """The checkpoint of the highest epoch that exists, or None. A checkpoint that exists is whole."""
    for epoch in range(run.epochs, 0, -1):
        try:
            with store.reader(run.checkpoint(epoch)) as reader:
                state: dict[str, Any] = torch.load(reader, weights_only=True)
                say(f"   resuming from {run.checkpoint(epoch)}")
                return state
        except FileNotFoundError:
            continue
    return None


def train(run: Run, tally: Tally, dies_in_epoch: int | None = None) -> nn.Module:
    """Train to the last epoch from the newest checkpoint, or from the start where there is none."""
    torch.set_num_threads(1)  # two workers decode meanwhile
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    with (
        TosCheckpoint(client_conf=SMALL_PARTS) as store,
        TosMapDataset.from_prefix(f"{run.url}/digits/train/", transform=decode) as dataset,
    ):
        loader = DataLoader(dataset, batch_size=BATCH, shuffle=True, num_workers=run.workers)
        state = load_newest(store, run)
        if state is not None:
            model.load_state_dict(state["model"])
            optimizer.load_state_dict(state["optimizer"])
        for epoch in range(1 + (state["epoch"] if state else 0), run.epochs + 1):
            line = train_epoch(model, optimizer, loader, tally)
            say(f"   epoch {epoch}   {line}")
            state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
            size = save(store, run.checkpoint(epoch), state, DIES_AFTER if epoch == dies_in_epoch else None)
            tally.bytes_written += size
    return model


# -- the story


def say(text: str = "") -> None:
    print(text, flush=True)


def step_upload(run: Run, tally: Tally) -> None:
    start = time.perf_counter()
    tally.bytes_written += upload_digits(run)
    say(f"\n1. Uploaded 1,797 digits as PNG objects to {run.url}/digits/ in {time.perf_counter() - start:.1f} s")


def step_crash(run: Run) -> None:
    """Train in a child process that is killed while it writes the checkpoint of the middle epoch."""
    say(f"\n2. Train: TosMapDataset, DataLoader with {run.workers} workers, a checkpoint after each epoch")
    half = run.epochs // 2
    command = [sys.executable, __file__, "--epochs", str(run.epochs), "--workers", str(run.workers)]
    ended = subprocess.run([*command, "--train-only", run.url, "--dies-in-epoch", str(half)])
    if ended.returncode != -signal.SIGKILL:
        raise SystemExit(f"the training process should have been killed, but ended with {ended.returncode}")
    with TosCheckpoint() as store:
        try:
            store.reader(run.checkpoint(half)).read(1)
        except FileNotFoundError:
            say(f"   TOS holds no torn checkpoint: {run.checkpoint(half)} does not exist")
        else:
            raise SystemExit(f"{run.checkpoint(half)} became visible although its writer was killed")
    say("   Parts that the killed process left behind are found and freed by `tosnative uploads`:")
    tosnative_command(["uploads", run.url, "--abort-older-than", "0s"])


def step_resume(run: Run, tally: Tally) -> float:
    say("\n3. Start again, as a scheduler would")
    model = train(run, tally)
    score = accuracy(model, run)
    say(f"   accuracy on the held-out digits {score:.3f}")
    return score


def step_stream(run: Run, tally: Tally) -> float:
    """A new model on an iterable dataset, which shuffles by itself, differently in each epoch."""
    say("\n4. The same digits as a stream: TosIterableDataset, a new model")
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    dataset = TosIterableDataset.from_prefix(f"{run.url}/digits/train/", transform=decode, shuffle=True, seed=0)
    loader = DataLoader(dataset, batch_size=BATCH, num_workers=run.workers)
    for epoch in range(1, run.epochs // 2 + 1):
        dataset.set_epoch(epoch)
        say(f"   epoch {epoch}   {train_epoch(model, optimizer, loader, tally)}")
    score = accuracy(model, run)
    say(f"   accuracy on the held-out digits {score:.3f}")
    return score


def tell_story(run: Run) -> float:
    """Run all steps and say how it went; return the accuracy of the resumed model."""
    tally = Tally()
    step_upload(run, tally)
    step_crash(run)
    score = step_resume(run, tally)
    streamed = step_stream(run, tally)
    say(f"\nAccuracy {score:.3f} (map) and {streamed:.3f} (stream) on digits that neither model had seen.")
    say(f"{tally.samples:,} samples at {tally.samples / tally.seconds:,.0f} samples/s, training included;")
    say(f"{tally.bytes_read / 2**20:.1f} MiB of samples read, {tally.bytes_written / 2**20:.1f} MiB written.")
    return score


@contextmanager
def service(args: argparse.Namespace) -> Iterator[str]:
    """The bucket to use, with the environment set up for it: the user's, or that of a local TOS in a child process."""
    if args.bucket:
        os.environ.update({"TOS_ENDPOINT": args.endpoint} if args.endpoint else {})
        yield args.bucket
        return
    with LocalTos(bucket="demo", process=True) as tos:
        os.environ.update(tos.environ())
        say(f"A local TOS serves at {tos.endpoint}, in a process of its own")
        yield tos.bucket


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bucket", help="a bucket to use instead of a local TOS")
    parser.add_argument("--endpoint", help="its endpoint; default: TOS_ENDPOINT")
    parser.add_argument("--epochs", type=int, default=6)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--train-only", metavar="URL", help=argparse.SUPPRESS)  # what the process that gets killed does
    parser.add_argument("--dies-in-epoch", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train_only:
        train(Run(args.train_only, args.epochs, args.workers), Tally(), args.dies_in_epoch)
        return 0
    with service(args) as bucket:
        url = f"tos://{bucket}/quickstart-{uuid.uuid4().hex[:12]}"
        try:
            score = tell_story(Run(url, args.epochs, args.workers))
        finally:
            say("\n5. Clean up")
            tosnative_command(["rm", "--recursive", url + "/"])
            tosnative_command(["uploads", url, "--abort-older-than", "0s"])
    return 0 if score > 0.95 else 1


if __name__ == "__main__":
    sys.exit(main())
