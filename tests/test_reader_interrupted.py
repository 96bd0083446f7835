"""Reads interrupted at any moment: the interruption arrives, nobody writes into the buffer any more, and the reader goes on."""

import gc
import random
from collections.abc import Iterator

import object_reading
import pytest
from interruptions import Interrupted, Strikes, until
from object_reading import KINDS, OLD, PART, make

from tosnative.client import TosClient
from tosnative.config import ReaderType
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos

tos = object_reading.tos


@pytest.fixture(scope="module")
def server() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo", process=True) as made:
        yield made


def read_interrupted(reader: TosObjectReader, at: int, buffer: bytearray, after_s: float) -> int | None:
    """What readinto() returned, None where it was interrupted."""
    strikes = None
    try:
        try:
            strikes = Strikes(Interrupted, after_s)
            reader.seek(at)
            return reader.readinto(buffer)
        finally:
            if strikes is not None:
                strikes.end()
    except Interrupted as error:
        error.__traceback__ = error.__context__ = None
        return None


def interrupt_reads(client: TosClient, key: str, kind: ReaderType, chance: random.Random) -> int:
    data, interrupted = OLD if key == "big" else OLD[:1000], []
    with TosObjectReader(client, "demo", key, reader_type=kind, buffer_size=chance.choice([100_000, PART])) as reader:
        for _ in range(8):
            at = chance.randrange(len(data)) if chance.random() < 0.4 else reader.tell()
            buffer = bytearray(chance.choice([50, 5000, PART // 2, PART, 3 * PART]))
            count = read_interrupted(reader, at, buffer, chance.uniform(1e-6, 0.0015))
            if count is None:
                interrupted.append((buffer, bytes(buffer)))
            else:
                assert buffer[:count] == data[at : at + len(buffer)]
        reader.seek(0)
        assert reader.read() == data
    for buffer, then in interrupted:
        assert buffer == then, "written into after the interruption"
    return len(interrupted)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["big", "small"])
def test_reads_interrupted_at_any_moment(tos: LocalTos, kind: ReaderType, key: str) -> None:
    chance = random.Random(f"{key} {kind.value}")
    with make(tos, retries=3) as client:
        client.get("demo", key).wait()
        hits = rounds = 0
        while rounds < 40 or (hits <= 20 and rounds < 400):  # a fast machine is done before most strikes come
            hits += interrupt_reads(client, key, kind, chance)
            rounds += 1
            gc.collect()
            until(lambda: client.budget.used == 0)
    assert hits > 20
