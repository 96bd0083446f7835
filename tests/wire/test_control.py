"""The control plane when something goes wrong: retried by policy, told as our errors, in threads and processes."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any, NoReturn

import pytest

from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig
from tosnative.errors import (
    TosAccessError,
    TosConnectionError,
    TosException,
    TosIntegrityError,
    TosTimeoutError,
    TosUnavailableError,
)
from tosnative.testing import LocalTos


def connect(tos: LocalTos, **settings: Any) -> TosClient:
    of_connection = {n: settings.pop(n) for n in list(settings) if n in ConnectionOptions.__dataclass_fields__}
    config = TosClientConfig(connection=ConnectionOptions(**of_connection), **settings)
    return TosClient(endpoint=tos.endpoint, region=tos.region, cred=tos.cred, config=config)


@pytest.fixture
def client(local_tos: LocalTos) -> Iterator[TosClient]:
    with connect(local_tos) as made:
        yield made


@pytest.mark.parametrize(
    "fault",
    [
        {"status": 503},
        {"status": 429, "retry_after_s": 0},
        {"status": 500, "code": "InternalError"},
        {"reset": "before"},
        {"reset": "after"},
        {"truncate_after_bytes": 3},
        {"reset_after_bytes": 3},
        {"close_idle": True},
        {"chunk_bytes": 2},
        {"delay_s": 0.05},
    ],
)
def test_trouble_that_passes(local_tos: LocalTos, client: TosClient, fault: dict[str, Any]) -> None:
    local_tos.put("test", "k", b"body")
    for ask in (
        lambda: client.head("test", "k"),
        lambda: client.list_page("test"),
        lambda: list(client.list_uploads("test")),
        lambda: client.create_upload("test", "u"),
        lambda: client.copy("test", "k", "test", "k2"),
        lambda: client.delete_many("test", ["k2"]),
        lambda: client.delete("test", "k2"),
    ):
        rule = local_tos.faults.add(times=2, **fault)
        ask()
        assert rule.hits >= 1
        local_tos.faults.clear()
    assert local_tos.get("test", "k") == b"body"


def test_giving_up_tells_the_whole_story(local_tos: LocalTos) -> None:
    client = connect(local_tos, max_retry_count=2)
    local_tos.faults.add(status=503, code="ServiceUnavailable", message="busy")
    with pytest.raises(TosUnavailableError, match="gave up after 3 attempts") as caught:
        client.create_upload("test", "k")
    error = caught.value.error
    assert (error.bucket, error.key, error.code, error.status_code) == ("test", "k", "ServiceUnavailable", 503)
    assert error.request_id
    local_tos.faults.clear()
    local_tos.faults.add(reset="before")
    with pytest.raises(TosConnectionError, match="gave up after 3 attempts"):
        client.create_upload("test", "k")


def test_never_an_answer_is_a_timeout(local_tos: LocalTos) -> None:
    client = connect(local_tos, max_retry_count=0, first_byte_timeout_s=0.2)
    local_tos.faults.add(hang="before")
    with pytest.raises(TosTimeoutError):
        client.create_upload("test", "k")


def test_what_is_not_to_be_repeated_is_sent_once(local_tos: LocalTos, client: TosClient) -> None:
    local_tos.faults.add(reset="after")
    with pytest.raises(TosConnectionError):
        client.create_bucket("another")
    assert len(local_tos.requests) == 1


def test_an_endpoint_where_nobody_listens(local_tos: LocalTos) -> None:
    client = connect(local_tos, max_retry_count=1)
    local_tos.stop()
    for ask in (lambda: client.head("test", "k"), lambda: client.get("test", "k").wait()):
        with pytest.raises(TosConnectionError, match="refused") as caught:
            ask()
        assert "check the endpoint" in str(caught.value)
        assert "\n" not in str(caught.value)


def test_a_service_that_was_reached_may_come_back(local_tos: LocalTos, client: TosClient) -> None:
    local_tos.put("test", "k", b"body")
    client.head("test", "k")
    local_tos.stop()
    timer = threading.Timer(0.5, local_tos.start)
    timer.start()
    assert client.head("test", "k").size == 4
    assert client.get("test", "k").wait().getvalue() == b"body"
    timer.join()


def test_an_error_inside_a_200_is_no_empty_listing_and_no_copy(local_tos: LocalTos, client: TosClient) -> None:
    local_tos.put("test", "k", b"body")
    local_tos.faults.add(error_in_200="InternalError")
    with pytest.raises(TosIntegrityError, match="InternalError"):
        client.list_page("test")
    with pytest.raises(TosIntegrityError, match="no listing"):
        list(client.list_uploads("test"))
    with pytest.raises(TosException, match="200 InternalError"):
        client.copy("test", "k", "test", "k2")
    with pytest.raises(TosException, match="without an id"):
        client.create_upload("test", "k")


def test_the_sdk_is_used_by_many_threads(local_tos: LocalTos, client: TosClient) -> None:
    for number in range(40):
        local_tos.put("test", f"k{number}", bytes(number))
    sizes: list[int | None] = []
    threads = [threading.Thread(target=lambda n=n: sizes.append(client.head("test", f"k{n}").size)) for n in range(40)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(size or 0 for size in sizes) == list(range(40))


def test_both_planes_work_in_a_forked_child(local_tos: LocalTos, client: TosClient) -> None:
    local_tos.put("test", "k", b"body")
    client.head("test", "k")
    pid = os.fork()
    if pid == 0:
        fine = client.head("test", "k").size == 4 and client.get("test", "k").wait().length == 4
        os._exit(0 if fine else 1)
    assert client.head("test", "k").size == 4
    assert os.waitpid(pid, 0)[1] == 0


def test_a_closed_client_opens_again_when_used(local_tos: LocalTos, client: TosClient) -> None:
    local_tos.put("test", "k", b"body")
    client.head("test", "k")
    client.close()
    client.close()
    assert client.head("test", "k").size == 4


def test_a_wrong_region_is_an_access_error_that_says_so(local_tos: LocalTos) -> None:
    client = TosClient(endpoint=local_tos.endpoint, region="elsewhere", cred=local_tos.cred)
    for ask in (lambda: client.get("test", "k").wait(), lambda: client.create_upload("test", "k")):
        with pytest.raises(TosAccessError) as caught:
            ask()
        assert local_tos.sk not in str(caught.value)


class OfTheApplication(Exception):
    pass


def _raise(_number: int, _frame: FrameType | None) -> NoReturn:
    raise OfTheApplication("raised by a signal's handler")


@pytest.mark.parametrize("fault", [{"hang": "before"}, {"stall_after_bytes": 20}])
def test_what_a_signal_handler_raises_goes_on_as_it_is(
    local_tos: LocalTos, client: TosClient, fault: dict[str, Any]
) -> None:
    client.head_bucket("test")
    struck = local_tos.faults.add(times=1, **fault)

    def strike() -> None:
        while not struck.hits:
            time.sleep(0.002)
        os.kill(os.getpid(), signal.SIGUSR1)

    before = signal.signal(signal.SIGUSR1, _raise)
    striking = threading.Thread(target=strike)
    striking.start()
    try:
        with pytest.raises(OfTheApplication):
            list(client.list_uploads("test"))
        assert struck.hits == 1, "it was taken for trouble of the network, and asked again"
    finally:
        striking.join()
        signal.signal(signal.SIGUSR1, before)
    assert list(client.list_uploads("test")) == []
