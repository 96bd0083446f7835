"""Credentials from STS for a projected OIDC token (Kubernetes), through the official SDK's provider, over TLS."""

from __future__ import annotations

import http.server
import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
import tos.credential
from conftest import AK, SECRETS, SK, TOKEN, MakeClient, check_error
from http_service import Answering, running

from tosnative.credentials import SdkCredentials
from tosnative.errors import TosAccessError
from tosnative.testing import LocalTos
from tosnative.testing.certificates import self_made
from tosnative.testing.faults import Action

pytestmark = pytest.mark.skipif(
    not hasattr(tos.credential, "OIDCCredentialsProvider"), reason="this version of the SDK has no such provider"
)
STALE = "STALEtoken"


class Sts(Answering):
    """Answers AssumeRoleWithOIDC: `stale` times with a token that the service will reject, then with the right one."""

    def do_POST(self) -> None:
        server: Any = self.server
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        server.asked.append(form)
        told = {
            "AccessKeyId": AK,
            "SecretAccessKey": SK,
            "SessionToken": STALE if len(server.asked) <= server.stale else TOKEN,
            "Expiration": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 3600)),
        }
        known = form["OIDCToken"] == ["projected"]
        answer = {"Result": {"Credentials": told}} if known else {"ResponseMetadata": {"Error": {"Code": "NoSuchRole"}}}
        body = json.dumps(answer).encode()
        self.answer(200 if known else 403, body)


@pytest.fixture
def sts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    made = self_made(tmp_path, [])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(made.chain, made.key)
    server: Any = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Sts)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    server.asked, server.stale = [], 0
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(made.ca_bundle))
    monkeypatch.setenv("VOLCENGINE_OIDC_ROLE_TRN", "trn:iam::1:role/trainer")
    monkeypatch.setenv("VOLCENGINE_OIDC_TOKEN_FILE", str(tmp_path / "token"))
    monkeypatch.setenv("VOLCENGINE_OIDC_STS_ENDPOINT", f"https://127.0.0.1:{server.server_port}")
    (tmp_path / "token").write_text("projected")
    server.token_file = tmp_path / "token"
    with running(server):
        yield server


def test_a_projected_token_becomes_credentials(tos: LocalTos, make_client: MakeClient, sts: Any) -> None:
    tos.put("test", "k", b"body")
    provider = SdkCredentials(tos_oidc)
    client = make_client(cred=provider)
    assert client.get("test", "k").wait().getvalue() == b"body"
    assert client.head("test", "k").size == 4
    assert len(sts.asked) == 1
    assert not any(secret in repr(provider) for secret in SECRETS)


def test_a_token_that_is_rejected_early_is_fetched_anew(tos: LocalTos, make_client: MakeClient, sts: Any) -> None:
    def hook(request: Any) -> Action | None:
        return Action(expired_token=True) if request.headers.get("x-tos-security-token") == STALE else None

    tos.put("test", "k", b"body")
    tos.faults.set_hook(hook)
    sts.stale = 1
    client = make_client(cred=SdkCredentials(tos_oidc))
    batch = [client.download("test", "k") for _ in range(50)]
    client.submit(batch)
    assert all(download.wait().getvalue() == b"body" for download in batch)
    assert len(sts.asked) == 2


def test_a_refusal_of_sts_is_an_access_error(make_client: MakeClient, sts: Any) -> None:
    sts.token_file.write_text("another")
    with pytest.raises(TosAccessError, match="the credential provider failed") as caught:
        make_client(cred=SdkCredentials(tos_oidc), max_retry_count=0).get("test", "k").wait()
    check_error(caught.value)
    assert "another" not in str(caught.value)


def tos_oidc() -> Any:
    """Made in each process; reads what the environment says."""
    return tos.credential.OIDCCredentialsProvider()
