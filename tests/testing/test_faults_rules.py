"""Which requests the script picks, and with what chance."""

import http.client
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from server_wire import Wire

from tosnative.testing import Action, LocalTos, LogNormal, Rule, Tail, Uniform
from tosnative.testing.faults import Faults
from tosnative.testing.messages import Request

DATA = bytes(range(256)) * 400


@pytest.fixture(scope="module")
def server():
    with LocalTos(bucket="bkt", check_signatures=False, seed=7) as tos:
        tos.put("bkt", "key", DATA)
        yield tos


@pytest.fixture
def tos(server):
    server.faults.clear()
    server.clear_requests()
    return server


@pytest.fixture
def wire(tos):
    with Wire(tos) as connection:
        yield connection


def stored(tos, key):
    return key in tos.keys("bkt")


def test_newer_rules_win_and_others_combine(tos, wire):
    tos.faults.add(status=500, delay_s=0.001)
    newer = tos.faults.add(status=429)
    assert wire.ask("GET", "/key").status == 429
    newer.remove()
    assert wire.ask("GET", "/key").status == 500
    tos.faults.clear()
    assert wire.ask("GET", "/key").status == 200


def test_hook_decides_per_request(tos, wire):
    seen = []

    def hook(request):
        seen.append((request.method, request.key))
        return Action(status=418, code="Teapot") if request.key == "tea" else None

    tos.faults.set_hook(hook)
    assert wire.ask("GET", "/tea").status == 418
    assert wire.ask("GET", "/key").status == 200
    assert seen == [("GET", "tea"), ("GET", "key")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"reset": "sometimes"},
        {"hang": "x"},
        {"crc": "x"},
        {"interim": (100,)},
        {"bandwidth_bytes_s": 0},
        {"chunk_bytes": 0},
        {"probability": 2},
        {"key": "k", "accept_delay_s": 1},
        {"method": "GET", "reset": "accept"},
    ],
)
def test_rules_that_make_no_sense(tos, wrong):
    with pytest.raises(ValueError, match=r"."):
        tos.faults.add(**wrong)


def test_unknown_actions_are_refused(tos):
    with pytest.raises(TypeError, match="explode"):
        tos.faults.add(explode=True)


def hits(seed, keys, probability=0.5):
    faults = Faults(seed)
    faults.add(Rule(Action(status=503), probability=probability))
    return {
        key: [faults.for_request(Request("GET", "b", key, {}, {}), False) is not None for _ in range(8)] for key in keys
    }


@given(st.integers(), st.permutations([f"k{i}" for i in range(8)]))
def test_chance_depends_on_the_seed_and_not_on_the_order(seed, keys):
    assert hits(seed, keys) == hits(seed, sorted(keys))


def test_chance_is_about_as_asked_for():
    for probability in (0.0, 0.01, 0.5, 1.0):
        found = hits(zlib.crc32(b"any"), [f"k{i}" for i in range(1000)], probability)
        share = sum(map(sum, found.values())) / 8000
        assert abs(share - probability) < 0.02


@given(st.floats(0, 1, exclude_max=True))
def test_delay_distributions_stay_in_bounds(quantile):
    assert 1 <= Uniform(1, 2).at(quantile) <= 2
    assert 0 < LogNormal(0.02, 0.5, max_s=3).at(quantile) <= 3
    assert Tail(0.1, 2, one_in=100).at(quantile) == (2 if quantile < 0.01 else 0.1)


def test_lognormal_hits_its_marks():
    assert LogNormal(0.02, 0.5).at(0.5) == pytest.approx(0.02)
    assert LogNormal(0.02, 0.5).at(0.99) == pytest.approx(0.5)


def test_faults_reach_a_server_in_another_process():
    with LocalTos(bucket="bkt", check_signatures=False, process=True) as tos:
        fault = tos.faults.add(delay_s=LogNormal(0.001, 0.002), status=503, times=1)
        connection = http.client.HTTPConnection(tos.host, tos.port, timeout=20)
        for status in (503, 404):
            connection.request("GET", "/bkt/key")
            answer = connection.getresponse()
            answer.read()
            assert answer.status == status
        connection.close()
        assert fault.hits == 1
        with pytest.raises(RuntimeError, match="hook"):
            tos.faults.set_hook(lambda request: None)
