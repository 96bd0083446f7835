"""Large reads of the sequential reader: straight where that is fast, with read-ahead where it is not, the same bytes always."""

import random

import pytest

from tosnative import ReaderType, TosCheckpoint
from tosnative.pace import LARGE, Pace
from tosnative.testing import LocalTos

MIB = 1 << 20


def reads(pace: Pace, count: int, seconds: float, between_s: float = 0.0) -> list[bool]:
    """So many reads of 8 MiB; which of them went straight."""
    went = []
    for _ in range(count):
        went.append(pace.straight)
        (pace.went_straight if pace.straight else pace.went_ahead)(8 * MIB, seconds + between_s)
    return went


def test_a_far_service_is_read_ahead_of_after_one_look() -> None:
    pace = Pace()
    assert reads(pace, 100, 0.04) == [True] + [False] * 99


def test_a_near_service_is_read_straight() -> None:
    pace = Pace()
    pace.went_straight(8 * MIB, 0.015)  # opened connections
    assert all(reads(pace, 1000, 0.003))
    assert pace.settled


@pytest.mark.parametrize(("ahead_s", "better"), [(0.005, True), (0.0075, False), (0.012, False)])
def test_in_between_both_ways_are_measured_once(ahead_s: float, better: bool) -> None:
    pace = Pace()
    assert all(reads(pace, 9, 0.008))
    assert not any(reads(pace, 8, 1.0)), "until read-ahead runs evenly it is not judged"
    assert not any(reads(pace, 16, ahead_s))
    assert pace.settled
    assert set(reads(pace, 100, 0.008)) == {not better}


def test_straight_reads_that_become_slow_are_given_up() -> None:
    pace = Pace()
    reads(pace, 20, 0.003)
    for _ in range(50):
        assert all(reads(pace, 3, 0.003, between_s=0.006))
        assert all(reads(pace, 1, 0.003))
    assert reads(pace, 5, 0.003, between_s=0.006) == [True] * 4 + [False], "the caller works between two reads now"
    assert not any(reads(pace, 100, 0.001))


def test_what_reads_ahead_goes_on_with_it() -> None:
    pace = Pace()
    pace.read_ahead()
    assert not any(reads(pace, 100, 0.001))


def test_few_parts_are_ahead_of_a_near_service_and_all_of_a_far_one() -> None:
    pace = Pace()
    assert pace.window(16) == 16, "nobody knows yet"
    pace.answered(8 * MIB, 0.01)
    assert (pace.window(16), pace.window(2)) == (4, 2)
    for _ in range(100):
        pace.waited(32 * MIB, 0.03)
    assert pace.window(16) == 4
    pace.waited(32 * MIB, 0.1)
    pace.waited(32 * MIB, 0.0)
    assert pace.window(16) == 16, "once far is far"
    pace.answered(8 * MIB, 0.1)
    assert pace.window(16) == 16


@pytest.mark.parametrize("delay_s", [0.0, 0.03])
def test_large_reads_of_any_size_and_place_bring_the_object(delay_s: float) -> None:
    data = random.Random(1).randbytes(45 * MIB + 12_345)
    chance = random.Random(2)
    with LocalTos(bucket="large") as tos:
        tos.put("large", "k", data)
        if delay_s:
            tos.faults.add(method="GET", key="*", delay_s=delay_s)
        checkpoint = TosCheckpoint(region=tos.region, endpoint=tos.endpoint, cred=tos.cred)
        with checkpoint, checkpoint.reader("tos://large/k", reader_type=ReaderType.SEQUENTIAL) as reader:
            got = bytearray()
            while piece := reader.read(chance.choice((LARGE, LARGE + 1, 8 * MIB, 9 * MIB + 7, 100, 70_000, MIB))):
                got += piece
            assert got == data
            assert reader.verified
            buffer = bytearray(20 * MIB)
            for at in (5, 3 * MIB, 30 * MIB, 0):
                reader.seek(at)
                count = reader.readinto(buffer)
                assert memoryview(buffer)[:count] == data[at : at + len(buffer)]
