"""Completing an upload whose answers get lost: it is looked for before it is sent again, and nothing is guessed."""

import os
from collections.abc import Callable
from typing import Any

import pytest

from tosnative import crc64
from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig
from tosnative.errors import (
    TosConnectionError,
    TosException,
    TosExistsError,
    TosIntegrityError,
    TosNotFoundError,
    TosOutcomeUnknownError,
    TosUnavailableError,
)
from tosnative.testing import LocalTos

BODY = os.urandom(10_000)
CRC = crc64.update(BODY)
Complete = Callable[..., Any]


@pytest.fixture
def client(local_tos: LocalTos) -> TosClient:
    config = TosClientConfig(max_retry_count=4, connection=ConnectionOptions(first_byte_timeout_s=0.5))
    return TosClient(endpoint=local_tos.endpoint, region=local_tos.region, cred=local_tos.cred, config=config)


@pytest.fixture
def complete(local_tos: LocalTos, client: TosClient) -> Complete:
    """Uploads BODY as key "k" up to the completion, which the returned function asks for."""
    upload_id = client.create_upload("test", "k")
    part = client.upload_part("test", "k", upload_id, 1, memoryview(BODY), CRC).wait()
    local_tos.clear_requests()

    def ask(**options: Any) -> Any:
        return client.complete_upload("test", "k", upload_id, [(1, part.etag)], **{"crc64": CRC, **options})

    return ask


def methods(tos: LocalTos) -> list[str]:
    return [request.method for request in tos.requests]


def sends(tos: LocalTos) -> int:
    return methods(tos).count("POST")


def test_the_straight_path_is_one_request(local_tos: LocalTos, complete: Complete) -> None:
    meta = complete()
    assert methods(local_tos) == ["POST"]
    assert (meta.key, meta.crc64) == ("k", CRC)
    assert local_tos.get("test", "k") == BODY


@pytest.mark.parametrize("fault", [{"reset": "after"}, {"hang": "after"}, {"truncate_after_bytes": 5}])
def test_a_lost_answer_is_found_by_looking(local_tos: LocalTos, complete: Complete, fault: dict[str, Any]) -> None:
    local_tos.faults.add(method="POST", times=1, **fault)
    meta = complete()
    assert sends(local_tos) == 1, "what has succeeded is not sent again"
    assert (meta.size, meta.crc64) == (len(BODY), CRC)
    assert local_tos.get("test", "k") == BODY


@pytest.mark.parametrize(
    "fault", [{"reset": "before"}, {"hang": "before"}, {"status": 503}, {"status": 500}, {"status": 429}]
)
def test_a_request_that_did_nothing_is_sent_again(
    local_tos: LocalTos, complete: Complete, fault: dict[str, Any]
) -> None:
    local_tos.faults.add(method="POST", times=2, **fault)
    complete()
    assert sends(local_tos) == 3
    assert local_tos.get("test", "k") == BODY
    assert local_tos.uploads("test") == []


def test_it_waits_between_sends_as_it_is_told(local_tos: LocalTos, complete: Complete) -> None:
    local_tos.faults.add(method="POST", times=1, status=503, retry_after_s=1)
    complete()
    posts = [request.arrived for request in local_tos.requests if request.method == "POST"]
    assert posts[1] - posts[0] >= 1.0


def test_giving_up_on_an_upload_that_is_still_open(local_tos: LocalTos, complete: Complete) -> None:
    local_tos.faults.add(method="POST", status=503, retry_after_s=0)
    with pytest.raises(TosUnavailableError, match="gave up after 5 attempts"):
        complete()
    assert local_tos.keys("test") == []
    assert len(local_tos.uploads("test")) == 1
    local_tos.faults.clear()
    local_tos.faults.add(method="POST", reset="before")
    with pytest.raises(TosConnectionError):
        complete()
    local_tos.faults.clear()
    complete()


