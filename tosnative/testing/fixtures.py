"""Pytest fixtures over a local TOS; the plugin is installed with the package and costs nothing until it is used."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tosnative.testing.local import LocalTos


@pytest.fixture
def local_tos() -> Iterator[LocalTos]:
    """A local TOS of the test's own, with the empty bucket "test"."""
    from tosnative.testing.local import LocalTos  # noqa: PLC0415 - pytest loads this file in every run of every project

    with LocalTos(bucket="test") as tos:
        yield tos


@pytest.fixture(scope="session")
def local_tos_session() -> Iterator[LocalTos]:
    """One local TOS for the whole session, with the bucket "test"; tests share what it holds."""
    from tosnative.testing.local import LocalTos  # noqa: PLC0415 - as above

    with LocalTos(bucket="test") as tos:
        yield tos


@pytest.fixture
def tos_env(local_tos: LocalTos, monkeypatch: pytest.MonkeyPatch) -> LocalTos:
    """`local_tos`, with the environment variables by which clients find it and its credentials."""
    for name, value in local_tos.environ().items():
        monkeypatch.setenv(name, value)
    return local_tos
