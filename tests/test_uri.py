"""tos://bucket/key: parsed, checked, formatted."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tosnative.uri import check_bucket, check_key, format_uri, join_key, parse_tos_url, parse_uri

BUCKETS = st.from_regex(r"\A[a-z0-9][a-z0-9-]{1,61}[a-z0-9]\Z")
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=60)


@given(BUCKETS, KEYS)
def test_a_uri_comes_back_as_it_was(bucket: str, key: str) -> None:
    assert parse_uri(format_uri(bucket, key)) == (bucket, key)
    assert parse_tos_url(f"{bucket}/{key}") == (bucket, key)
    assert parse_uri(f"TOS://{bucket}/{key}") == (bucket, key)


@given(st.text(max_size=80))
def test_any_text_is_a_uri_or_one_value_error(text: str) -> None:
    try:
        bucket, key = parse_uri(text)
    except ValueError as error:
        assert "\n" not in str(error)  # noqa: PT017 - most texts raise nothing to match
    else:
        assert check_bucket(bucket) == bucket
        assert parse_uri(format_uri(bucket, key)) == (bucket, key)


@pytest.mark.parametrize(
    ("uri", "bucket", "key"),
    [
        ("tos://bkt/a/b", "bkt", "a/b"),
        ("tos://bkt", "bkt", ""),
        ("tos://bkt/", "bkt", ""),
        ("tos://bkt//a", "bkt", "/a"),
        ("tos://bkt/a?b#c%20d", "bkt", "a?b#c%20d"),
        ("tos://bkt/a://b", "bkt", "a://b"),
        ("bkt/a", "bkt", "a"),
    ],
)
def test_keys_are_taken_as_they_stand(uri: str, bucket: str, key: str) -> None:
    assert parse_uri(uri) == (bucket, key)


@pytest.mark.parametrize(
    ("uri", "what"),
    [
        ("s3://bkt/a", "scheme 's3://'"),
        ("https://bkt.tos-cn-beijing.volces.com/a", "scheme 'https://'"),
        ("/local/path", "bucket name ''"),
        ("tos://", "bucket name ''"),
        ("tos:///a", "bucket name ''"),
        ("tos://Bkt/a", "bucket name 'Bkt'"),
        ("tos://-bkt/a", "bucket name"),
        ("tos://ab/a", "bucket name"),
        ("tos://" + "a" * 64, "bucket name"),
        ("tos://b_t/a", "bucket name"),
        ("tos://bkt.tos-cn-beijing.volces.com/a", "bucket name"),
    ],
)
def test_what_is_no_tos_uri_is_one_clear_line(uri: str, what: str) -> None:
    with pytest.raises(ValueError, match="is not a TOS URI") as caught:
        parse_uri(uri)
    assert what in str(caught.value)
    assert "tos://bucket/key" in str(caught.value)


def test_a_path_object_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="PosixPath"):
        parse_uri(__import__("pathlib").Path("a/b"))  # type: ignore[arg-type]


def test_keys_that_cannot_be_requested() -> None:
    with pytest.raises(ValueError, match="an object's key is missing"):
        check_key("bkt", "")
    with pytest.raises(ValueError, match="UTF-8"):
        check_key("bkt", "a\udc80")


@given(st.lists(st.text("ab/", min_size=1, max_size=4), min_size=1, max_size=4))
def test_joined_names_meet_in_one_slash(names: list[str]) -> None:
    joined = join_key(names[0], *names[1:])
    assert joined.startswith(names[0].rstrip("/"))
    assert joined.replace("/", "") == "".join(names).replace("/", "")


def test_join_examples() -> None:
    assert join_key("a/", "b") == join_key("a", "b") == join_key("a", "/b") == "a/b"
    assert join_key("", "b") == "b"
