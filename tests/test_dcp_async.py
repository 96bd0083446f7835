"""Asynchronous saves: a failure reaches whoever waits, and whoever saves next without having waited."""

import threading
from concurrent.futures import Future
from typing import Any

import pytest
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from tests import dcp_service
from tests.dcp_ranks import connection, empty, same, state
from tests.dcp_service import URL
from tosnative.dcp import TosStorageReader, TosStorageWriter
from tosnative.errors import TosAccessError
from tosnative.testing import LocalTos

tos = dcp_service.tos
pytestmark = dcp_service.ALONE


@pytest.fixture
def writer(tos: LocalTos) -> TosStorageWriter:
    return TosStorageWriter(URL, **connection(tos))


def refuse(tos: LocalTos) -> None:
    tos.faults.add(method="PUT", status=403, code="AccessDenied")


def held(tos: LocalTos, seed: int) -> bool:
    target = empty(state(seed))
    dcp.load(target, storage_reader=TosStorageReader(URL, **connection(tos)))
    return same(target, state(seed))


def settle(saving: Future[Any]) -> None:
    """Return when it is done, without asking how it ended."""
    done = threading.Event()
    saving.add_done_callback(lambda _: done.set())
    assert done.wait(50)


def test_torchs_own_async_save(tos: LocalTos, writer: TosStorageWriter) -> None:
    dcp.async_save(state(1), storage_writer=writer).result(50)
    assert held(tos, 1)
    refuse(tos)
    failing = dcp.async_save(state(2), storage_writer=writer)
    with pytest.raises(CheckpointException, match="AccessDenied") as raised:
        failing.result(50)
    assert isinstance(raised.value.failures[0][0], TosAccessError)
    tos.faults.clear()
    assert held(tos, 1)
    dcp.async_save(state(3), storage_writer=writer).result(50)
    assert held(tos, 3)


def test_a_failure_that_nobody_asked_about_is_raised_by_the_next_async_save(
    tos: LocalTos, writer: TosStorageWriter
) -> None:
    refuse(tos)
    writer.async_save(state(1))
    with pytest.raises(CheckpointException, match="AccessDenied"):
        writer.async_save(state(2))
    tos.faults.clear()
    assert tos.keys("demo") == []
    writer.async_save(state(3))
    writer.wait()
    assert held(tos, 3)


def test_it_is_raised_by_the_next_save_of_any_kind(tos: LocalTos, writer: TosStorageWriter) -> None:
    refuse(tos)
    settle(writer.async_save(state(1)))
    tos.faults.clear()
    with pytest.raises(CheckpointException, match="AccessDenied"):
        dcp.save(state(2), storage_writer=writer)
    dcp.save(state(3), storage_writer=writer)
    assert held(tos, 3)


def test_it_is_raised_by_wait_and_then_no_more(tos: LocalTos, writer: TosStorageWriter) -> None:
    refuse(tos)
    writer.async_save(state(1))
    with pytest.raises(CheckpointException, match="AccessDenied"):
        writer.wait()
    writer.wait()
    tos.faults.clear()
    writer.async_save(state(2)).result()
    assert held(tos, 2)


@pytest.mark.parametrize("ask", [Future.result, Future.exception])
def test_who_asked_is_not_told_twice(tos: LocalTos, writer: TosStorageWriter, ask: Any) -> None:
    refuse(tos)
    saving = writer.async_save(state(1))
    if ask is Future.result:
        with pytest.raises(CheckpointException):
            saving.result(50)
    else:
        assert isinstance(saving.exception(50), CheckpointException)
    tos.faults.clear()
    writer.async_save(state(2), checkpoint_id="tos://demo/run/step-1")
    writer.wait()
    assert held(tos, 2)


def test_a_result_that_is_not_there_in_time(tos: LocalTos, writer: TosStorageWriter) -> None:
    tos.faults.add(method="PUT", delay_s=0.5)
    saving = writer.async_save(state(1))
    with pytest.raises(TimeoutError):
        saving.result(0)
    assert saving.result().state_dict_metadata


def test_the_state_may_change_once_the_call_returned(tos: LocalTos, writer: TosStorageWriter) -> None:
    tos.faults.add(method="PUT", delay_s=0.2)
    saved = state(1)
    writer.async_save(saved)
    saved["model"]["wide"].zero_()
    writer.wait()
    assert held(tos, 1)
