"""An interpreter that exits with transfers in flight."""

import os
import subprocess
import sys
from typing import Any

import pytest

from tosnative.testing import LocalTos


@pytest.fixture
def tos() -> Any:
    with LocalTos(bucket="test", process=True) as server:
        server.put("test", "k3", os.urandom(3000))
        yield server


FETCH = """
from tosnative.client import TosClient
from tosnative.credentials import CredentialProvider
client = TosClient(endpoint={endpoint!r}, region={region!r}, cred=CredentialProvider({ak!r}, {sk!r}))
batch = [client.download("test", "k3") for _ in range(50)]
client.submit(batch)
batch[0].wait()
"""
LEFT = """
from tosnative import CredentialProvider, TosIterableDataset
stream = iter(TosIterableDataset.from_urls(
    ["tos://test/k3"] * 500, endpoint={endpoint!r}, region={region!r}, cred=CredentialProvider({ak!r}, {sk!r})
))
next(stream)
"""


@pytest.mark.parametrize("code", [FETCH, pytest.param(LEFT, id="an iterator is left in the middle")])
def test_an_exiting_interpreter_neither_hangs_nor_complains(tos: LocalTos, code: str) -> None:
    """Also where what is in flight is dropped by the very end, when no thread can run any more."""
    if code is LEFT:
        pytest.importorskip("torch")
    done = subprocess.run(
        [
            sys.executable,
            *("-W", "error", "-W", "ignore:invalid escape sequence", "-X", "dev", "-c"),
            code.format(endpoint=tos.endpoint, region=tos.region, ak=tos.ak, sk=tos.sk),
        ],
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
