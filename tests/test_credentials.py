"""Who asks: fixed keys, the environment, files that rotate, providers that hand out for a while."""

import os
import pickle
import threading
import time
from types import SimpleNamespace
from typing import Any

import pytest
import tos.credential
from secrets_shown import SECRETS, shows_no_secret

from tosnative.credential_files import Credentials
from tosnative.credentials import (
    CredentialProvider,
    EcsRoleCredentials,
    EnvironmentCredentials,
    RefreshingCredentials,
    SdkCredentials,
    as_provider,
)


def test_fixed_credentials_show_no_secret() -> None:
    provider = CredentialProvider(*SECRETS)
    assert (provider.ak, provider.sk, provider.security_token) == SECRETS
    shows_no_secret(provider, provider.current())
    assert pickle.loads(pickle.dumps(provider)).current() == provider.current()
    assert provider.rejected(provider.current()) is False


@pytest.mark.parametrize(
    ("ak", "sk", "token"), [("", "sk", None), ("ak", "", None), ("ak", "s\nk", None), ("a k", "sk", None)]
)
def test_keys_that_cannot_be_are_refused_without_showing_them(ak: str, sk: str, token: str | None) -> None:
    with pytest.raises(ValueError, match="key") as caught:
        CredentialProvider(ak, sk, token)
    assert "s\nk" not in str(caught.value)


def test_a_token_cannot_begin_another_header() -> None:
    with pytest.raises(ValueError, match="security token") as caught:
        CredentialProvider("ak", "sk", "token\r\nx-evil: 1")
    assert "evil" not in str(caught.value)


def test_a_line_end_from_a_file_is_forgiven() -> None:
    assert CredentialProvider("ak\n", " sk ", "token\n").current() == Credentials("ak", "sk", "token")


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TOS_ACCESS_KEY", "TOS_SECRET_KEY", "TOS_SECURITY_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(ValueError, match="no credentials: pass cred="):
        as_provider(None)
    monkeypatch.setenv("TOS_ACCESS_KEY", SECRETS[0])
    monkeypatch.setenv("TOS_SECRET_KEY", SECRETS[1])
    provider = as_provider(None)
    assert isinstance(provider, EnvironmentCredentials)
    shows_no_secret(provider, pickle.dumps(provider))
    first = provider.current()
    assert provider.rejected(first) is False
    monkeypatch.setenv("TOS_SECURITY_TOKEN", SECRETS[2])
    assert provider.rejected(first) is True
    assert provider.current().token == SECRETS[2]


class Source:
    """Hands out numbered credentials; counts, and can be made slow, failing or expiring."""

    def __init__(self, lives_s: float | None = 3600.0) -> None:
        self.count = 0
        self.lives_s = lives_s
        self.error: Exception | None = None
        self.gate: threading.Event | None = None

    def __call__(self) -> Credentials:
        if self.gate is not None:
            self.gate.wait(10)
        if self.error is not None:
            raise self.error
        self.count += 1
        return Credentials(f"ak{self.count}", "sk", None, None if self.lives_s is None else time.time() + self.lives_s)


def test_the_first_fetch_is_by_current_and_ready_never_blocks() -> None:
    source = Source()
    provider = RefreshingCredentials(source)
    assert provider.ready() is None
    assert source.count == 0
    assert provider.current().ak == "ak1"
    assert provider.ready() == provider.current()
    assert source.count == 1


def test_many_threads_fetch_once() -> None:
    source = Source()
    source.gate = threading.Event()
    provider = RefreshingCredentials(source)
    found: list[str] = []
    threads = [threading.Thread(target=lambda: found.append(provider.current().ak)) for _ in range(20)]
    for thread in threads:
        thread.start()
    source.gate.set()
    for thread in threads:
        thread.join()
    assert found == ["ak1"] * 20
    assert source.count == 1


def test_many_threads_whose_credentials_were_rejected_fetch_once() -> None:
    source = Source(None)
    provider = RefreshingCredentials(source)
    stale = provider.current()
    source.gate = threading.Event()
    found: list[bool] = []
    threads = [threading.Thread(target=lambda: found.append(provider.rejected(stale))) for _ in range(20)]
    for thread in threads:
        thread.start()
    source.gate.set()
    for thread in threads:
        thread.join()
    assert found == [True] * 20
    assert source.count == 2


def wait_until(condition: Any) -> None:
    """Until another thread has come so far; the test's timeout bounds it."""
    while not condition():
        threading.Event().wait(0.002)


def test_they_are_renewed_ahead_while_the_old_ones_serve() -> None:
    source = Source(lives_s=3600.0)
    provider = RefreshingCredentials(source)
    assert provider.current().ak == "ak1"
    assert provider._until - provider._renew_at == 300.0
    provider._renew_at -= 3600  # the time passes
    source.lives_s = 3600.0
    source.gate = threading.Event()
    assert provider.ready().ak == "ak1"  # type: ignore[union-attr]
    source.gate.set()
    wait_until(lambda: provider.ready().ak == "ak2")  # type: ignore[union-attr]
    assert provider.current().ak == "ak2"
    assert source.count == 2


