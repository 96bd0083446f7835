"""TosClient: one face over the two ways to reach the service.

Bytes go through the engine (`download`, `upload_part`, `put`, listings), everything else through the official SDK. Callers hold
transfers and wait on them; how they are retried, resumed, raced and checked is settled below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tosnative.completion import complete_upload
from tosnative.config import TosClientConfig, proxy_for, resolve_endpoint, with_environment
from tosnative.credentials import CredentialProvider, as_provider
from tosnative.deletion import MOST_AT_ONCE, delete_objects
from tosnative.errors import TosAccessError, TosError, TosException, TosNotFoundError
from tosnative.meta import TosObjectMeta
from tosnative.pages import ListPage, UploadInfo, no_listing, parse_page
from tosnative.room import Rooms
from tosnative.uri import check_bucket, check_key
from tosnative.wire.budget import Budget
from tosnative.wire.control import Control
from tosnative.wire.download import Download
from tosnative.wire.engine import ENGINE
from tosnative.wire.process import PerProcess
from tosnative.wire.query import Query
from tosnative.wire.signing import Signer, canonical_query
from tosnative.wire.targets import Target, make_target
from tosnative.wire.transfer import Transfer
from tosnative.wire.upload import Upload, write_headers

if TYPE_CHECKING:
    from typing_extensions import Self

    from tosnative.endpoint import Endpoint

__all__ = ["Budget", "Download", "ListPage", "Query", "TosClient", "Transfer", "Upload", "UploadInfo", "parse_page"]

_budgets: PerProcess[dict[int, Budget]] = PerProcess(dict)


class TosClient:
    """See the module. Cheap to make: no thread and no socket before the first request. Pickles as its recipe.

    region, endpoint: each is inferred from the other, or taken from TOS_REGION and TOS_ENDPOINT.
    cred: a CredentialProvider, a provider of the official SDK, anything with `ak` and `sk`; None takes the environment.
    Raises: ValueError where something is missing or contradictory.
    """

    def __init__(
        self,
        *,
        region: str | None = None,
        endpoint: str | None = None,
        cred: object | None = None,
        config: TosClientConfig | None = None,
    ) -> None:
        self.config = config or TosClientConfig()
        self.endpoint: Endpoint = resolve_endpoint(endpoint, region)
        self.provider: CredentialProvider = as_provider(cred)
        self._settled = replace(self.config, connection=with_environment(self.config.connection))  # not pickled
        self._proxy = proxy_for(self.endpoint, self.config.connection)
        self._control = Control(self.endpoint, self.provider, self._settled, self._proxy)
        self._signer = Signer(self.endpoint.region)
        self._targets: dict[str, Target] = {}
        self.rooms = Rooms(self.config.memory_budget_bytes)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.endpoint.url, self.endpoint.region, self.provider, self.config)

    def __repr__(self) -> str:
        return f"TosClient({self.endpoint.url}, region={self.endpoint.region!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the control plane's connections; the engine's are shared, and end when nobody uses them. Idempotent."""
        self.rooms.clear()
        self._control.close()

    @property
    def budget(self) -> Budget:
        """The byte budget that all clients of this process with the same limit share."""
        budgets, limit = _budgets.get(), self.config.memory_budget_bytes
        return budgets.get(limit) or budgets.setdefault(limit, Budget(limit))

    # -- the data plane

    def _target(self, bucket: str) -> Target:
        found = self._targets.get(bucket)
        if found is None:
            found = self._targets[bucket] = make_target(
                self.endpoint, self.provider, self._signer, self._settled, self._proxy, check_bucket(bucket)
            )
        return found

    def download(
        self,
        bucket: str,
        key: str,
        start: int = 0,
        stop: int | None = None,
        *,
        into: memoryview | None = None,
        etag: str | None = None,
        check_crc: bool | None = None,
    ) -> Download:
        """A GET of the bytes [start, stop), not yet submitted; see Download. into: where they go, of stop - start bytes."""
        if not key:
            check_key(bucket, key)
        check = self.config.enable_crc if check_crc is None else check_crc
        target = self._targets.get(bucket) or self._target(bucket)
        return Download(target, bucket, key, start, stop, into, etag, check)

    def submit(self, transfers: Iterable[Transfer]) -> None:
        """Hand transfers to the engine, in order."""
        ENGINE.get().submit(transfers)

    def get(self, bucket: str, key: str, start: int = 0, stop: int | None = None, **options: Any) -> Download:
        """`download`, submitted."""
        download = self.download(bucket, key, start, stop, **options)
        self.submit((download,))
        return download

    def put(
        self,
        bucket: str,
        key: str,
        data: bytes | bytearray | memoryview | Sequence[memoryview],
        *,
        crc64: int | None = None,
        content_type: str | None = None,
        forbid_overwrite: bool = False,
        submit: bool = True,
    ) -> Upload:
        """A PUT of a whole object (at most 5 GiB), submitted unless told not to. `data` must stay as it is until done."""
        signed = write_headers(content_type, forbid_overwrite)
        check_key(bucket, key)
        upload = Upload(self._target(bucket), bucket, key, data, crc64, "", signed or None)
        if submit:
            self.submit((upload,))
        return upload

    def upload_part(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        number: int,
        data: memoryview | Sequence[memoryview],
        crc64: int | None = None,
        submit: bool = True,
    ) -> Upload:
        """As `put`, of part `number` (1 to 10,000) of a multipart upload."""
        query = canonical_query({"partNumber": str(number), "uploadId": upload_id})
        upload = Upload(self._target(bucket), bucket, key, data, crc64, query)
        if submit:
            self.submit((upload,))
        return upload

    def advised_depth(self, bucket: str | None = None) -> int:
        """How many small GETs are worth having submitted ahead now; follows latency and throttling."""
        bucket = bucket or next(iter(self._targets), None)
        if bucket is None:
            return 32
        return ENGINE.get().advised_depth(self._target(bucket).origin)

    def least_first_byte_s(self, bucket: str) -> float:
        """The least of the recent times to first byte, in seconds: how far the service is. 0 where nobody knows."""
        return ENGINE.get().least_first_byte_s(self._target(bucket).origin)

    # -- the control plane

    def head(self, bucket: str, key: str) -> TosObjectMeta:
        """What is known of the object. Raises: TosNotFoundError where there is none."""
        check_key(bucket, key)
        out = self._headed(bucket, key, lambda sdk: sdk.head_object(bucket, key))
        modified = out.last_modified.timestamp() if out.last_modified else None
        return TosObjectMeta(bucket, key, out.content_length, out.etag, out.hash_crc64_ecma or None, modified)

    def head_bucket(self, bucket: str) -> str:
        """The type of a bucket, "fns", or "hns" with directories. Raises: TosNotFoundError, TosAccessError."""
        return str(self._headed(bucket, "", lambda sdk: sdk.head_bucket(bucket)).bucket_type)

    def _headed(self, bucket: str, key: str, ask: Callable[[Any], Any]) -> Any:
        try:
            return self._control.call("HEAD", bucket, key, ask)
        except TosAccessError:
            pass
        # A refused HEAD has no body to say why; what has one says it, and replaces credentials that have expired.
        _ = self.get(bucket, key, 0, 1).wait() if key else self.list_page(bucket, max_keys=1)
        return self._control.call("HEAD", bucket, key, ask)

    def create_bucket(self, bucket: str) -> None:
        """Create a bucket with the service's defaults."""
        self._control.call("PUT", bucket, "", lambda sdk: sdk.create_bucket(bucket), repeat=False)

    def list_page(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: str | None = None,
        start_after: str | None = None,
        token: str | None = None,
        max_keys: int = 1000,
    ) -> ListPage:
        """One page of the objects whose keys begin with `prefix`."""
        query = self.list_query(
            bucket, prefix, delimiter=delimiter, start_after=start_after, token=token, max_keys=max_keys
        )
        self.submit((query,))
        return parse_page(bucket, query.wait().document, prefix)

    def list_query(
        self,
        bucket: str,
        prefix: str = "",
        *,
        delimiter: str | None = None,
        start_after: str | None = None,
        token: str | None = None,
        max_keys: int = 1000,
    ) -> Query:
        """The request for one page, not yet submitted; `parse_page` reads its answer."""
        optional = {"prefix": prefix, "delimiter": delimiter, "start-after": start_after, "continuation-token": token}
        query = {"list-type": "2", "max-keys": str(max_keys)} | {
            name: value for name, value in optional.items() if value
        }
        return Query(self._target(bucket), bucket, prefix, query)

    def create_upload(
        self, bucket: str, key: str, *, content_type: str | None = None, forbid_overwrite: bool = False
    ) -> str:
        """Begin a multipart upload; returns its id. If an answer is lost it begins another; the lost one stays open, empty.

        It is not looked for: in a listing it cannot be told from another process's upload of the same key and moment.
        """
        check_key(bucket, key)
        write_headers(content_type, forbid_overwrite)

        def ask(sdk: Any) -> Any:
            return sdk.create_multipart_upload(
                bucket, key, content_type=content_type, forbid_overwrite=forbid_overwrite or None
            )

        out = self._control.call("POST", bucket, key, ask)
        if not out.upload_id:
            text = "the service began an upload without an id"
            raise TosException(TosError(text, operation="POST", bucket=bucket, key=key))
        return str(out.upload_id)

    def complete_upload(
        self,
        bucket: str,
        key: str,
        upload_id: str,
        parts: Sequence[tuple[int, str]],
        *,
        crc64: int | None = None,
        forbid_overwrite: bool = False,
    ) -> TosObjectMeta:
        """Make the parts (number, etag) the object. See `completion` for what holds when the answer is lost."""
        return complete_upload(self._control, bucket, key, upload_id, parts, crc64, forbid_overwrite)

    def abort_upload(self, bucket: str, key: str, upload_id: str) -> None:
        """Give up a multipart upload and free its parts. An upload that is gone already is no error."""
        try:
            self._control.call("DELETE", bucket, key, lambda sdk: sdk.abort_multipart_upload(bucket, key, upload_id))
        except TosNotFoundError:
            pass

    def list_uploads(self, bucket: str, prefix: str = "") -> Iterator[UploadInfo]:
        """The multipart uploads that are open, in key order."""
        key_marker = id_marker = None
        while True:
            out = self._control.call(
                "LIST",
                bucket,
                prefix,
                lambda sdk, k=key_marker, i=id_marker: sdk.list_multipart_uploads(  # type: ignore[misc]
                    bucket, prefix=prefix or None, key_marker=k, upload_id_marker=i
                ),
            )
            if out.bucket is None:
                raise no_listing(bucket, prefix, "an answer without a bucket")
            for upload in out.uploads:
                initiated = upload.initiated.timestamp() if upload.initiated else None
                yield UploadInfo(upload.key, upload.upload_id, initiated)
            following = (out.next_key_marker, out.next_upload_id_marker)
            if not out.is_truncated or following == (key_marker, id_marker):
                return
            key_marker, id_marker = following

    def copy(self, src_bucket: str, src_key: str, bucket: str, key: str) -> TosObjectMeta:
        """Copy an object (at most 5 GiB) inside the service."""
        check_key(src_bucket, src_key)
        check_key(bucket, key)
        out = self._control.call("COPY", bucket, key, lambda sdk: sdk.copy_object(bucket, key, src_bucket, src_key))
        return TosObjectMeta(bucket, key, None, out.etag)

    def delete(self, bucket: str, key: str) -> None:
        """Delete an object; one that is not there is no error."""
        check_key(bucket, key)
        self._control.call("DELETE", bucket, key, lambda sdk: sdk.delete_object(bucket, key))

    def delete_many(self, bucket: str, keys: Sequence[str]) -> None:
        """Delete objects, a thousand a request. Raises: TosException naming the first that could not be deleted."""
        for at in range(0, len(keys), MOST_AT_ONCE):
            delete_objects(self._control, bucket, [check_key(bucket, key) for key in keys[at : at + MOST_AT_ONCE]])


def _rebuild(endpoint: str, region: str, cred: CredentialProvider, config: TosClientConfig) -> TosClient:
    return TosClient(endpoint=endpoint, region=region, cred=cred, config=config)
