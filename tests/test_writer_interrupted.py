"""Saves interrupted at any moment: what is said of the key is true, and nothing is left."""

import gc
import random
from collections.abc import Iterator

import object_writing
import pytest
from interruptions import Interrupted, Strikes, until
from object_writing import DATA, MIB, make

from tosnative.client import TosClient
from tosnative.errors import TosOutcomeUnknownError
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

tos = object_writing.tos


@pytest.fixture(scope="module")
def server() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo", process=True) as made:
        yield made


class Failed(Exception):
    """As an application's handler may raise it."""


def strikes_of(chance: random.Random, within_s: float) -> Strikes:
    """One or two, the second soon after the first."""
    kind = chance.choice([Interrupted, Failed])
    pauses = [chance.uniform(0, within_s), chance.uniform(0.002, 0.01)]
    return Strikes(kind, *pauses[: chance.choice([1, 1, 2])])


def save(writer: TosObjectWriter, data: bytes, style: str) -> None:
    if style == "with":
        with writer:
            for at in range(0, len(data), MIB):
                writer.write(data[at : at + MIB])
        return
    try:
        for at in range(0, len(data), MIB):
            writer.write(data[at : at + MIB])
    finally:
        writer.close()


# What is interrupted inside the official SDK leaves its socket to the garbage collector.
@pytest.mark.filterwarnings("ignore:.*<socket.socket", "ignore:unclosed <socket.socket:ResourceWarning")
@pytest.mark.parametrize("style", ["with", "finally"])
@pytest.mark.parametrize(("size", "within_s"), [(100, 0.004), (9 * MIB, 0.03), (len(DATA), 0.06)])
def test_a_save_interrupted_at_any_moment(tos: LocalTos, size: int, within_s: float, style: str) -> None:
    chance, data = random.Random(size), DATA[:size]
    with make(tos, retries=3) as client:
        client.get("demo", "k").wait()
        for _ in range(15):
            tos.put("demo", "k", b"old")
            ended: BaseException | None = None
            writer = TosObjectWriter(client, "demo", "k")
            strikes = None
            try:
                try:
                    strikes = strikes_of(chance, within_s)
                    save(writer, data, style)
                finally:
                    if strikes is not None:
                        strikes.end()
            except (Interrupted, Failed) as error:
                ended = error.with_traceback(None)
                ended.__context__ = None
            assert strikes is None or ended is None or type(ended) is strikes.kind
            check(tos, client, writer, data, ended)
            del writer, ended
            gc.collect()
            until(lambda: client.budget.used == 0 and tos.uploads("demo") == [])


def check(tos: LocalTos, client: TosClient, writer: TosObjectWriter, data: bytes, ended: BaseException | None) -> None:
    found = tos.get("demo", "k")
    if writer.meta is not None:
        assert found == data, "said to be there"
    elif isinstance(ended.__cause__ if ended else None, TosOutcomeUnknownError):
        assert found in (data, b"old")
    else:
        assert ended is not None
        assert found == b"old", "not said to be there, nor to be unknown"
