"""List the objects under a prefix, in key order, with the next page on its way while one is used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from tosnative.errors import TosError, TosException
from tosnative.logs import LOG
from tosnative.meta import TosObjectMeta
from tosnative.pages import ListPage, parse_page
from tosnative.uri import format_uri

if TYPE_CHECKING:
    from tosnative.client import Query, TosClient

__all__ = ["list_objects", "list_pages"]

_LOG_EVERY = 100_000

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
    seen: set[str] = set()
    count = 0

    def ask(token: str | None) -> Query:
        after = start_after if token is None else None
        query = client.list_query(
            bucket, prefix, delimiter=delimiter, start_after=after, token=token, max_keys=page_size
        )
        client.submit((query,))
        return query

    query: Query | None = ask(None)
    try:
        while query is not None:
            page = parse_page(bucket, query.wait().document, prefix)
            query = None
            if page.token is not None:
                if page.token in seen:
                    raise _endless(bucket, prefix, page.token, len(seen))
                seen.add(page.token)
                query = ask(page.token)
            before, count = count, count + len(page.objects)
            if count // _LOG_EVERY > before // _LOG_EVERY:
                LOG.info("listing %s: %d objects so far", format_uri(bucket, prefix), count)
            if on_progress is not None:
                on_progress(count)
            yield page
    finally:
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


def _endless(bucket: str, prefix: str, token: str, pages: int) -> TosException:
    return TosException(
        TosError(
            f"the listing names the page {token[:60]!r} a second time after {pages} pages, so it would never end",
            operation="LIST",
            bucket=bucket,
            key=prefix,
        )
    )
