"""Counters: what a run of requests adds to them, and that a forked child begins at zero."""

import os

from tosnative.client import TosClient
from tosnative.metrics import METRICS, Metrics, get_metrics
from tosnative.testing import LocalTos


def test_requests_and_bytes_are_counted(local_tos: LocalTos) -> None:
    local_tos.put("test", "a", bytes(1000))
    client = TosClient(endpoint=local_tos.endpoint, region=local_tos.region, cred=local_tos.cred)
    METRICS.reset()
    local_tos.faults.add(method="GET", status=503, times=1)
    client.get("test", "a").wait()
    client.put("test", "b", bytes(500)).wait()
    found = get_metrics()
    assert found["requests"] == 3
    assert found["retries"] == 1
    assert found["throttled"] == 1
    assert found["bytes_received"] == 1000
    assert found["bytes_sent"] == 500
    assert found["connections_opened"] >= 1
    assert found["integrity_failures"] == 0


def test_a_copy_is_handed_out() -> None:
    get_metrics()["requests"] = -1
    assert METRICS.requests >= 0
    assert get_metrics().keys() == set(Metrics.__slots__)


def test_a_forked_child_begins_at_zero() -> None:
    METRICS.requests = 5
    pid = os.fork()
    if pid == 0:
        os._exit(0 if get_metrics()["requests"] == 0 else 1)
    assert os.waitpid(pid, 0)[1] == 0
    assert METRICS.requests == 5
