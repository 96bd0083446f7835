"""TosCheckpoint: readers and writers for torch.load, torch.save and anything else that takes a file."""

from __future__ import annotations

from types import TracebackType
from typing import TYPE_CHECKING

from tosnative.config import ReaderType, TosClientConfig
from tosnative.options import make_client
from tosnative.reader import TosObjectReader
from tosnative.uri import check_key, parse_uri
from tosnative.writer import TosObjectWriter

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["TosCheckpoint"]


class TosCheckpoint:
    """Opens objects by URL, for reading and for writing. Makes no connection before the first byte moves; pickles.

        store = TosCheckpoint("cn-beijing")
        with store.writer("tos://bucket/model.pt") as writer:
            torch.save(model.state_dict(), writer)
        with store.reader("tos://bucket/model.pt") as reader:
            model.load_state_dict(torch.load(reader))

    region, endpoint: each is inferred from the other, and both from TOS_REGION and TOS_ENDPOINT.
    cred: a CredentialProvider, a provider of the official SDK, or None for the environment. client_conf: the settings.
    enable_crc: compare CRC64 of all bytes with the service's; None takes the settings' word.
    use_native_client: accepted, without meaning. cloud_type, service_name, idc, cluster, addr_family: concern a private cloud
    that is not served here; accepted, with a warning.
    Raises: ValueError where something is missing or contradictory.
    """

    def __init__(
        self,
        region: str | None = "",
        endpoint: str | None = None,
        cred: object | None = None,
        client_conf: TosClientConfig | None = None,
        use_native_client: bool = True,
        enable_crc: bool | None = None,
        cloud_type: str | None = None,
        service_name: str | None = None,
        idc: str | None = None,
        cluster: str | None = None,
        addr_family: str | None = None,
    ) -> None:
        self._client = make_client(
            {
                "region": region,
                "endpoint": endpoint,
                "cred": cred,
                "client_conf": client_conf,
                "enable_crc": enable_crc,
                "cloud_type": cloud_type,
                "service_name": service_name,
                "idc": idc,
                "cluster": cluster,
                "addr_family": addr_family,
            }
        )
        self._closed = False

    def __repr__(self) -> str:
        return f"TosCheckpoint({self._client.endpoint.url})"

    def reader(
        self, url: str, reader_type: ReaderType | None = None, buffer_size: int | None = None
    ) -> TosObjectReader:
        """A file on the object at `url` (tos://bucket/key), open for reading. An absent object is noticed at the first read.

        reader_type: SEQUENTIAL where it is None, right for torch.load. buffer_size: bytes of a RANGED reader's window.
        Raises: ValueError for what is no object's URL, or after close().
        """
        bucket, key = self._locate(url)
        return TosObjectReader(self._client, bucket, key, reader_type=reader_type, buffer_size=buffer_size)

    def writer(self, url: str, size_hint: int | None = None) -> TosObjectWriter:
        """A file that becomes the object at `url` when it is closed without an error; see TosObjectWriter.

        size_hint: about how many bytes will be written; it matters from tens of GiB on.
        Raises: ValueError for what is no object's URL, or after close().
        """
        bucket, key = self._locate(url)
        return TosObjectWriter(self._client, bucket, key, size_hint=size_hint)

    def _locate(self, url: str) -> tuple[str, str]:
        if self._closed:
            raise ValueError("this TosCheckpoint is closed")
        bucket, key = parse_uri(url)
        return bucket, check_key(bucket, key)

    def close(self) -> None:
        """No more readers and writers; those that are open stay usable. Idempotent."""
        if not self._closed:
            self._closed = True
            self._client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
