"""Writers over a service in trouble: the first cause is kept, nothing hollow is published, what cannot be known is said."""

import random
import time
from collections.abc import Callable, Iterator

import pytest
import torch

from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig
from tosnative.errors import (
    TosConnectionError,
    TosException,
    TosIntegrityError,
    TosOutcomeUnknownError,
    TosUnavailableError,
)
from tosnative.testing import LocalTos
from tosnative.writer import TosObjectWriter

PART = 4 << 20
DATA = random.Random(5).randbytes(9 * PART + 77)


@pytest.fixture(scope="module")
def server() -> Iterator[LocalTos]:
    with LocalTos(bucket="demo") as made:
        yield made


@pytest.fixture
def tos(server: LocalTos) -> LocalTos:
    server.faults.clear()
    server.put("demo", "k", b"old")
    server.clear_requests()
    return server


def make(tos: LocalTos, retries: int | None = 1, **options: float) -> TosClient:
    connection = ConnectionOptions(**options)  # type: ignore[arg-type]
    config = TosClientConfig(part_size=PART, max_retry_count=retries, connection=connection)
    return TosClient(region=tos.region, endpoint=tos.endpoint, cred=tos.cred, config=config)


@pytest.fixture
def client(tos: LocalTos) -> Iterator[TosClient]:
    with make(tos) as made:
        yield made
        assert made.budget.used == 0
        assert tos.uploads("demo") == []


def write(client: TosClient, data: bytes) -> TosObjectWriter:
    with TosObjectWriter(client, "demo", "k") as writer:
        for at in range(0, len(data), 1 << 20):
            writer.write(data[at : at + (1 << 20)])
    return writer


def until(condition: Callable[[], bool]) -> None:
    """Wait for another thread; the test's own timeout is the limit."""
    while not condition():
        time.sleep(0.005)


# -- trouble that passes


@pytest.mark.parametrize("size", [10, len(DATA)])
@pytest.mark.parametrize(
    "trouble",
    [
        {"status": 503, "code": "ServiceUnavailable"},
        {"reset": "before"},
        {"reset": "after"},
        {"reset_after_request_bytes": 5},
        {"flip_byte_at": 0},
        {"close": True},
    ],
    ids=str,
)
def test_trouble_that_passes(tos: LocalTos, client: TosClient, size: int, trouble: dict[str, object]) -> None:
    with make(tos, retries=None) as patient:
        hit = tos.faults.add(method="PUT", times=3, **trouble)
        write(patient, DATA[:size])
        assert (
            hit.hits == (3 if size > 10 or not trouble.get("close") else 1)
            or "flip_byte_at" in trouble
            or "close" in trouble
        )
    assert tos.get("demo", "k") == DATA[:size]


def test_a_part_that_is_never_answered_is_sent_again(tos: LocalTos, client: TosClient) -> None:
    with make(tos, retries=None, first_byte_timeout_s=0.5) as impatient:
        silence = tos.faults.add(method="PUT", query_has="partNumber", skip=2, times=1, hang="after")
        write(impatient, DATA)
    assert silence.hits == 1
    assert tos.get("demo", "k") == DATA


def test_a_lost_answer_to_the_completion_is_looked_up(tos: LocalTos, client: TosClient) -> None:
    lost = tos.faults.add(method="POST", query_has="uploadId", times=1, reset="after")
    writer = write(client, DATA)
    assert lost.hits == 1
    assert tos.get("demo", "k") == DATA
    assert writer.meta is not None


# -- trouble that stays


def test_part_7_answers_503_for_ever(tos: LocalTos, client: TosClient) -> None:
    writer = TosObjectWriter(client, "demo", "k")
    tos.faults.add(method="PUT", query_has="partNumber", skip=6, status=503, code="ServiceUnavailable")

    def block() -> None:
        with writer:
            writer.write(DATA)

    with pytest.raises(TosUnavailableError) as caught:
        block()
    text = str(caught.value)
    upload_id = next(request.query["uploadId"] for request in tos.requests if "uploadId" in request.query)
    for fact in ("tos://demo/k", f"of upload {upload_id}", "part ", "503 ServiceUnavailable", "request id"):
        assert fact in text
    assert caught.value.error.request_id
    assert tos.get("demo", "k") == b"old"
    assert tos.uploads("demo") == []


def test_the_first_failure_sticks(tos: LocalTos, client: TosClient) -> None:
    trouble = tos.faults.add(method="PUT", status=403, code="AccessDenied")
    writer = TosObjectWriter(client, "demo", "k")

    def fail() -> None:
        writer.write(DATA)
        until(lambda: writer.flush() is not None)  # until a failure has come back

    with pytest.raises(PermissionError) as caught:
        fail()
    first = caught.value
    trouble.remove()
    calls = [
        writer.flush,
        writer.tell,
        writer.commit,
        writer.close,
        writer.close,
        lambda: writer.write(b"x"),
        writer.__enter__,
    ]
    for call in calls:
        with pytest.raises(PermissionError) as caught:
            call()
        assert caught.value is first
    assert writer.closed
    assert tos.get("demo", "k") == b"old"


@pytest.mark.parametrize("style", ["with", "caught"])
def test_a_failure_inside_torch_save(tos: LocalTos, client: TosClient, style: str) -> None:
    tos.faults.add(method="PUT", query_has="partNumber", status=403, code="AccessDenied")
    model = [torch.zeros(3_000_000) for _ in range(12)]
    writer = TosObjectWriter(client, "demo", "k")
    if style == "with":
        with pytest.raises(PermissionError, match="AccessDenied"), writer:
            torch.save(model, writer)
    else:
        try:
            torch.save(model, writer)
        except (PermissionError, RuntimeError):  # some failures come back after torch.save has ended
            pass
        with pytest.raises(PermissionError, match="AccessDenied"):
            writer.close()
    assert tos.get("demo", "k") == b"old"


@pytest.mark.parametrize("operation", ["create", "complete"])
def test_the_upload_cannot_be_created_or_completed(tos: LocalTos, client: TosClient, operation: str) -> None:
    name = "uploads" if operation == "create" else "uploadId"
    tos.faults.add(method="POST", query_has=name, status=403, code="AccessDenied")
    with pytest.raises(PermissionError):
        write(client, DATA)
    assert tos.get("demo", "k") == b"old"


def test_a_completion_that_fails_with_status_200(tos: LocalTos, client: TosClient) -> None:
    tos.faults.add(method="POST", query_has="uploadId", error_in_200="InternalError")
    with pytest.raises(TosException):
        write(client, DATA)
    assert tos.get("demo", "k") == b"old"


@pytest.mark.parametrize("size", [10, len(DATA)])
def test_checksums_that_never_agree(tos: LocalTos, client: TosClient, size: int) -> None:
    tos.faults.add(method="PUT", crc="wrong")
    with pytest.raises(TosIntegrityError, match="CRC64"):
        write(client, DATA[:size])
    tos.faults.clear()
    tos.faults.add(method="POST", query_has="uploadId", crc="wrong")
    if size > 10:
        with pytest.raises(TosIntegrityError, match="CRC64"):
            write(client, DATA[:size])


def test_the_service_is_gone(tos: LocalTos, client: TosClient) -> None:
    write(client, b"new")
    tos.stop()
    try:
        with pytest.raises((TosConnectionError, TosOutcomeUnknownError)):
            write(client, b"newer")
    finally:
        tos.start()
    assert tos.get("demo", "k") == b"new"
