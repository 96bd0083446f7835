"""Half-open ranges against sets of byte positions as the model."""

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.ranges import coalesce, parse_content_range, parse_unsatisfied, range_header, split

SMALL = st.integers(0, 60)
RANGES = st.lists(st.tuples(SMALL, SMALL), max_size=12)


@given(SMALL, SMALL, st.integers(1, 70))
def test_pieces_cover_a_range_once_in_order(start: int, stop: int, size: int) -> None:
    pieces = list(split(start, stop, size))
    assert [at for a, b in pieces for at in range(a, b)] == list(range(start, stop))
    assert all(0 < b - a <= size for a, b in pieces)
    assert all(b - a == size for a, b in pieces[:-1])


@pytest.mark.parametrize("size", [0, -1])
def test_pieces_of_nothing_are_refused(size: int) -> None:
    with pytest.raises(ValueError, match="cannot cover"):
        list(split(0, 1, size))


@given(RANGES, st.integers(0, 5))
def test_coalesced_ranges_cover_the_same_bytes_and_the_gaps(ranges: list[tuple[int, int]], gap: int) -> None:
    merged = coalesce(ranges, gap)
    wanted = {at for a, b in ranges for at in range(a, b)}
    covered = {at for a, b in merged for at in range(a, b)}
    assert wanted <= covered
    if not gap:
        assert covered == wanted
    assert all(before[1] + gap < after[0] for before, after in itertools.pairwise(merged))
    assert all(a in wanted and b - 1 in wanted for a, b in merged)
    for a, b in merged:  # what is covered without need is never longer than the gap
        run = 0
        for at in range(a, b):
            run = 0 if at in wanted else run + 1
            assert run <= gap


@given(st.integers(0, 10**12), st.integers(1, 10**9), st.integers(0, 10**9))
def test_a_header_and_its_answer_name_the_same_bytes(start: int, length: int, more: int) -> None:
    stop = start + length
    assert range_header(start, stop) == f"bytes={start}-{stop - 1}"
    assert parse_content_range(f"bytes {start}-{stop - 1}/{stop + more}") == (start, stop, stop + more)


def test_headers_by_example() -> None:
    assert range_header(1000, 1100) == "bytes=1000-1099"
    assert range_header(7, None) == "bytes=7-"
    assert parse_unsatisfied("bytes */11") == 11
    assert parse_unsatisfied("bytes 0-1/11") is None
    for start, stop in ((-1, 5), (5, 5), (6, 5), (-1, None)):
        with pytest.raises(ValueError, match="no range"):
            range_header(start, stop)


@pytest.mark.parametrize(
    "value", ["bytes 5-4/10", "bytes 0-10/10", "bytes 0-4/*", "bytes=0-4/5", "0-4/5", "", "bytes 0-4/5 "]
)
def test_an_impossible_content_range_is_an_error(value: str) -> None:
    with pytest.raises(ValueError, match="Content-Range"):
        parse_content_range(value)


@given(st.text(max_size=40))
def test_any_content_range_is_one_or_a_value_error(value: str) -> None:
    try:
        start, stop, size = parse_content_range(value)
    except ValueError:
        return
    assert 0 <= start < stop <= size
