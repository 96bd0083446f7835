"""Clients with short timeouts against a local TOS, and a check that nothing shows a secret."""

import logging
import pickle
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tosnative.client import TosClient
from tosnative.config import ConnectionOptions, TosClientConfig
from tosnative.errors import TosException
from tosnative.testing import LocalTos

AK, SK, TOKEN = "AKIDvisibleSECRETTAIL", "SECRETKEYsecretkey", "SECRETTOKENtoken"
SECRETS = ("SECRETTAIL", SK, TOKEN, "Signature=", "TOS4-HMAC")

MakeClient = Callable[..., TosClient]


def holds_no_secret(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


def check_error(error: BaseException) -> None:
    """Nothing that a user can see of an error holds a secret, and it names what it is about."""
    copy = pickle.loads(pickle.dumps(error))
    shown = [repr(error), str(error), repr(copy), str(copy), "".join(traceback.format_exception(error))]
    assert all(map(holds_no_secret, shown)), shown
    assert holds_no_secret(pickle.dumps(error).decode("latin-1"))
    assert type(copy) is type(error)
    if isinstance(error, TosException):
        assert error.error.bucket
        assert "\n" not in str(error)


@pytest.fixture
def tos() -> Iterator[LocalTos]:
    with LocalTos(bucket="test", ak=AK, sk=SK, token=TOKEN) as server:
        yield server


@pytest.fixture
def make_client(tos: LocalTos) -> Iterator[MakeClient]:
    """make_client(deadline_s=..., first_byte_timeout_s=...): fields of either configuration class, in one call."""
    made = []

    def make(server: LocalTos = tos, cred: object = None, endpoint: str | None = None, **settings: Any) -> TosClient:
        of_connection = {n: settings.pop(n) for n in list(settings) if n in ConnectionOptions.__dataclass_fields__}
        config = TosClientConfig(connection=ConnectionOptions(**of_connection), **settings)
        client = TosClient(
            endpoint=endpoint or server.endpoint, region=server.region, cred=cred or server.cred, config=config
        )
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


@pytest.fixture
def client(make_client: MakeClient) -> TosClient:
    return make_client()


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, logger="tosnative")
    caplog.set_level(logging.DEBUG, logger="urllib3")
    caplog.set_level(logging.DEBUG, logger="tos")
    yield
    for record in caplog.records:
        assert holds_no_secret(record.getMessage()), record
