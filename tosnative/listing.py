"""List the objects under a prefix, in key order, with the next page on its way while one is used."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tosnative.columns import PageColumns
from tosnative.errors import TosError, TosException
from tosnative.logs import LOG
from tosnative.meta import TosObjectMeta
from tosnative.pages import ListPage, page_of, parse_columns
from tosnative.uri import format_uri

if TYPE_CHECKING:
    from tosnative.client import Query, TosClient

__all__ = ["PageChain", "Progress", "Teller", "cancel_query", "list_columns", "list_objects", "list_pages"]

_LOG_EVERY = 100_000
_TOKEN = re.compile(rb'"NextContinuationToken"\s*:\s*("(?:[^"\\]|\\.)*")')
_TRUNCATED = re.compile(rb'"IsTruncated"\s*:\s*true')

Progress = Callable[[int], object]


def list_pages(
    client: TosClient,
    bucket: str,
    prefix: str = "",
    *,
    delimiter: str | None = None,
    start_after: str | None = None,
    page_size: int = 1000,
    on_progress: Progress | None = None,
) -> Iterator[ListPage]:
    """Yield the pages of a listing.

    The next page is requested before a page is yielded: one ahead, as each names the next.

    delimiter: keys that hold it after the prefix are gathered into `prefixes`. start_after: only keys after this one.
    on_progress: called before each page is yielded with the number of objects so far. Long listings are logged at INFO.
    Raises: TosException; also where the service names a page a second time, which would never end.
    """
    chain = PageChain(client, bucket, prefix, delimiter, start_after, page_size)
    for page in list_columns(chain, Teller(bucket, prefix, on_progress)):
        yield page_of(bucket, page)


def list_columns(chain: PageChain, teller: Teller) -> Iterator[PageColumns]:
    """Yield the pages of a chain, with the next one on its way. Raises: as `list_pages`."""
    query: Query | None = chain.ask(None)
    try:
        while query is not None:
            page, query = chain.read(query)
            teller.add(len(page.keys))
            yield page
    finally:
        cancel_query(query)


class Teller:
    """Counts the objects of a listing, and says how many there are so far."""

    def __init__(self, bucket: str, prefix: str, on_progress: Progress | None = None) -> None:
        self._where = format_uri(bucket, prefix)
        self._on_progress = on_progress
        self.count = 0

    def add(self, count: int) -> None:
        """So many more."""
        before, self.count = self.count, self.count + count
        if self.count // _LOG_EVERY > before // _LOG_EVERY:
            LOG.info("listing %s: %d objects so far", self._where, self.count)
        if self._on_progress is not None:
            self._on_progress(self.count)


class PageChain:
    """The requests of one listing: each answer names the next. start_after: the first key comes after this one."""

    def __init__(
        self,
        client: TosClient,
        bucket: str,
        prefix: str,
        delimiter: str | None,
        start_after: str | None,
        page_size: int,
    ) -> None:
        self._client = client
        self._bucket, self._prefix, self._delimiter = bucket, prefix, delimiter
        self._start_after, self._page_size = start_after, page_size
        self._seen: set[str] = set()

    def ask(self, token: str | None) -> Query:
        """The request for the page of this token, submitted; for the first page where it is None."""
        query = self._client.list_query(
            self._bucket,
            self._prefix,
            delimiter=self._delimiter,
            start_after=self._start_after if token is None else None,
            token=token,
            max_keys=self._page_size,
        )
        self._client.submit((query,))
        return query

    def read(self, query: Query, *, ahead: bool = True) -> tuple[PageColumns, Query | None]:
        """The page that was asked for, and the request for the next one, which is None after the last.

        ahead: ask for the next one before the page is read; without it the caller asks by the page's token.
        """
        document = query.wait().document
        # Reading a page takes longer than asking for one: the next is under way meanwhile.
        token = _glimpse_token(document) if ahead else None
        following = self.ask(token) if token is not None and token not in self._seen else None
        try:
            page = parse_columns(self._bucket, document, self._prefix)
            if page.token is not None and page.token in self._seen:
                raise self._endless(page.token)
        except BaseException:
            cancel_query(following)
            raise
        if page.token is None or page.token != token:
            cancel_query(following)
            following = None
        if page.token is not None:
            self._seen.add(page.token)
            if ahead:
                following = following or self.ask(page.token)
        return page, following

    def _endless(self, token: str) -> TosException:
        pages = len(self._seen)
        return TosException(
            TosError(
                f"the listing names the page {token[:60]!r} a second time after {pages} pages, so it would never end",
                operation="LIST",
                bucket=self._bucket,
                key=self._prefix,
            )
        )


def _glimpse_token(document: bytes | bytearray) -> str | None:
    """The token of the next page, without reading the page; None where it cannot be told like that.

    Inside a JSON string every quote is escaped, so no key can be mistaken for it.
    """
    found = _TOKEN.search(document)
    if found is None or _TRUNCATED.search(document) is None:
        return None
    try:
        return str(json.loads(found.group(1))) or None
    except ValueError:
        return None


def cancel_query(query: Query | None) -> None:
    """Stop a request that nobody wants any more."""
    if query is not None:
        query.cancel()


def list_objects(
    client: TosClient,
    bucket: str,
    prefix: str = "",
    *,
    delimiter: str | None = None,
    start_after: str | None = None,
) -> Iterator[TosObjectMeta]:
    """Yield every object under a prefix in the order of the listing. Raises: TosException."""
    for page in list_pages(client, bucket, prefix, delimiter=delimiter, start_after=start_after):
        yield from page.objects
