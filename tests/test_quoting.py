"""Foreign text in a message: one line, printable, bounded, and otherwise as it was."""

from hypothesis import given
from hypothesis import strategies as st

from tosnative.quoting import one_line


@given(st.text(st.characters(exclude_categories=[])), st.integers(3, 40))
def test_any_text_becomes_one_line_of_bounded_length(text: str, most: int) -> None:
    found = one_line(text, most)
    assert found.isprintable()
    assert len(found) <= most
    found.encode()


@given(
    st.lists(st.text(st.characters(categories=["L", "N", "P", "S"]), min_size=1, max_size=8), max_size=5).map(" ".join)
)
def test_a_plain_line_stays_as_it_is(text: str) -> None:
    assert one_line(text) == text


def test_examples() -> None:
    assert one_line("a\r\nb\t c") == "a b c"
    assert one_line("\x1b[31m\ud800\u202e") == "\\x1b[31m\\ud800\\u202e"
    assert one_line("x" * 50, 10) == "xxxxxxx..."
    assert one_line("请求过于频繁") == "请求过于频繁"
