"""The reading side of the read marathon: a program that reads with either connector and checks every byte.

    python -m tests.marathon.reading JSON

Four DataLoader workers and four threads share the reads. One JSON line on standard output now and then says how many are
done; the last one holds the figures. Exit status 3: something hung.
"""

from __future__ import annotations

import faulthandler
import json
import multiprocessing
import os
import random
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import DataLoader

from tests.marathon.connectors import OURS, Place
from tests.marathon.corpus import Corpus
from tests.marathon.figures import summary

# (leg, right?, seconds, process id, the process's counters)
Record = tuple[str, bool, float, int, dict[str, int]]
THREADS = 4
BATCH = 16
# Workers and those that were to be replaced; a connector whose workers do not end would otherwise take the machine's memory.
MOST_PROCESSES = 20


@dataclass
class Check:
    """The transform of the datasets: reads the object, compares it, and says how that went."""

    place: Place
    corpus: Corpus
    leg: str

    def __call__(self, reader: Any) -> Record:
        began = time.perf_counter()
        data = reader.read()
        took = time.perf_counter() - began
        return self.leg, data == self.corpus.content(reader.key), took, os.getpid(), self.place.counters()


@dataclass
class Tally:
    """What has been read so far, by all legs. The lock guards everything here."""

    lock: threading.Lock = field(default_factory=threading.Lock)
    done: int = 0
    wrong: list[str] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    kinds: Counter[str] = field(default_factory=Counter)
    waits: dict[str, list[float]] = field(default_factory=dict)
    counters: dict[int, dict[str, int]] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        leg, right, took, pid, counters = record
        with self.lock:
            self.done += 1
            self.waits.setdefault(leg, []).append(took)
            self.counters[pid] = counters
            if not right:
                self.wrong.append(leg)

    def fail(self, leg: str, error: BaseException) -> None:
        with self.lock:
            self.done += 1
            self.kinds[type(error).__name__] += 1
            self.failed.append(f"{leg}: {type(error).__name__}: {error}"[:1000])

    def totals(self) -> dict[str, int]:
        """The counters of all processes together."""
        found: Counter[str] = Counter()
        with self.lock:
            for counters in self.counters.values():
                found.update(counters)
        return dict(found)

    def take_waits(self) -> list[float]:
        """The durations since the last time, of all legs, which are then forgotten."""
        with self.lock:
            waits, self.waits = self.waits, {}
        return [took for leg in waits.values() for took in leg]

    def figures(self) -> dict[str, Any]:
        every = [took for waits in self.waits.values() for took in waits]
        return {
            "reads": self.done,
            "wrong": len(self.wrong),
            "failed": len(self.failed),
            "failures": dict(self.kinds),
            "examples": self.failed[:3] + self.wrong[:3],
            "all": summary(every),
            "legs": {leg: summary(waits) for leg, waits in sorted(self.waits.items())},
            "counters": self.totals(),
        }


class LoaderLeg:
    """Samples of a dataset through the worker processes of a DataLoader, epoch after epoch, until so many have come."""

    def __init__(self, leg: str, dataset: Any, tally: Tally) -> None:
        self._leg, self._dataset, self._tally = leg, dataset, tally
        self._loader: DataLoader[Any] | None = loader_of(dataset)
        self._epoch: Iterator[Any] | None = iter(self._loader)  # forks now, while there is one thread only

    def close(self) -> None:
        """End the workers."""
        self._epoch = self._loader = None

    def run(self, reads: int) -> None:
        left = reads
        while left > 0:
            try:
                epoch, self._epoch = self._epoch, None
                for batch in epoch if epoch is not None else self._fresh():
                    for record in batch:
                        self._tally.add(record)
                    left -= len(batch)
                    if left <= 0:
                        break
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a sample that failed
                self._tally.fail(self._leg, error)
                left -= 1
                self._loader = None  # one whose worker raised is of no more use

    def _fresh(self) -> DataLoader[Any]:
        if self._loader is None:
            self._loader = loader_of(self._dataset)
        return self._loader


def loader_of(dataset: Any) -> DataLoader[Any]:
    """A loader of lists of samples, over two workers that live on from epoch to epoch."""
    stream = type(dataset).__name__ == "TosIterableDataset"
    order: dict[str, Any] = {} if stream else {"shuffle": True}
    return DataLoader(
        dataset, batch_size=BATCH, num_workers=2, collate_fn=list, persistent_workers=True, timeout=90, **order
    )


