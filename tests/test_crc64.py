"""CRC-64/XZ: its check value, every way to compute it, and combining."""

import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative import crc64

CHECK = 0x995DC9BBDF1939FA
WAYS = [crc64._through_liblzma, crc64._through_crcmod, crc64._through_table]


@pytest.mark.parametrize("way", WAYS)
def test_every_way_gives_the_catalogue_value(way) -> None:  # type: ignore[no-untyped-def]
    update = way()
    assert update(b"123456789", 0) == CHECK
    assert update(b"", 5) == 5
    assert update(b"56789", update(b"1234", 0)) == CHECK
    for buffer in (bytearray(b"123456789"), memoryview(b"123456789"), memoryview(bytearray(b"x123456789"))[1:]):
        assert update(buffer, 0) == CHECK


@given(st.binary(max_size=300), st.binary(max_size=300))
def test_combining_equals_updating(first: bytes, second: bytes) -> None:
    whole = crc64.update(first + second)
    assert crc64.update(second, crc64.update(first)) == whole
    assert crc64.combine(crc64.update(first), crc64.update(second), len(second)) == whole


@given(st.lists(st.binary(max_size=100), max_size=8))
def test_a_whole_from_any_number_of_parts(parts: list[bytes]) -> None:
    total = 0
    for part in parts:
        total = crc64.combine(total, crc64.update(part), len(part))
    assert total == crc64.update(b"".join(parts))


@pytest.mark.parametrize("size", [256 * 1024 - 1, 256 * 1024, (1 << 20) + 3])
def test_large_buffers_writable_or_not(size: int) -> None:
    data = bytes(range(256)) * (size // 256 + 1)
    data = data[:size]
    expected = crc64.combine(crc64.update(data[: size // 2]), crc64.update(data[size // 2 :]), size - size // 2)
    assert crc64.update(data) == expected
    assert crc64.update(bytearray(data)) == expected
    assert crc64.update(memoryview(data)) == expected


def test_buffers_of_other_items_count_their_bytes() -> None:
    numbers = array.array("i", range(100))
    assert crc64.update(memoryview(numbers)) == crc64.update(numbers.tobytes())


def test_huge_second_parts_combine_without_work_by_the_byte() -> None:
    zeros = crc64.update(bytes(1 << 16))
    once = crc64.combine(zeros, zeros, 1 << 16)
    assert once == crc64.update(bytes(1 << 17))
    crc64.combine(1, 2, 5 << 40)
