"""Large reads of the sequential reader: straight where that is fast, with read-ahead where it is not, the same bytes always."""

import random

import pytest

from tosnative import ReaderType, TosCheckpoint
from tosnative.pace import LARGE, Pace
from tosnative.testing import LocalTos

MIB = 1 << 20


def test_a_far_service_is_read_ahead_of_after_one_look() -> None:
    pace = Pace()
    assert pace.straight
    pace.went_straight(8 * MIB, 0.04)
    assert not pace.straight


def test_a_near_service_is_read_straight_for_as_long_as_it_is_fast() -> None:
    pace = Pace()
    for _ in range(3):
        pace.went_straight(8 * MIB, 0.005)  # connections are opened
    for _ in range(1000):
        assert pace.straight
        pace.went_straight(8 * MIB, 0.003)
    for _ in range(4):
        assert pace.straight
        pace.went_straight(8 * MIB, 0.008)
    assert not pace.straight, "others use the network now, or the caller works between two reads"


def test_what_reads_ahead_goes_on_with_it() -> None:
    pace = Pace()
    pace.read_ahead()
    assert not pace.straight


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