def test_gone_and_another_object_there_is_unknown(local_tos: LocalTos, complete: Complete) -> None:
    local_tos.faults.add(method="POST", times=1, reset="after")
    with pytest.raises(TosOutcomeUnknownError, match="holds something else") as caught:
        complete(crc64=CRC ^ 1)
    assert "look at the key before writing it again" in str(caught.value)
    assert caught.value.error.key == "k"


def test_gone_and_nothing_there_is_unknown(local_tos: LocalTos, client: TosClient, complete: Complete) -> None:
    local_tos.faults.add(method="POST", times=1, reset="after")
    local_tos.faults.add(method="HEAD", status=404, code="NoSuchKey", ec="0017-00000003")
    with pytest.raises(TosOutcomeUnknownError, match="cannot be seen"):
        complete()


def test_without_a_checksum_nothing_is_guessed(local_tos: LocalTos, complete: Complete) -> None:
    local_tos.faults.add(method="POST", times=1, reset="after")
    with pytest.raises(TosOutcomeUnknownError):
        complete(crc64=None)


def test_looking_fails_too(local_tos: LocalTos, complete: Complete) -> None:
    local_tos.faults.add(method="POST", times=1, reset="after")
    local_tos.faults.add(method="GET", status=403, code="AccessDenied")
    with pytest.raises(TosOutcomeUnknownError, match="looking for the upload failed too"):
        complete()


def test_an_upload_that_was_never_there_or_aborted(local_tos: LocalTos, client: TosClient, complete: Complete) -> None:
    with pytest.raises(TosNotFoundError, match="completed or aborted by somebody else"):
        client.complete_upload("test", "k", "no-such-upload", [(1, "etag")], crc64=CRC)
    complete()
    with pytest.raises(TosNotFoundError):
        complete()


def test_an_error_inside_a_200_is_tried_again(local_tos: LocalTos, complete: Complete) -> None:
    local_tos.faults.add(method="POST", times=2, error_in_200="InternalError")
    complete()
    assert methods(local_tos) == ["POST", "GET", "POST", "GET", "POST"], "looked for before each"
    assert local_tos.get("test", "k") == BODY


def test_an_error_inside_every_200(local_tos: LocalTos, complete: Complete) -> None:
    local_tos.faults.add(method="POST", error_in_200="InternalError")
    with pytest.raises(TosException, match="200") as caught:
        complete()
    assert caught.value.error.request_id
    assert len(caught.value.error.attempts) == 4
    assert local_tos.keys("test") == []


def test_a_whole_with_another_checksum(local_tos: LocalTos, complete: Complete) -> None:
    with pytest.raises(TosIntegrityError, match=f"what was written has {CRC ^ 1}"):
        complete(crc64=CRC ^ 1)


def test_a_wrong_part_is_final(local_tos: LocalTos, client: TosClient) -> None:
    upload_id = client.create_upload("test", "k")
    client.upload_part("test", "k", upload_id, 1, memoryview(BODY)).wait()
    local_tos.clear_requests()
    with pytest.raises(TosException, match="InvalidPart"):
        client.complete_upload("test", "k", upload_id, [(1, "wrong")])
    assert methods(local_tos) == ["POST"]


def test_an_existing_key_is_kept_when_asked(local_tos: LocalTos, complete: Complete) -> None:
    local_tos.put("test", "k", b"old")
    with pytest.raises(TosExistsError):
        complete(forbid_overwrite=True)
    assert local_tos.get("test", "k") == b"old"


def test_parts_in_any_order(local_tos: LocalTos, client: TosClient) -> None:
    upload_id = client.create_upload("test", "k")
    size = 4 << 20
    data = os.urandom(2 * size + 5)
    pieces = [memoryview(data)[at : at + size] for at in range(0, len(data), size)]
    parts = [(n, client.upload_part("test", "k", upload_id, n, piece).wait().etag) for n, piece in enumerate(pieces, 1)]
    client.complete_upload("test", "k", upload_id, parts[::-1], crc64=crc64.update(data))
    assert local_tos.get("test", "k") == data
