"""Credentials from files that rotate, from the instance's role and from STS, all the way to the service."""

import http.server
import json
import os
import pickle
import time
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import tos.credential
from conftest import AK, SECRETS, SK, TOKEN, MakeClient, check_error
from http_service import Answering, running

from tosnative.credentials import (
    Credentials,
    EcsRoleCredentials,
    FileCredentials,
    RefreshingCredentials,
    SdkCredentials,
)
from tosnative.errors import TosAccessError
from tosnative.testing import LocalTos
from tosnative.testing.faults import Action

BODY = b"body" * 100
STALE = "STALEtoken"


@pytest.fixture(autouse=True)
def objects(tos: LocalTos) -> None:
    for number in range(100):
        tos.put("test", f"k{number}", BODY)

    def hook(request: Any) -> Action | None:
        return Action(expired_token=True) if request.headers.get("x-tos-security-token") == STALE else None

    tos.faults.set_hook(hook)


class Metadata(Answering):
    """What an instance's metadata service answers: `broken` times nothing of use, `stale` times a stale token, then the right."""

    def do_GET(self) -> None:
        server: Any = self.server
        server.asked.append(self.path)
        token = STALE if len(server.asked) <= server.stale else TOKEN
        expires = (datetime.now() + timedelta(hours=6)).strftime("%Y-%m-%dT%H:%M:%S+08:00")
        answer = {"AccessKeyId": AK, "SecretAccessKey": SK, "SessionToken": token, "ExpiredTime": expires}
        broken = len(server.asked) <= server.broken
        body = b"<html>" if broken else json.dumps(answer).encode()
        self.answer(500 if broken else 200, body)


@pytest.fixture
def metadata(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Metadata)
    server.asked, server.stale, server.broken = [], 0, 0
    monkeypatch.setattr(
        tos.credential.EcsCredentialsProvider, "ecs_url", f"http://127.0.0.1:{server.server_port}/roles/{{}}"
    )
    with running(server):
        yield server


def read_all(client: Any) -> None:
    batch = [client.download("test", f"k{number}") for number in range(100)]
    client.submit(batch)
    for download in batch:
        assert download.wait().getvalue() == BODY
    assert client.head("test", "k0").size == len(BODY)


def test_the_role_of_the_instance(make_client: MakeClient, metadata: Any) -> None:
    provider = EcsRoleCredentials("trainer")
    read_all(make_client(cred=provider))
    assert metadata.asked == ["/roles/trainer"]
    shown = [repr(provider), pickle.dumps(provider).decode("latin-1")]
    assert not any(secret in text for secret in SECRETS for text in shown)
    read_all(make_client(cred=pickle.loads(pickle.dumps(provider))))


def test_a_role_whose_token_is_rejected_before_its_time_is_asked_for_anew(
    make_client: MakeClient, metadata: Any
) -> None:
    metadata.stale = 1
    read_all(make_client(cred=EcsRoleCredentials("trainer")))
    assert len(metadata.asked) == 2, "once for the process, though a hundred requests were rejected"


def test_an_instance_without_the_role_is_named_without_what_was_answered(
    make_client: MakeClient, metadata: Any
) -> None:
    metadata.broken = 10**9
    client = make_client(cred=EcsRoleCredentials("trainer"), max_retry_count=0)
    with pytest.raises(TosAccessError, match="the credential provider failed") as caught:
        client.get("test", "k0").wait()
    check_error(caught.value)
    metadata.broken = 0
    read_all(client)


@pytest.mark.parametrize("plane", ["data", "control"])
def test_a_metadata_service_that_is_busy_for_a_moment_fails_nothing(
    make_client: MakeClient, metadata: Any, plane: str
) -> None:
    metadata.broken = 3
    client = make_client(cred=EcsRoleCredentials("trainer"))
    if plane == "control":
        assert client.head("test", "k0").size == len(BODY)
    read_all(client)
    assert 4 <= len(metadata.asked) <= 6


def test_tokens_of_sts_through_the_sdk(make_client: MakeClient) -> None:
    fetched = []

    def fetch() -> Any:
        fetched.append(1)
        return tos.credential.FederationToken(AK, SK, TOKEN, time.time() + 3600)

    read_all(make_client(cred=tos.credential.FederationCredentials(fetch)))
    assert len(fetched) == 1


