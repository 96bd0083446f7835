"""Memory that grows: what was appended is there, however it has to grow, and nothing else takes memory."""

import mmap
from array import array

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative.growing import GrowingBytes

pieces = st.lists(st.binary(max_size=20) | st.integers(0, 100_000).map(bytes), max_size=8)


class Fixed(mmap.mmap):
    """A mapping on a system that cannot resize one."""

    def resize(self, newsize: int) -> None:
        raise SystemError("mmap: resizing not available--no mremap()")


@pytest.mark.parametrize("fixed", [False, True])
@settings(deadline=None)
@given(pieces, pieces)
def test_it_holds_what_was_appended(fixed: bool, first: list[bytes], second: list[bytes]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if fixed:
            patch.setattr("mmap.mmap", Fixed)
        one, other = GrowingBytes(), GrowingBytes()
        for piece in first:
            one.append(piece)
        for piece in second:
            other.append(memoryview(piece))
        one.take(other)
        assert one.size == len(b"".join(first + second))
        assert one.view("B") == b"".join(first + second)


def test_items_of_a_format() -> None:
    numbers = GrowingBytes()
    assert numbers.view("q").tolist() == []
    numbers.append(array("q", range(20_000)))
    assert numbers.view("q").tolist() == list(range(20_000))


def test_nothing_is_appended_beneath_a_view() -> None:
    numbers = GrowingBytes()
    view = numbers.view("B")
    with pytest.raises(BufferError):
        numbers.append(bytes(1 << 20))
    assert len(view) == 0
