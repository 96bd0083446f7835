"""What is left when a writer does not come to a good end: nothing, and what was under the key before."""

import contextlib
import sys

import interruptions
import object_writing
import pytest
import torch
from interruptions import Interrupt, Interrupted, until
from object_writing import DATA, SIZES, make

from tosnative.client import TosClient
from tosnative.errors import TosAbortedError
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

server, tos = object_writing.server, object_writing.tos
client, fruitless = object_writing.client, object_writing.fruitless
interrupt = interruptions.interrupt


class Unpicklable:
    def __reduce__(self) -> str:
        raise ZeroDivisionError("not this one")


def broken_model() -> dict[str, object]:
    return {"weights": [torch.zeros(3_000_000) for _ in range(3)], "bad": Unpicklable()}


def big_model() -> dict[str, object]:
    return {"weights": [torch.zeros(3_000_000) for _ in range(5)]}


# -- exceptions


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3), GeneratorExit()])
def test_an_exception_in_the_block(fruitless: TosClient, size: int, error: BaseException) -> None:
    writer = TosObjectWriter(fruitless, "demo", "k")

    def block() -> None:
        with writer:
            writer.write(DATA[:size])
            raise error

    with pytest.raises(type(error)) as caught:
        block()
    assert caught.value is error
    assert writer.closed
    writer.close()
    with pytest.raises(TosAbortedError):
        writer.commit()
    with pytest.raises(ValueError, match="closed"):
        writer.write(b"more")


@pytest.mark.parametrize("size", SIZES)
def test_abort(fruitless: TosClient, size: int) -> None:
    writer = TosObjectWriter(fruitless, "demo", "k")
    writer.write(DATA[:size])
    writer.abort()
    writer.abort()
    writer.close()
    assert writer.closed
    with TosObjectWriter(fruitless, "demo", "k") as writer:
        writer.write(DATA[:size])
        writer.abort()


def test_an_abort_that_is_refused_can_be_repeated(tos: LocalTos, client: TosClient) -> None:
    refused = tos.faults.add(method="DELETE", status=403, code="AccessDenied")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(DATA)
    for _ in range(2):
        with pytest.raises(PermissionError, match="AccessDenied"):
            writer.abort()
        assert writer.closed
        assert client.budget.used == 0
    with pytest.raises(TosAbortedError):
        writer.commit()
    refused.remove()
    writer.abort()
    writer.abort()
    assert tos.uploads("demo") == []
    assert tos.get("demo", "k") == b"old"


def test_abort_after_a_failure_whose_upload_could_not_be_aborted(tos: LocalTos, client: TosClient) -> None:
    refused = tos.faults.add(method="DELETE", status=403, code="AccessDenied")
    tos.faults.add(method="POST", query_has="uploadId", status=403, code="AccessDenied")
    writer = TosObjectWriter(client, "demo", "k")
    writer.write(DATA)
    with pytest.raises(PermissionError):
        writer.close()
    assert len(tos.uploads("demo")) == 1
    refused.remove()
    writer.abort()
    assert tos.uploads("demo") == []
    with pytest.raises(PermissionError):
        writer.close()


@pytest.mark.parametrize("size", SIZES)
def test_close_while_an_exception_is_in_flight(fruitless: TosClient, size: int) -> None:
    def careless() -> None:
        writer = TosObjectWriter(fruitless, "demo", "k")
        try:
            writer.write(DATA[:size])
            raise LookupError("the first error")
        finally:
            writer.close()

    def closing() -> None:
        with contextlib.closing(TosObjectWriter(fruitless, "demo", "k")) as writer:
            writer.write(DATA[:size])
            raise LookupError("the first error")

    def stacked() -> None:
        with contextlib.ExitStack() as stack:
            stack.callback(TosObjectWriter(fruitless, "demo", "k").close)
            raise LookupError("the first error")

    for save in (careless, closing, stacked):
        with pytest.raises(LookupError, match="the first error"):
            save()


def test_close_in_a_handler_aborts_and_commit_does_not(tos: LocalTos, fruitless: TosClient) -> None:
    first, second = TosObjectWriter(fruitless, "demo", "k"), TosObjectWriter(fruitless, "demo", "other")
    try:
        raise LookupError
    except LookupError:
        with pytest.raises(LookupError) as caught:
            first.close()
        second.write(b"deliberately")
        second.commit()
    if sys.version_info >= (3, 11):
        assert "commit()" in caught.value.__notes__[0]
    assert tos.get("demo", "other") == b"deliberately"
    try:
        raise LookupError
    except LookupError:
        with TosObjectWriter(fruitless, "demo", "other") as writer:
            writer.write(b"with")
        third = TosObjectWriter(fruitless, "demo", "third")
        third.close()  # the exception was there when it was made
        fourth = TosObjectWriter(fruitless, "demo", "fourth")
    fourth.close()
    assert tos.get("demo", "other") == b"with"
    assert tos.keys("demo") == ["fourth", "k", "other", "third"]
    for key in ("fourth", "other", "third"):
        tos.delete("demo", key)


def test_torch_save_of_what_cannot_be_pickled(fruitless: TosClient) -> None:
    def plain() -> None:
        with TosObjectWriter(fruitless, "demo", "k") as writer:
            torch.save(broken_model(), writer)

    def closing() -> None:
        with contextlib.closing(TosObjectWriter(fruitless, "demo", "k")) as writer:
            torch.save(broken_model(), writer)

    def finally_close() -> None:
        writer = TosObjectWriter(fruitless, "demo", "k")
        try:
            torch.save(broken_model(), writer)
        finally:
            writer.close()

    for save in (plain, closing, finally_close):
        with pytest.raises(ZeroDivisionError, match="not this one"):
            save()


@pytest.mark.parametrize("style", ["with", "closing"])
def test_interrupted_while_torch_save_writes(
    tos: LocalTos, fruitless: TosClient, interrupt: Interrupt, style: str
) -> None:
    silence = tos.faults.add(method="PUT", query_has="partNumber", hang="before")
    with make(tos, tasks=1) as narrow:
        writer = TosObjectWriter(narrow, "demo", "k")
        interrupt(lambda: silence.hits > 0)
        with pytest.raises(Interrupted), writer if style == "with" else contextlib.closing(writer):
            torch.save(big_model(), writer)


def test_interrupted_while_the_upload_is_created(tos: LocalTos, fruitless: TosClient, interrupt: Interrupt) -> None:
    slow = tos.faults.add(method="POST", query_has="uploads", delay_s=0.5)
    interrupt(lambda: slow.hits > 0)
    with pytest.raises(Interrupted), TosObjectWriter(fruitless, "demo", "k") as writer:
        writer.write(DATA)
    until(lambda: any(request.method == "DELETE" for request in tos.requests))
    until(lambda: tos.uploads("demo") == [])


def test_interrupted_while_an_upload_is_created_that_cannot_be_aborted(
    tos: LocalTos, client: TosClient, interrupt: Interrupt, caplog: pytest.LogCaptureFixture
) -> None:
    slow = tos.faults.add(method="POST", query_has="uploads", delay_s=0.5)
    refused = tos.faults.add(method="DELETE", status=403, code="AccessDenied")
    interrupt(lambda: slow.hits > 0)
    with pytest.raises(Interrupted), TosObjectWriter(client, "demo", "k") as writer:
        writer.write(DATA)
    until(lambda: "stays open" in caplog.text)
    refused.remove()
    ((_, upload_id),) = tos.uploads("demo")
    client.abort_upload("demo", "k", upload_id)
