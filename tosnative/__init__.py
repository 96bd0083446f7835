"""tosnative: PyTorch datasets and checkpoints straight from TOS, in pure Python.

Names are imported when they are first used, so that `import tosnative` costs next to nothing and torch is imported only where a
torch name is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tosnative.checkpoint import TosCheckpoint
    from tosnative.config import ConnectionOptions, ReaderType, TosClientConfig
    from tosnative.credential_files import Credentials
    from tosnative.credentials import (
        CredentialProvider,
        EcsRoleCredentials,
        EnvironmentCredentials,
        FileCredentials,
        RefreshingCredentials,
        SdkCredentials,
    )
    from tosnative.datasets import TosIterableDataset, TosMapDataset
    from tosnative.dcp import TosStorageReader, TosStorageWriter
    from tosnative.errors import (
        TosAbortedError,
        TosAccessError,
        TosChangedError,
        TosConnectionError,
        TosError,
        TosException,
        TosExistsError,
        TosIntegrityError,
        TosNotFoundError,
        TosOutcomeUnknownError,
        TosTimeoutError,
        TosUnavailableError,
    )
    from tosnative.lightning import TosLightningCheckpoint
    from tosnative.logs import init_log, init_logs
    from tosnative.meta import TosObjectMeta
    from tosnative.metrics import get_metrics
    from tosnative.reader import TosObjectReader
    from tosnative.uri import parse_tos_url
    from tosnative.writer import TosObjectWriter

__all__ = [
    "ConnectionOptions",
    "CredentialProvider",
    "Credentials",
    "EcsRoleCredentials",
    "EnvironmentCredentials",
    "FileCredentials",
    "ReaderType",
    "RefreshingCredentials",
    "SdkCredentials",
    "TosAbortedError",
    "TosAccessError",
    "TosChangedError",
    "TosCheckpoint",
    "TosClientConfig",
    "TosConnectionError",
    "TosError",
    "TosException",
    "TosExistsError",
    "TosIntegrityError",
    "TosIterableDataset",
    "TosLightningCheckpoint",
    "TosMapDataset",
    "TosNotFoundError",
    "TosObjectMeta",
    "TosObjectReader",
    "TosObjectWriter",
    "TosOutcomeUnknownError",
    "TosStorageReader",
    "TosStorageWriter",
    "TosTimeoutError",
    "TosUnavailableError",
    "get_metrics",
    "init_log",
    "init_logs",
    "parse_tos_url",
]

_ERRORS = frozenset(name for name in __all__ if name.endswith(("Error", "Exception")))
_MODULES = {
    "ConnectionOptions": "config",
    "Credentials": "credential_files",
    "ReaderType": "config",
    "TosCheckpoint": "checkpoint",
    "TosClientConfig": "config",
    "TosIterableDataset": "datasets",
    "TosLightningCheckpoint": "lightning",
    "TosMapDataset": "datasets",
    "TosObjectMeta": "meta",
    "TosObjectReader": "reader",
    "TosObjectWriter": "writer",
    "TosStorageReader": "dcp",
    "TosStorageWriter": "dcp",
    "init_log": "logs",
    "init_logs": "logs",
    "get_metrics": "metrics",
    "parse_tos_url": "uri",
}


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'tosnative' has no attribute {name!r}")
    module = "errors" if name in _ERRORS else _MODULES.get(name, "credentials")
    value = globals()[name] = getattr(importlib.import_module(f"tosnative.{module}"), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
