"""Credentials on the way: expired, rotated, slow, failing. One refresh per process, and the loop never waits."""

import threading
import time
from collections.abc import Callable

import pytest
from conftest import AK, SK, TOKEN, MakeClient, check_error

from tosnative.credentials import CredentialProvider, Credentials, RefreshingCredentials
from tosnative.errors import TosAccessError, TosException, TosTimeoutError
from tosnative.testing import LocalTos

BODY = b"body" * 100


@pytest.fixture(autouse=True)
def objects(tos: LocalTos) -> None:
    for number in range(200):
        tos.put("test", f"k{number}", BODY)


class Rotating:
    """Hands out `stale` first and `fresh` afterwards."""

    def __init__(self, fresh: str = TOKEN, stale: str = "STALEtoken") -> None:
        self.count = 0
        self.fresh, self.stale = fresh, stale

    def __call__(self) -> Credentials:
        self.count += 1
        return Credentials(AK, SK, self.stale if self.count == 1 else self.fresh)


def expire(tos: LocalTos, token: str) -> None:
    """The service calls this token expired from now on."""
    from tosnative.testing.faults import Action

    def hook(request: object) -> Action | None:
        sent = request.headers.get("x-tos-security-token")  # type: ignore[attr-defined]
        return Action(expired_token=True) if sent == token else None

    tos.faults.set_hook(hook)


def test_200_requests_with_a_token_that_expired_refresh_once(tos: LocalTos, make_client: MakeClient) -> None:
    expire(tos, "STALEtoken")
    source = Rotating()
    client = make_client(cred=RefreshingCredentials(source))
    batch = [client.download("test", f"k{number}") for number in range(200)]
    client.submit(batch)
    for download in batch:
        assert download.wait().getvalue() == BODY
    assert source.count == 2