def test_a_token_of_sts_that_is_rejected_is_fetched_anew_where_the_provider_can_be_made(
    make_client: MakeClient,
) -> None:
    served = iter([STALE, TOKEN])

    def make() -> Any:
        return tos.credential.FederationCredentials(
            lambda: tos.credential.FederationToken(AK, SK, next(served), time.time() + 3600)
        )

    read_all(make_client(cred=SdkCredentials(make)))
    assert next(served, None) is None


def test_a_provider_that_only_repeats_itself_is_one_refusal(make_client: MakeClient) -> None:
    with pytest.raises(TosAccessError, match="use a provider that refreshes it") as caught:
        make_client(cred=tos.credential.StaticCredentialsProvider(AK, SK, STALE)).get("test", "k0").wait()
    check_error(caught.value)


def test_a_file_that_rotates_loses_no_request(make_client: MakeClient, tmp_path: Path) -> None:
    path = tmp_path / "credentials"

    def write(token: str) -> None:
        fresh = tmp_path / "fresh"
        fresh.write_text(json.dumps({"ak": AK, "sk": SK, "token": token}))
        os.replace(fresh, path)

    write(STALE)
    client = make_client(cred=FileCredentials(path))
    write(TOKEN)
    read_all(client)
    write(STALE)
    read_all(client)  # not looked at yet, and what is in use still serves


def test_a_file_that_is_half_written_when_the_token_is_rejected_is_looked_at_again(
    make_client: MakeClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "credentials"
    path.write_text(json.dumps({"ak": AK, "sk": SK, "token": STALE}))
    client = make_client(cred=FileCredentials(path))
    text = json.dumps({"ak": AK, "sk": SK, "token": TOKEN})
    path.write_text(text[:40])
    monkeypatch.setattr("tosnative.credentials.time.sleep", lambda seconds: path.write_text(text))
    read_all(client)


def test_a_file_that_stays_half_written_is_an_access_error(make_client: MakeClient, tmp_path: Path) -> None:
    path = tmp_path / "credentials"
    path.write_text(json.dumps({"ak": AK, "sk": SK, "token": STALE}))
    client = make_client(cred=FileCredentials(path), max_retry_count=0)
    path.write_text(f'{{"ak": "{AK}", "sk": "{SK}')
    with pytest.raises(TosAccessError, match=r"the credential provider failed \(ValueError\)") as caught:
        client.get("test", "k0").wait()
    check_error(caught.value)


def test_a_provider_made_by_a_function_is_made_anew_in_a_forked_child() -> None:
    made = []

    def make() -> Any:
        made.append(os.getpid())
        return tos.credential.StaticCredentialsProvider(AK, SK)

    provider = SdkCredentials(make)
    provider.current()
    pid = os.fork()
    if pid == 0:  # the child; renewing must not go through what a lost thread may have locked
        provider._check_process()
        provider._fixed = None
        os._exit(0 if provider.current().ak == AK and made[-1] == os.getpid() else 1)
    assert os.waitpid(pid, 0)[1] == 0


def test_credentials_that_this_clock_calls_expired_are_tried_and_the_provider_is_not_hammered(
    make_client: MakeClient,
) -> None:
    count = 0

    def fetch() -> Credentials:
        nonlocal count
        count += 1
        return Credentials(AK, SK, TOKEN, time.time() - 3600)

    read_all(make_client(cred=RefreshingCredentials(fetch)))
    assert count == 1


def test_a_wrong_clock_is_named_on_both_planes(tos: LocalTos, make_client: MakeClient) -> None:
    tos.faults.add(status=403, code="RequestTimeTooSkewed")
    client = make_client()
    for ask in (
        lambda: client.get("test", "k0").wait(),
        lambda: client.put("test", "k0", BODY).wait(),
        lambda: client.list_page("test"),
        lambda: client.head("test", "k0"),
        lambda: client.copy("test", "k0", "test", "k1"),
    ):
        with pytest.raises(TosAccessError, match="clock is more than 15 minutes off") as caught:
            ask()
        check_error(caught.value)


def test_a_token_that_expired_is_replaced_where_nothing_is_retried(make_client: MakeClient) -> None:
    served = iter([STALE, TOKEN])
    read_all(make_client(cred=RefreshingCredentials(lambda: Credentials(AK, SK, next(served))), max_retry_count=0))
