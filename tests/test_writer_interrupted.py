"""Saves interrupted at any moment: what is said of the key is true, and nothing is left."""

import gc
import random
import signal
from collections.abc import Iterator
from types import FrameType

import object_writing
import pytest
from interruptions import until
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


class Interrupted(BaseException):
    """As Ctrl-C."""


class Failed(Exception):
    """As an application's handler may raise it."""


class Strikes:
    """One or two signals, the second soon after the first, at moments that nobody chose."""

    def __init__(self, chance: random.Random, within_s: float) -> None:
        self.kind = chance.choice([Interrupted, Failed])
        self.left = chance.choice([1, 1, 2])
        signal.signal(signal.SIGALRM, self._handle)
        signal.setitimer(signal.ITIMER_REAL, chance.uniform(1e-6, within_s), chance.uniform(0.002, 0.01))

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.left -= 1
        if self.left <= 0:
            signal.setitimer(signal.ITIMER_REAL, 0)
        raise self.kind

    def end(self) -> None:
        while True:
            try:
                signal.setitimer(signal.ITIMER_REAL, 0)
                return
            except (Interrupted, Failed):
                continue


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


@pytest.mark.parametrize("style", ["with", "finally"])
@pytest.mark.parametrize(("size", "within_s"), [(100, 0.004), (9 * MIB, 0.03), (len(DATA), 0.06)])
def test_a_save_interrupted_at_any_moment(tos: LocalTos, size: int, within_s: float, style: str) -> None:
    chance, data = random.Random(size), DATA[:size]
    before = signal.getsignal(signal.SIGALRM)
    with make(tos, retries=3) as client:
        client.get("demo", "k").wait()
        for _ in range(15):
            tos.put("demo", "k", b"old")
            ended: BaseException | None = None
            writer = TosObjectWriter(client, "demo", "k")
            strikes = Strikes(chance, within_s)
            try:
                try:
                    save(writer, data, style)
                finally:
                    strikes.end()
            except (Interrupted, Failed) as error:
                ended = error.with_traceback(None)
                ended.__context__ = None
            assert ended is None or type(ended) is strikes.kind
            check(tos, client, writer, data, ended)
            del writer, ended
            gc.collect()
            until(lambda: client.budget.used == 0 and tos.uploads("demo") == [])
    signal.signal(signal.SIGALRM, before)


def check(tos: LocalTos, client: TosClient, writer: TosObjectWriter, data: bytes, ended: BaseException | None) -> None:
    found = tos.get("demo", "k")
    if writer.meta is not None:
        assert found == data, "said to be there"
    elif isinstance(ended.__cause__ if ended else None, TosOutcomeUnknownError):
        assert found in (data, b"old")
    else:
        assert ended is not None
        assert found == b"old", "not said to be there, nor to be unknown"
