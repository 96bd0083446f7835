"""Readers that are interrupted, dropped, forked, handed over: nothing stays in flight, nothing is lost."""

import gc
import io
import multiprocessing
import os
import threading
from multiprocessing.connection import Connection

import interruptions
import object_reading
import pytest
import torch
from interruptions import Interrupt, Interrupted, until
from object_reading import KINDS, OLD, PART

from tosnative import reaper
from tosnative.client import TosClient
from tosnative.config import ReaderType
from tosnative.errors import (
    TosException,
)
from tosnative.reader import TosObjectReader
from tosnative.testing import LocalTos

server, tos, client = object_reading.server, object_reading.tos, object_reading.client
interrupt = interruptions.interrupt


# -- interruptions


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [100, 5 * PART])
def test_an_interrupted_read_leaves_the_reader_usable(
    tos: LocalTos, client: TosClient, kind: ReaderType, size: int, interrupt: Interrupt
) -> None:
    silence = tos.faults.add(method="GET", skip=1, stall_after_bytes=50)
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        assert reader.read(10) == OLD[:10]
        reader.seek(PART)
        buffer = bytearray(size)
        interrupt(lambda: silence.hits > 0)
        with pytest.raises(Interrupted):
            reader.readinto(buffer)
        before = bytes(buffer)
        assert (reader.tell(), client.budget.used <= (19 + 1) * PART) == (PART, True)
        silence.remove()
        reader.seek(PART + 5)
        assert reader.read(50) == OLD[PART + 5 : PART + 55]
        assert reader.readinto(memoryview(bytearray(size))) == min(size, len(OLD) - PART - 55)
        assert buffer == before  # nobody wrote into it any more


def test_torch_load_interrupted(tos: LocalTos, client: TosClient, interrupt: Interrupt) -> None:
    file = io.BytesIO()
    torch.save([torch.zeros(300_000) for _ in range(5)], file)
    tos.put("demo", "model.pt", file.getvalue())
    silence = tos.faults.add(method="GET", skip=2, hang="before")
    interrupt(lambda: silence.hits > 0)
    with TosObjectReader(client, "demo", "model.pt") as reader, pytest.raises(Interrupted):
        torch.load(reader, weights_only=True)


# -- dropped, forked, handed over


@pytest.mark.parametrize("kind", KINDS)
def test_dropped_without_close(tos: LocalTos, client: TosClient, kind: ReaderType) -> None:
    reader = TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=200_000)
    reader.read(10)
    silence = tos.faults.add(method="GET", stall_after_bytes=10)
    if kind is ReaderType.RANGED:
        silence.remove()
        reader.seek(PART)
        reader.read(10)
    if kind is ReaderType.SEQUENTIAL:
        reader.read(PART // 2)
        until(lambda: silence.hits > 0)
    assert (client.budget.used > 0) == (kind is not ReaderType.DIRECT)
    del reader
    gc.collect()
    until(lambda: client.budget.used == 0)
    reaper.drain()


def test_dropped_before_its_first_request_is_done(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="GET", hang="before")
    first = (reader := TosObjectReader(client, "demo", "big")).begin()
    assert first is not None
    client.submit([first])
    del reader
    gc.collect()
    until(lambda: first.done)
    with pytest.raises(TosException, match="cancelled"):
        first.wait()


def test_collected_in_a_thread_that_holds_the_budgets_lock(client: TosClient) -> None:
    reader = TosObjectReader(client, "demo", "big")
    for _ in range(30):
        reader.read(50_000)
    with client.budget._lock:
        del reader
        gc.collect()
    until(lambda: client.budget.used == 0)


def _in_child(reader: TosObjectReader, pipe: Connection) -> None:
    pipe.send(reader.read())
    reader.close()
    pipe.send(os.getpid())


@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("kind", KINDS)
def test_read_on_in_another_process(tos: LocalTos, client: TosClient, kind: ReaderType, method: str) -> None:
    context = multiprocessing.get_context(method)
    with TosObjectReader(client, "demo", "big", reader_type=kind, buffer_size=PART) as reader:
        assert reader.read(PART + 10) == OLD[: PART + 10]  # with SEQUENTIAL, parts are in flight at the fork
        here, there = context.Pipe()
        child = context.Process(target=_in_child, args=(reader, there))
        child.start()
        assert reader.read(PART) == OLD[PART + 10 : 2 * PART + 10]
        assert here.recv() == OLD[PART + 10 :]
        assert here.recv() == child.pid
        child.join()
        assert child.exitcode == 0
        assert reader.read() == OLD[2 * PART + 10 :]


def _closes(reader: TosObjectReader) -> None:
    reader.close()


def _drops(box: list[TosObjectReader]) -> None:
    box.clear()
    gc.collect()
    reaper.drain()


@pytest.mark.parametrize("begun", [True, False])
def test_a_forked_child_closes_and_drops_what_is_in_flight_in_the_parent(
    tos: LocalTos, client: TosClient, begun: bool
) -> None:
    context = multiprocessing.get_context("fork")
    reader = TosObjectReader(client, "demo", "big")
    if begun:
        first = reader.begin()
        assert first is not None
        slow = tos.faults.add(method="GET", times=1, delay_s=1.0)
        client.submit([first])
    else:
        reader.read(10)
        slow = tos.faults.add(method="GET", times=3, delay_s=1.0)
        assert reader.read(2 * PART) == OLD[10 : 2 * PART + 10]
    until(lambda: slow.hits > 0)
    children = [context.Process(target=_closes, args=(reader,)), context.Process(target=_drops, args=([reader],))]
    for child in children:
        child.start()
    for child in children:
        child.join()
        assert child.exitcode == 0
    assert reader.read() == (OLD if begun else OLD[2 * PART + 10 :])
    reader.close()


def test_handed_to_another_thread(client: TosClient) -> None:
    got: list[bytes] = []
    with TosObjectReader(client, "demo", "big") as reader:
        for _ in range(8):
            thread = threading.Thread(target=lambda: got.append(reader.read(PART)))
            thread.start()
            thread.join()
    assert b"".join(got) == OLD
