"""Commits whose answer is lost or whose waiting is interrupted: look at the key, else say that it is not known."""

import contextlib
import socket
import sys
import threading
import traceback

import interruptions
import object_writing
import pytest
from interruptions import Interrupt, Interrupted, striking
from object_writing import LARGE, PART, make, write

from tosnative import uploads
from tosnative.client import TosClient
from tosnative.errors import (
    TosConnectionError,
    TosOutcomeUnknownError,
    TosTimeoutError,
)
from tosnative.testing import LocalTos
from tosnative.wire.engine import ENGINE
from tosnative.writer import TosObjectWriter

server, tos, client = object_writing.server, object_writing.tos, object_writing.client
interrupt = interruptions.interrupt


# -- what a lost answer leaves behind


def test_a_put_whose_answers_are_lost_is_looked_up(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", reset="after")
    writer = write(client, b"new")
    assert tos.get("demo", "k") == b"new"
    assert writer.meta is not None
    assert writer.meta.etag


def test_a_put_whose_outcome_cannot_be_seen(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", reset="after")
    tos.faults.add(method="HEAD", status=403)
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(b"new")
    with pytest.raises(TosOutcomeUnknownError, match="not known") as caught:
        writer.close()
    assert isinstance(caught.value.__cause__, TosConnectionError)
    with pytest.raises(TosOutcomeUnknownError):
        writer.close()


def test_a_put_that_did_not_get_through(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="PUT", reset="before")
    with pytest.raises(TosConnectionError):
        write(client, b"new")
    assert tos.get("demo", "k") == b"old"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_put_that_is_not_answered(tos: LocalTos, client: TosClient, when: str) -> None:
    """The service may still be at work on it, so where the key does not hold it nothing is certain."""
    with make(tos, first_byte_timeout_s=0.3) as impatient:
        tos.faults.add(method="PUT", hang=when)
        if when == "after":
            assert write(impatient, b"new").meta is not None
        else:
            with pytest.raises(TosOutcomeUnknownError, match="TosTimeoutError while it was committed") as caught:
                write(impatient, b"new")
            assert isinstance(caught.value.__cause__, TosTimeoutError)
    assert tos.get("demo", "k") == (b"new" if when == "after" else b"old")


@pytest.mark.parametrize("gone", [True, False])
def test_a_completion_that_is_not_answered(
    tos: LocalTos, client: TosClient, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    """Once the service has forgotten the upload, nothing can complete it; before, the last request may yet."""
    monkeypatch.setattr(uploads, "_ABORT_WAIT_S", 0.3)
    with make(tos, first_byte_timeout_s=0.3) as impatient:
        tos.faults.add(method="POST", query_has="uploadId", hang="before")
        if not gone:
            tos.faults.add(method="DELETE", hang="before")
        with pytest.raises(TosTimeoutError if gone else TosOutcomeUnknownError):
            write(impatient, LARGE)
    tos.faults.clear()
    assert tos.get("demo", "k") == b"old"
    for _, upload_id in tos.uploads("demo"):
        client.abort_upload("demo", "k", upload_id)


def test_a_part_times_out_for_ever(tos: LocalTos, client: TosClient) -> None:
    with make(tos, first_byte_timeout_s=0.3) as impatient:
        tos.faults.add(method="PUT", query_has="partNumber", hang="before")
        with pytest.raises(TosTimeoutError, match="part 1 of upload"):
            write(impatient, LARGE[: 2 * PART])
    assert tos.get("demo", "k") == b"old"


def test_interrupted_in_a_put_that_was_carried_out(tos: LocalTos, client: TosClient, interrupt: Interrupt) -> None:
    tos.faults.add(method="PUT", hang="after")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(b"new")
    interrupt(lambda: tos.get("demo", "k") == b"new")
    with pytest.raises(Interrupted):
        writer.close()
    assert writer.closed
    assert writer.meta is not None  # committed, and known to be
    assert writer.commit() == writer.meta


@pytest.mark.parametrize(
    "raised", [KeyboardInterrupt(), SystemExit(15), Interrupted(), RuntimeError("from a handler")], ids=repr
)
def test_interrupted_in_a_put_whose_outcome_is_open(tos: LocalTos, client: TosClient, raised: BaseException) -> None:
    """The interruption stays what it is, for whoever catches KeyboardInterrupt; what is not known comes with it."""
    silence = tos.faults.add(method="PUT", hang="before")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(b"new")
    with contextlib.contextmanager(striking)(raised) as strike:
        strike(lambda: silence.hits > 0)
        with pytest.raises(type(raised)) as caught:
            writer.close()
    assert caught.value is raised
    assert isinstance(raised.__cause__, TosOutcomeUnknownError)
    assert raised.__cause__.__cause__ is raised.__cause__.__context__ is None
    shown = "".join(traceback.format_exception(raised))
    assert "PUT tos://demo/k: whether the object was written is not known" in shown
    assert sys.version_info < (3, 11) or "look at the key" in raised.__notes__[0]
    for again in (writer.close, writer.commit, lambda: writer.write(b"more")):
        with pytest.raises(type(raised)) as caught:
            again()
        assert caught.value is raised
    assert tos.get("demo", "k") == b"old"


def test_interrupted_while_nothing_can_be_sent(tos: LocalTos, interrupt: Interrupt) -> None:
    """Nothing to be looked at, and nothing unknown."""
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))
        endpoint = f"http://127.0.0.1:{deaf.getsockname()[1]}"
        client = TosClient(region=tos.region, endpoint=endpoint, cred=tos.cred)
        writer = TosObjectWriter(client, "demo", "k")
        writer.write(b"new")
        interrupt(lambda: client._target("demo").origin in ENGINE.get()._loop.pools)
        with pytest.raises(Interrupted) as caught:
            writer.close()
    assert caught.value.__cause__ is None


def test_interrupted_again_while_the_key_is_looked_at(tos: LocalTos, client: TosClient, interrupt: Interrupt) -> None:
    silence, blind = tos.faults.add(method="PUT", hang="before"), tos.faults.add(method="HEAD", hang="before")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(b"new")
    interrupt(lambda: silence.hits > 0)
    interrupt(lambda: blind.hits > 0)
    with pytest.raises(Interrupted) as caught:
        writer.close()
    assert "looking at the key was interrupted" in str(caught.value.__cause__)
    tos.faults.clear()


@pytest.mark.parametrize("when", ["before", "after"])
def test_interrupted_while_completing(tos: LocalTos, client: TosClient, interrupt: Interrupt, when: str) -> None:
    silence = tos.faults.add(method="POST", query_has="uploadId", hang=when)
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(LARGE)
    interrupt(lambda: silence.hits > 0 and (when == "before" or tos.get("demo", "k") == LARGE))
    with pytest.raises(Interrupted) as caught:
        writer.close()
    assert caught.value.__cause__ is None  # the upload is gone, and the key was looked at: nothing is unknown
    if sys.version_info >= (3, 11):
        known = "was not" if when == "before" else "had been"
        assert caught.value.__notes__ == [f"tos://demo/k {known} written when this interrupted"]
    assert writer.closed
    assert (writer.meta is not None) == (when == "after")
    assert tos.get("demo", "k") == (LARGE if when == "after" else b"old")


def test_interrupted_while_the_last_parts_are_sent(tos: LocalTos, client: TosClient, interrupt: Interrupt) -> None:
    silence = tos.faults.add(method="PUT", query_has="partNumber", skip=3, hang="before")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(LARGE)
    closing = threading.Event()
    interrupt(lambda: closing.is_set() and silence.hits > 0)
    with pytest.raises(Interrupted):
        closing.set() or writer.close()
    with pytest.raises(Interrupted):
        writer.close()
    assert tos.get("demo", "k") == b"old"
