"""Guesses at where to split: always between the bounds, and good ones for the usual kinds of keys."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tosnative.key_space import KeySpace

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=8) | st.text("ab/0", max_size=40)


@settings(deadline=None)
@given(texts, st.lists(texts, max_size=6), texts, st.none() | texts)
def test_a_guess_lies_between_its_bounds_and_can_be_sent(
    prefix: str, seen: list[str], low: str, high: str | None
) -> None:
    space = KeySpace(prefix)
    for key in seen:
        space.learn(prefix + key)
    low, high = prefix + low, None if high is None else prefix + high
    if high is not None and high < low:
        low, high = high, low
    text = space.between(low, high)
    if text is not None:
        assert text.startswith(prefix)
        assert low.encode() < text.encode()
        assert high is None or text.encode() < high.encode()


@settings(deadline=None)
@given(st.lists(texts, min_size=2, max_size=8), st.lists(texts, min_size=3, max_size=3))
def test_the_pages_that_are_left_are_no_less_than_none(seen: list[str], keys: list[str]) -> None:
    space = KeySpace("")
    for key in seen:
        space.learn(key)
    first, last, stop = sorted(keys)
    assert space.pages_left(first, last, stop) >= 0
    assert space.pages_left(first, last, None) >= 0


@pytest.mark.parametrize(("seen", "low", "high", "least", "most"), [
    (["p/00001999.bin"], "p/00001999.bin", None, "p/4", "p/6"),
    (["p/00001999.bin"], "p/00001999.bin", "p/01", "p/004", "p/006"),
    (["0a", "9f", "c3"], "10aa", "f0ff", "70", "90"),
    (["2024/01/02/x", "2024/12/31/y"], "2024/03/01/z", "2024/09/30/a", "2024/05", "2024/07"),
])  # fmt: skip
def test_a_guess_is_about_halfway(seen: list[str], low: str, high: str | None, least: str, most: str) -> None:
    space = KeySpace("p/" if low.startswith("p/") else "")
    for key in seen:
        space.learn(key)
    guess = space.between(low, high)
    assert guess is not None
    assert least < guess < most


def test_a_guess_is_no_longer_than_a_key() -> None:
    space = KeySpace("")
    space.learn("a" * 1024)
    assert space.between("z" * 1024, None) is None