class ThreadLeg:
    """One thread's reads of ranges and of objects of several parts, with readers of every kind."""

    def __init__(self, number: int, seed: int, place: Place, corpus: Corpus, tally: Tally) -> None:
        self._chance = random.Random(f"{seed}/{number}")
        self._place, self._corpus, self._tally = place, corpus, tally
        self._kinds = list(place.module().ReaderType)
        self._store = place.module().TosCheckpoint(**place.keywords())
        self._ranged, self._large = corpus.keys("ranged/"), corpus.keys("large/")

    def close(self) -> None:
        self._store.close()

    def run(self, reads: int) -> None:
        for _ in range(reads):
            large = self._chance.random() < 0.02
            leg = "large" if large else "ranged"
            try:
                right, took = self._whole() if large else self._range()
            except Exception as error:  # noqa: BLE001 - whatever it is, it is a sample that failed
                self._tally.fail(leg, error)
            else:
                self._tally.add((leg, right, took, os.getpid(), self._place.counters()))

    def _range(self) -> tuple[bool, float]:
        chance, corpus = self._chance, self._corpus
        key = chance.choice(self._ranged)
        start = chance.randrange(corpus.size(key))
        want = int(2 ** chance.uniform(0, 17))
        into = chance.random() < 0.5
        began = time.perf_counter()
        with self._store.reader(self._place.url(key), reader_type=chance.choice(self._kinds)) as reader:
            reader.seek(start)
            if into:
                room = bytearray(want)
                data = bytes(memoryview(room)[: reader.readinto(room)])
            else:
                data = reader.read(want)
        took = time.perf_counter() - began
        return data == corpus.content(key, start, start + want), took

    def _whole(self) -> tuple[bool, float]:
        chance = self._chance
        key = chance.choice(self._large)
        piece = chance.choice((-1, 1 << 20, 300_000))
        began = time.perf_counter()
        with self._store.reader(self._place.url(key), reader_type=self._kinds[0]) as reader:
            data = reader.read() if piece < 0 else b"".join(iter(lambda: reader.read(piece), b""))
        took = time.perf_counter() - began
        return data == self._corpus.content(key), took


def _warm(place: Place, corpus: Corpus) -> None:
    """Use the connector in this process before it forks, as a training script does that looks at its data first."""
    store = place.module().TosCheckpoint(**place.keywords())
    key = corpus.keys("ranged/")[0]
    with store.reader(place.url(key)) as reader:
        reader.read(100)


def main(spec: dict[str, Any]) -> int:
    place, seed, reads = Place(**spec["place"]), spec["seed"], spec["reads"]
    corpus, tally = Corpus(seed), Tally()
    if place.connector == OURS:
        _warm(place, corpus)
    datasets, keywords = place.module(), place.keywords()
    stream = datasets.TosIterableDataset.from_prefix(
        place.url("whole/"), transform=Check(place, corpus, "stream"), **keywords
    )
    mapped = datasets.TosMapDataset.from_prefix(place.url("whole/"), transform=Check(place, corpus, "map"), **keywords)
    loaders = [LoaderLeg("stream", stream, tally), LoaderLeg("map", mapped, tally)]
    shares: list[tuple[LoaderLeg | ThreadLeg, int]] = [
        (loaders[0], reads * 35 // 100),
        (loaders[1], reads * 25 // 100),
        *((ThreadLeg(n, seed, place, corpus, tally), reads * 40 // 100 // THREADS) for n in range(THREADS)),
    ]
    print(json.dumps({"ready": True}), flush=True)
    sys.stdin.readline()
    began = time.monotonic()
    legs = [threading.Thread(target=leg.run, args=(share,), daemon=True) for leg, share in shares]
    for leg in legs:
        leg.start()
    hung = not _watch(legs, tally, began + spec["bound_s"])
    left = len(multiprocessing.active_children())
    figures = {**tally.figures(), "hung": hung, "processes": left, "seconds": round(time.monotonic() - began, 2)}
    print(json.dumps({"figures": figures}), flush=True)
    if hung:
        if place.connector == OURS:
            faulthandler.dump_traceback(all_threads=True)
        os._exit(3)  # what hangs would keep the process from ending
    for loader in loaders:
        loader.close()
    return 0


def _watch(legs: list[threading.Thread], tally: Tally, until: float) -> bool:
    """Report until all legs have ended; False where they have not in time, or have left ever more processes behind."""
    while any(leg.is_alive() for leg in legs):
        if time.monotonic() > until or len(multiprocessing.active_children()) > MOST_PROCESSES:
            return False
        next(leg for leg in legs if leg.is_alive()).join(0.1)
        print(json.dumps({"done": tally.done, "failed": len(tally.failed)}), flush=True)
    return True


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1])))