@pytest.mark.parametrize("lives_s", [1.0, 100.0, 299.0])
def test_a_source_that_repeats_what_soon_expires_is_not_asked_at_each_request(lives_s: float) -> None:
    source = Source(lives_s)
    provider = RefreshingCredentials(source)
    provider.current()
    for _ in range(1000):
        provider.ready()
    assert source.count == 1
    lives_s = max(lives_s, 10.0)
    assert provider._until - provider._renew_at == pytest.approx(lives_s / 2)


@pytest.mark.parametrize("lives_s", [-3600.0, 0.0])
def test_what_is_handed_out_as_expired_is_for_the_service_to_judge(lives_s: float) -> None:
    """This machine's clock is ahead, say: that must not ask the source again and again."""
    source = Source(lives_s)
    provider = RefreshingCredentials(source)
    for _ in range(100):
        assert provider.current().ak == "ak1"
        assert provider.ready() is not None
    assert source.count == 1


def test_a_renewal_that_fails_ahead_of_time_is_not_tried_at_each_request() -> None:
    source = Source(lives_s=3600.0)
    provider = RefreshingCredentials(source)
    provider.current()
    tries = 0

    def fail() -> Credentials:
        nonlocal tries
        tries += 1
        raise RuntimeError("the metadata service is down")

    provider._fetch = fail
    provider._renew_at = 0.0
    provider.ready()
    wait_until(lambda: provider._renew_at > 0 and not provider._renewing)
    for _ in range(1000):
        provider.ready()
    assert tries == 1


def test_a_renewal_that_fails_ahead_of_time_is_no_failure_yet() -> None:
    source = Source(lives_s=100.0)
    provider = RefreshingCredentials(source)
    first = provider.current()
    source.error = RuntimeError("the metadata service is down")
    assert provider.ready() == first
    assert provider.current() == first
    provider._until = time.time() - 1  # the time passes
    assert provider.ready() is None
    with pytest.raises(RuntimeError, match="metadata"):
        provider.current()
    source.error, source.lives_s = None, 3600.0
    assert provider.current().ak == "ak2"


def fetch_by_name() -> Credentials:
    return Credentials("fetched", "sk-very-secret")


def test_a_refreshing_provider_pickles_as_its_recipe() -> None:
    provider = RefreshingCredentials(fetch_by_name)
    provider.current()
    data = pickle.dumps(provider)
    shows_no_secret(data)
    assert b"sk-very-secret" not in data
    copy = pickle.loads(data)
    assert copy.ready() is None
    assert copy.current().ak == "fetched"


def test_in_a_forked_child_a_lock_that_was_held_is_new() -> None:
    source = Source()
    provider = RefreshingCredentials(source)
    provider.current()
    provider._lock.acquire()
    pid = os.fork()
    if pid == 0:  # the child
        fine = provider.ready().ak == "ak1" and provider.rejected(provider.current())  # type: ignore[union-attr]
        os._exit(0 if fine else 1)
    provider._lock.release()
    assert os.waitpid(pid, 0)[1] == 0


def test_a_provider_of_the_sdk() -> None:
    sdk = tos.credential.StaticCredentialsProvider(*SECRETS)
    provider = as_provider(sdk)
    assert isinstance(provider, SdkCredentials)
    assert provider.current().ak == SECRETS[0]
    assert provider.current().token == SECRETS[2]
    shows_no_secret(provider)


def sdk_by_name() -> Any:
    return tos.credential.StaticCredentialsProvider("ak", "sk-very-secret")


def test_a_function_that_makes_a_provider_of_the_sdk_pickles_without_secrets() -> None:
    provider = SdkCredentials(sdk_by_name)
    assert provider.current().sk == "sk-very-secret"
    data = pickle.dumps(provider)
    assert b"sk-very-secret" not in data
    assert pickle.loads(data).current().ak == "ak"


def test_an_ecs_role_is_looked_up_by_the_sdk_and_pickles_as_its_name() -> None:
    provider = EcsRoleCredentials("trainer")
    assert provider.ready() is None
    assert b"trainer" in pickle.dumps(provider)
    with pytest.raises(ValueError, match="role"):
        EcsRoleCredentials("")


def test_what_a_user_may_pass() -> None:
    fixed = CredentialProvider("ak", "sk")
    assert as_provider(fixed) is fixed
    assert as_provider(SimpleNamespace(ak="ak", sk="sk", token="t")).current() == Credentials("ak", "sk", "t")
    assert as_provider(SimpleNamespace(ak="ak", sk="sk", security_token="t")).current().token == "t"
    with pytest.raises(TypeError, match="not tuple"):
        as_provider(("ak", "sk"))