def test_both_planes_and_many_threads_refresh_once(tos: LocalTos, make_client: MakeClient) -> None:
    expire(tos, "STALEtoken")
    source = Rotating()
    client = make_client(cred=RefreshingCredentials(source))
    failures: list[BaseException] = []

    def work(ask: Callable[[], object]) -> None:
        try:
            ask()
        except BaseException as error:  # noqa: BLE001 - shown by the assertion
            failures.append(error)

    asks: list[Callable[[], object]] = [lambda: client.head("test", "k0"), lambda: client.get("test", "k0").wait()]
    threads = [threading.Thread(target=work, args=(asks[n % 2],)) for n in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert source.count == 2


def test_a_token_that_stays_expired_is_given_up_and_named(tos: LocalTos, make_client: MakeClient) -> None:
    expire(tos, TOKEN)
    client = make_client(cred=RefreshingCredentials(Rotating(fresh=TOKEN, stale=TOKEN)))
    for ask in (lambda: client.get("test", "k0").wait(), lambda: client.head("test", "k0")):
        with pytest.raises(TosAccessError, match="use a provider that refreshes it") as caught:
            ask()
        check_error(caught.value)
        assert caught.value.error.code == "ExpiredToken" or caught.value.error.status_code == 403


def test_fresh_credentials_that_are_rejected_too_end_after_two_refreshes(
    tos: LocalTos, make_client: MakeClient
) -> None:
    tos.faults.add(expired_token=True)
    count = 0

    def fetch() -> Credentials:
        nonlocal count
        count += 1
        return Credentials(AK, SK, f"token{count}")

    client = make_client(cred=RefreshingCredentials(fetch))
    with pytest.raises(TosAccessError) as caught:
        client.get("test", "k0").wait()
    assert count == 3
    check_error(caught.value)


def test_fixed_credentials_that_expired_are_one_request_and_one_attempt(tos: LocalTos, make_client: MakeClient) -> None:
    tos.faults.add(expired_token=True)
    client = make_client(cred=CredentialProvider(AK, SK, TOKEN))
    with pytest.raises(TosAccessError) as caught:
        client.get("test", "k0").wait()
    assert len(tos.requests) == 1
    assert caught.value.error.attempts == ()
    with pytest.raises(TosAccessError, match="ExpiredToken"):
        client.head("test", "k0")
    assert [request.method for request in tos.requests[1:]] == ["HEAD", "GET"], "a HEAD's refusal does not say why"


def test_a_provider_that_fails_is_named_without_what_it_says(make_client: MakeClient) -> None:
    def fetch() -> Credentials:
        raise RuntimeError("no luck with key=XYZ")

    client = make_client(cred=RefreshingCredentials(fetch), max_retry_count=0)
    for ask in (lambda: client.get("test", "k0").wait(), lambda: client.head("test", "k0")):
        with pytest.raises(TosAccessError, match=r"the credential provider failed \(RuntimeError\)") as caught:
            ask()
        assert "XYZ" not in str(caught.value)
        import pickle

        assert b"XYZ" not in pickle.dumps(caught.value)


def test_a_provider_that_blocks_does_not_block_others(tos: LocalTos, make_client: MakeClient) -> None:
    gate = threading.Event()

    def fetch() -> Credentials:
        gate.wait(30)
        return Credentials(AK, SK, TOKEN)

    slow, quick = make_client(cred=RefreshingCredentials(fetch)), make_client()
    waiting = [slow.get("test", f"k{number}") for number in range(20)]
    for number in range(20):
        assert quick.get("test", f"k{number}").wait().getvalue() == BODY
    assert not any(download.done for download in waiting)
    gate.set()
    for download in waiting:
        assert download.wait().getvalue() == BODY


def test_a_provider_that_never_answers_ends_at_the_deadline(make_client: MakeClient) -> None:
    gate = threading.Event()

    def fetch() -> Credentials:
        gate.wait(30)
        return Credentials(AK, SK, TOKEN)

    client = make_client(cred=RefreshingCredentials(fetch), deadline_s=0.5)
    with pytest.raises(TosTimeoutError, match="provider does not answer") as caught:
        client.get("test", "k0").wait()
    check_error(caught.value)
    gate.set()


def test_cancel_while_credentials_are_fetched(make_client: MakeClient) -> None:
    gate = threading.Event()

    def fetch() -> Credentials:
        gate.wait(30)
        return Credentials(AK, SK, TOKEN)

    client = make_client(cred=RefreshingCredentials(fetch))
    got = client.get("test", "k0")
    got.cancel()
    assert got.done
    error = got.error
    gate.set()
    assert client.get("test", "k0").wait().getvalue() == BODY
    assert got.error is error


class Odd(CredentialProvider):
    """A provider of somebody's own, with a mistake."""

    def __init__(self) -> None:
        super().__init__("ak", "sk")

    def ready(self) -> Credentials | None:
        raise KeyError("oops")


def test_a_provider_with_a_mistake_fails_its_requests_only(make_client: MakeClient) -> None:
    odd, client = make_client(cred=Odd(), max_retry_count=0), make_client()
    with pytest.raises(TosException, match="KeyError"):
        odd.get("test", "k0").wait()
    assert client.get("test", "k0").wait().getvalue() == BODY


@pytest.mark.parametrize(
    ("ak", "sk", "token", "hint"),
    [
        ("AKunknownSECRETTAIL", SK, TOKEN, "check TOS_ACCESS_KEY"),
        (AK, "wrongSECRETKEYsecretkey", TOKEN, "check the secret key and the region"),
        (AK, SK, "wrong-token", None),
    ],
)
def test_wrong_credentials_are_told_apart(
    make_client: MakeClient, ak: str, sk: str, token: str, hint: str | None
) -> None:
    client = make_client(cred=CredentialProvider(ak, sk, token))
    for ask in (
        lambda: client.get("test", "k0").wait(),
        lambda: client.list_page("test"),
        lambda: client.delete("test", "k0"),
    ):
        with pytest.raises(TosAccessError) as caught:
            ask()
        check_error(caught.value)
        if hint is not None:
            assert hint in str(caught.value)


def test_a_wrong_clock_is_named(tos: LocalTos, make_client: MakeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    client = make_client()
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 3600)
    with pytest.raises(TosAccessError, match="clock is more than 15 minutes off") as caught:
        client.get("test", "k0").wait()
    check_error(caught.value)
