"""Errors say what happened and travel: through pickle, and through the way torch rebuilds them in the main process."""

import http
import pickle
import traceback
from dataclasses import fields

import pytest

from tosnative import errors
from tosnative.errors import TosError, TosException, from_service, kind_of

KINDS = sorted(
    (k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, TosException)), key=lambda k: k.__name__
)
FULL = TosError(
    "it broke",
    503,
    "0001-00000001",
    "req-1",
    "SlowDown",
    "GET",
    "bkt",
    "a/b",
    "try later",
    ("first cause", "second cause"),
    12.5,
)
PARENTS = {
    errors.TosNotFoundError: FileNotFoundError,
    errors.TosExistsError: FileExistsError,
    errors.TosAccessError: PermissionError,
    errors.TosConnectionError: ConnectionError,
    errors.TosTimeoutError: TimeoutError,
}
# What each status without a known code becomes; a status that is not here is the root, TosException.
BY_STATUS = {
    401: errors.TosAccessError,
    403: errors.TosAccessError,
    404: errors.TosNotFoundError,
    407: errors.TosAccessError,
    408: errors.TosTimeoutError,
    412: errors.TosChangedError,
    429: errors.TosUnavailableError,
}


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_built_from_one_string_and_from_facts(kind: type[TosException]) -> None:
    assert "message" not in vars(kind), "torch would rebuild it with message= in a worker"
    assert not hasattr(kind, "message")
    from_text = kind("plain words")
    assert isinstance(from_text.args[0], TosError)
    assert str(from_text) == "plain words"
    assert from_text.error.message == "plain words"
    assert kind().error.message == ""
    assert kind(FULL).args == (FULL,)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_is_pickled_with_the_text_of_its_cause(kind: type[TosException]) -> None:
    try:
        try:
            raise OSError("the cable was cut")
        except OSError as cause:
            raise kind(FULL) from cause
    except TosException as error:
        copy = pickle.loads(pickle.dumps(error))
        again = pickle.loads(pickle.dumps(copy))
    assert type(copy) is kind
    assert copy.__cause__ is None
    assert "OSError: the cable was cut" in str(copy)
    assert str(again) == str(copy)
    for field in fields(TosError):
        if field.name != "cause":
            assert getattr(copy.error, field.name) == getattr(FULL, field.name)


def test_a_cause_that_the_message_tells_already_is_not_told_twice() -> None:
    error = TosException("no route to host (from the socket)")
    error.__cause__ = OSError("no route to host")
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


@pytest.mark.parametrize("kind", KINDS)
def test_torch_rebuilds_it_in_the_main_process(kind: type[TosException]) -> None:
    _utils = pytest.importorskip("torch._utils")
    try:
        raise kind(FULL)
    except TosException:
        wrapper = _utils.ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(kind, match="DataLoader worker process 0") as caught:
        pickle.loads(pickle.dumps(wrapper)).reraise()
    assert "tos://bkt/a/b" in str(caught.value)


@pytest.mark.parametrize(("kind", "parent"), PARENTS.items())
def test_second_parents_are_caught_by_code_that_knows_nothing_of_tos(
    kind: type[TosException], parent: type[Exception]
) -> None:
    with pytest.raises(parent):
        raise kind(FULL)


def test_the_text_says_where_what_how_often_and_what_to_do() -> None:
    text = str(FULL)
    for part in ("GET tos://bkt/a/b: it broke", "503 SlowDown", "EC 0001-00000001", "request id req-1"):
        assert part in text
    for part in ("gave up after 3 attempts in 12.5 s", "first cause; second cause", "try later"):
        assert part in text
    assert str(TosError("only words")) == "only words"


@pytest.mark.parametrize("status", [s.value for s in http.HTTPStatus if s.value >= 300])
def test_the_table_of_statuses_is_complete(status: int) -> None:
    expected = errors.TosUnavailableError if status >= 500 else BY_STATUS.get(status, TosException)
    assert kind_of(status, None, None) is expected
    assert type(from_service(TosError("no", status))) is expected
    if expected is errors.TosUnavailableError and status in (500, 502, 503, 504):
        assert from_service(TosError("no", status)).error.hint


@pytest.mark.parametrize(
    ("status", "code", "ec", "kind"),
    [
        (404, "NoSuchBucket", None, errors.TosNotFoundError),
        (404, "NoSuchKey", None, errors.TosNotFoundError),
        (404, "NoSuchUpload", None, errors.TosNotFoundError),
        (404, None, "0017-00000003", errors.TosNotFoundError),
        (409, "DuplicateObject", None, errors.TosExistsError),
        (409, None, "0017-00000004", errors.TosExistsError),
        (409, "BucketNotEmpty", None, TosException),
        (403, "SignatureDoesNotMatch", None, errors.TosAccessError),
        (None, None, None, TosException),
    ],
)
def test_codes_go_before_statuses(status: int | None, code: str | None, ec: str | None, kind: type) -> None:
    assert kind_of(status, code, ec) is kind


@pytest.mark.parametrize("code", sorted(errors._HINT_BY_CODE))
def test_every_known_code_says_what_to_do(code: str) -> None:
    assert from_service(TosError("no", 403, code=code)).error.hint


def test_a_404_without_a_code_names_bucket_or_key() -> None:
    assert "bucket" in str(from_service(TosError("no", 404, bucket="bkt")))
    assert "key" in str(from_service(TosError("no", 404, bucket="bkt", key="a")))


def test_context_fills_only_what_is_empty() -> None:
    error = TosException(TosError("no", bucket="mine")).with_context(bucket="other", key="k", attempts=("one",))
    assert (error.error.bucket, error.error.key, error.error.attempts) == ("mine", "k", ("one",))


def test_a_text_is_one_line_whatever_a_key_or_a_service_says() -> None:
    error = TosException(TosError("a\nb\x1b[31m", bucket="b", key="k\nERROR all is lost\ud800", request_id="r\r\n"))
    assert str(error).isprintable()
    assert error.error.key == "k\nERROR all is lost\ud800"


def test_notes_survive_pickling() -> None:
    error = TosException("no")
    error.__dict__["__notes__"] = ["in epoch 3"]
    copy = pickle.loads(pickle.dumps(error))
    assert copy.__notes__ == ["in epoch 3"]
    assert "no" in "".join(traceback.format_exception(copy))
