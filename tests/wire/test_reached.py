"""An endpoint that has answered once is down rather than wrong, also for the children of the process that it answered."""

import os

import pytest
from conftest import MakeClient
from raw_server import answer, serving, whole

from tosnative.errors import TosConnectionError


def hint(client: object) -> str:
    with pytest.raises(TosConnectionError) as caught:
        client.get("test", "k").wait()  # type: ignore[attr-defined]
    return str(caught.value.error.hint)


def test_a_child_forked_while_the_service_is_down_is_as_patient_as_its_parent(make_client: MakeClient) -> None:
    with serving(answer(whole(b"body"))) as server:
        client = make_client(endpoint=server.endpoint, max_retry_count=1)
        assert client.get("test", "k").wait().getvalue() == b"body"
    assert "check the network between" in hint(client)
    pid = os.fork()
    if pid == 0:  # the child
        code = 1
        try:
            code = 0 if "check the network between" in hint(client) else 3
        finally:
            os._exit(code)
    assert os.waitpid(pid, 0)[1] == 0


def test_an_endpoint_that_never_answered_may_be_wrong(make_client: MakeClient) -> None:
    with serving(answer(b"")) as server:
        endpoint = server.endpoint
    assert "check the endpoint" in hint(make_client(endpoint=endpoint, max_retry_count=1))
