"""The keywords of datasets, declared once, and what becomes of them."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from tosnative.client import TosClient
from tosnative.config import ReaderType, TosClientConfig

if TYPE_CHECKING:
    from tosnative.reader import TosObjectReader
    from tosnative.sharding import Sharding, Uneven

__all__ = [
    "ConnectionKeywords",
    "DatasetKeywords",
    "IterableKeywords",
    "SampleOptions",
    "check_keywords",
    "make_client",
]


class ConnectionKeywords(TypedDict, total=False):
    """How the service is reached.

    region, endpoint: each is inferred from the other, and both from TOS_REGION and TOS_ENDPOINT.
    cred: a CredentialProvider, a provider of the official SDK, or None for the environment. client_conf: the settings.
    enable_crc: compare CRC64 of what is read with the service's; None takes the settings' word.
    use_native_client: accepted, without meaning. cloud_type, service_name, idc, cluster, addr_family: concern a private
    cloud that is not served here; accepted, with a warning.
    """

    region: str | None
    endpoint: str | None
    cred: object | None
    client_conf: TosClientConfig | None
    enable_crc: bool | None
    use_native_client: bool
    cloud_type: str | None
    service_name: str | None
    idc: str | None
    cluster: str | None
    addr_family: str | None


class DatasetKeywords(ConnectionKeywords, total=False):
    """What becomes of each object.

    transform: called with the object's TosObjectReader, returns the sample; without it the reader is the sample.
    reader_type, buffer_size: the readers' kind (ReaderType.SEQUENTIAL) and the bytes of their window.
    prefetch_concurrency: objects in flight; 0 adapts to latency and bandwidth, 1 fetches each when it is wanted, n is
    n.
    pin: "listing" makes it an error that an object is no longer the version that was listed; None reads what is there.
    on_error: "skip" leaves out objects that are gone, changed or damaged, with a warning in the log, and counts them in
    `skipped`; "raise" raises.
    """

    transform: Callable[[TosObjectReader], Any]
    reader_type: ReaderType | None
    buffer_size: int | None
    prefetch_concurrency: int
    pin: Literal["listing"] | None
    on_error: Literal["raise", "skip"]


class IterableKeywords(DatasetKeywords, total=False):
    """Which samples come, and in which order.

    sharding: None or False gives every rank all samples; True splits them over the ranks of the default process group,
    (rank, world), a ProcessGroup or one dimension of a DeviceMesh over theirs. DataLoader workers always split.
    uneven: "exact" gives every sample once, "drop" and "pad" give every rank equally many (see `sharding.equalise`).
    shuffle, seed: shuffle by seed and epoch (see `set_epoch`); all ranks need the same seed.
    """

    sharding: Sharding
    uneven: Uneven
    shuffle: bool
    seed: int


_PRIVATE_CLOUD = ("cloud_type", "service_name", "idc", "cluster", "addr_family")


def check_keywords(owner: str, keywords: Mapping[str, object], allowed: type) -> None:
    """Raises: TypeError for a keyword that is not declared in the TypedDict `allowed`, or in one that it extends."""
    for name in keywords:
        if name not in allowed.__annotations__:
            raise TypeError(f"{owner} got an unexpected keyword argument {name!r}")


def make_client(keywords: ConnectionKeywords) -> TosClient:
    """The client for these keywords. Raises: ValueError where something is missing or contradictory."""
    ignored = [name for name in _PRIVATE_CLOUD if keywords.get(name) is not None]
    if ignored:
        warnings.warn(f"{', '.join(ignored)}: private clouds are not served; ignored", stacklevel=_callers_level())
    config = keywords.get("client_conf") or TosClientConfig()
    enable_crc = keywords.get("enable_crc")
    return TosClient(
        region=keywords.get("region") or None,
        endpoint=keywords.get("endpoint") or None,
        cred=keywords.get("cred"),
        config=config if enable_crc is None else config.with_crc(enable_crc),
    )


def _callers_level() -> int:
    """The `stacklevel` by which the function that asks makes a warning point at the code that called this library."""
    frame, level = sys._getframe(1), 1
    package = __name__.partition(".")[0] + "."
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(package):
        frame, level = frame.f_back, level + 1
    return level


def identity(reader: TosObjectReader) -> TosObjectReader:
    """The transform of a dataset that was given none."""
    return reader


@dataclass(frozen=True)
class SampleOptions:
    """How objects become samples: the fields of DatasetKeywords, checked."""

    transform: Callable[[TosObjectReader], Any] = identity
    reader_type: ReaderType | None = None
    buffer_size: int | None = None
    prefetch_concurrency: int = 0
    pin: Literal["listing"] | None = None
    on_error: Literal["raise", "skip"] = "raise"

    def __post_init__(self) -> None:
        if not callable(self.transform):
            raise TypeError(f"transform must be callable with a TosObjectReader, not {self.transform!r}")
        if self.prefetch_concurrency < 0:
            raise ValueError(f"prefetch_concurrency must be 0 (automatic) or more, not {self.prefetch_concurrency}")
        if self.buffer_size is not None and self.buffer_size < 1:
            raise ValueError(f"buffer_size must be at least 1 byte, not {self.buffer_size}")
        if self.pin not in (None, "listing"):
            raise ValueError(f"pin must be None or 'listing', not {self.pin!r}")
        if self.on_error not in ("raise", "skip"):
            raise ValueError(f"on_error must be 'raise' or 'skip', not {self.on_error!r}")

    @staticmethod
    def from_keywords(keywords: Mapping[str, Any]) -> SampleOptions:
        return SampleOptions(
            **{
                name: keywords[name]
                for name in DatasetKeywords.__annotations__
                if name in keywords and name not in ConnectionKeywords.__annotations__
            }
        )
