"""List a whole prefix into an index: a long listing is split into ranges of keys, each with its own chain of pages.

One thread drives all chains; the engine has their requests in flight at the same time. Where the next split goes is found
by asking for one key after a guess in the middle (`key_space`). A range holds the keys k with after < k <= stop, and the
next one begins after `stop`: no key is in two or in none, whether or not there is a key at a boundary, and whatever is
added or deleted meanwhile. A short listing is one chain, asked for as `list_pages` asks.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from itertools import islice
from typing import TYPE_CHECKING

from tosnative.columns import PageColumns
from tosnative.errors import TosException
from tosnative.index import ObjectIndex, index_of
from tosnative.index_columns import IndexColumns
from tosnative.key_space import KeySpace
from tosnative.listing import PageChain, Progress, Teller, cancel_query, list_columns
from tosnative.logs import LOG
from tosnative.pages import parse_columns
from tosnative.uri import format_uri

if TYPE_CHECKING:
    from tosnative.client import Query, TosClient

__all__ = ["list_index"]

# A listing of up to so many pages is never split, and a range with fewer of them left is not worth it.
_SHORT_PAGES = 2
_WORTH_PAGES = 3
# Requests in flight, probes included. More would need more than a core to read their answers.
_MOST_IN_FLIGHT = 16
_SAMPLES = 4  # keys of a page that are looked at for their characters, beside the last


def list_index(
    client: TosClient,
    bucket: str,
    prefix: str = "",
    *,
    delimiter: str | None = None,
    markers: bool = True,
    page_size: int = 1000,
    on_progress: Progress | None = None,
) -> ObjectIndex:
    """The objects under a prefix in the order of the listing, each once.

    An object that is added or deleted meanwhile may be there or not. delimiter: objects whose keys hold it after the
    prefix are left out. markers: keep directory markers, which are empty objects whose key ends with a slash.
    on_progress: called with the number of objects so far; it begins anew where the listing has to.
    Raises: TosException.
    """
    teller = Teller(bucket, prefix, on_progress)
    if not delimiter:
        listing = _Listing(client, bucket, prefix, markers, page_size, teller)
        try:
            return index_of(listing.run())
        except _Unordered:
            LOG.info("listing %s: the keys are in no order; listing again page by page", format_uri(bucket, prefix))
            teller = Teller(bucket, prefix, on_progress)
    columns = IndexColumns()
    for page in list_columns(PageChain(client, bucket, prefix, delimiter, None, page_size), teller):
        columns.add_page(bucket, page if markers else page.without_markers())
    return index_of(columns)


class _Unordered(Exception):
    """The service does not list in the order of keys, or not what was asked for."""


class _Range:
    """The keys k with after < k <= stop, of which those up to `last` are in `columns`; None for stop: to the end."""

    def __init__(self, chain: PageChain, after: str, stop: str | None) -> None:
        self.chain, self.last, self.stop = chain, after, stop
        self.columns = IndexColumns()
        self.first: str | None = None  # of the page that came last
        self.left: int | None = None  # pages, estimated; None: not since the last page or split
        self.listed = self.probed = False

    def takes(self, page: PageColumns) -> bool:
        """Whether a page follows what is here in key order; the part of it beyond the stop is cut off, and ends the range."""
        keys = page.keys
        if keys:
            if keys[0] <= self.last or not all(map(operator.lt, keys, islice(keys, 1, None))):
                return False
            if self.stop is not None and keys[-1] >= self.stop:
                self.listed = True
                page.cut(0, bisect_right(keys, self.stop))
        if keys:
            self.first, self.last = keys[0], keys[-1]
        self.left = None
        return True


class _Listing:
    """One listing. `_waiting` holds every request under way with its range, and the text where a probe would split it."""

    def __init__(
        self, client: TosClient, bucket: str, prefix: str, markers: bool, page_size: int, teller: Teller
    ) -> None:
        self._client, self._bucket, self._prefix = client, bucket, prefix
        self._markers, self._page_size, self._teller = markers, page_size, teller
        self._space = KeySpace(prefix)
        self._ranges: list[_Range] = []  # in key order
        self._waiting: list[tuple[Query, _Range, str | None]] = []
        self._pages = self._probes = 0
        self._ordered = self._divisible = True
        self._flat: bool | None = None  # not asked

    def run(self) -> IndexColumns:
        """All objects. Raises: TosException, _Unordered."""
        try:
            self._begin(0, "", None)
            while True:
                self._merge()
                if self._ranges[0].listed:
                    return self._ranges[0].columns
                self._divide()
                ready = [entry for entry in self._waiting if entry[0].done] or self._waiting[:1]
                for entry in ready:
                    self._handle(*entry)
                    self._waiting.remove(entry)
        finally:
            for query, _, _ in self._waiting:
                cancel_query(query)

    def _begin(self, place: int, after: str, stop: str | None) -> None:
        chain = PageChain(self._client, self._bucket, self._prefix, None, after or None, self._page_size)
        found = _Range(chain, after, stop)
        self._ranges.insert(place, found)
        self._waiting.append((chain.ask(None), found, None))

    def _merge(self) -> None:
        """Append to the first range, when it is listed, what follows it."""
        while len(self._ranges) > 1 and self._ranges[0].listed:
            first, second = self._ranges[:2]
            first.columns.extend(second.columns)
            second.columns = first.columns
            del self._ranges[0]

    def _handle(self, query: Query, found: _Range, text: str | None) -> None:
        if text is None:
            self._take(query, found)
            return
        found.probed = False
        found.left = 0
        try:
            page = parse_columns(self._bucket, query.wait().document, self._prefix)
        except TosException as error:
            self._divisible = False
            LOG.info("listing %s: splitting it failed, going on: %s", format_uri(self._bucket, self._prefix), error)
            return
        if not found.listed and found.last < text and (page.keys or page.token is None):
            self._split(found, text, page.keys)

    def _take(self, query: Query, found: _Range) -> None:
        """Add a page to its range, and ask for the next."""
        ahead = found.stop is None and len(self._ranges) == 1
        page, following = found.chain.read(query, ahead=ahead)
        if following is not None:
            self._waiting.append((following, found, None))
        if self._ordered and not (self._is_ours(page.keys) and found.takes(page)):
            self._lose_order()
        found.listed = found.listed or page.token is None
        if not found.listed and following is None:
            self._waiting.append((found.chain.ask(page.token), found, None))
        self._pages += 1
        if self._divisible:
            for key in (*page.keys[:: max(1, len(page.keys) // _SAMPLES)], *page.keys[-1:]):
                self._space.learn(key)
        self._teller.add(len(page.keys))
        found.columns.add_page(self._bucket, page if self._markers else page.without_markers())

    def _is_ours(self, keys: list[str]) -> bool:
        """Whether the keys begin with the prefix, if they are in order: those that do follow one another."""
        return not keys or (keys[0].startswith(self._prefix) and keys[-1].startswith(self._prefix))

    def _lose_order(self) -> None:
        """Go on with the one chain that there is. Raises: _Unordered where there were several."""
        if len(self._ranges) > 1 or self._probes:
            raise _Unordered
        self._ordered = self._divisible = False
        LOG.info("listing %s: the keys are in no order; not splitting it", format_uri(self._bucket, self._prefix))

    def _divide(self) -> None:
        """Send probes where the most is left to list."""
        if not self._divisible or self._pages < _SHORT_PAGES:
            return
        if not self._probes and not self._is_flat():
            self._divisible = False
            return
        while self._probes < self._pages and len(self._waiting) < _MOST_IN_FLIGHT:
            open_ = [found for found in self._ranges if found.first is not None and not (found.listed or found.probed)]
            found = max(open_, key=self._left, default=None)
            if found is None or self._left(found) < _WORTH_PAGES:
                return
            text = self._space.between(found.last, found.stop)
            if text is None:
                found.left = 0
                continue
            query = self._client.list_query(self._bucket, self._prefix, start_after=text, max_keys=1)
            self._client.submit((query,))
            self._waiting.append((query, found, text))
            self._probes += 1
            found.probed = True

    def _is_flat(self) -> bool:
        """Whether the bucket has no directories: with them the order of keys is another, which a split could hide."""
        if self._flat is None:
            where = format_uri(self._bucket, self._prefix)
            try:
                self._flat = self._client.head_bucket(self._bucket) == "fns"
            except TosException as error:
                self._flat = False
                LOG.info("listing %s page by page: the type of the bucket cannot be known: %s", where, error)
        return self._flat

    def _left(self, found: _Range) -> int:
        if found.left is None:
            assert found.first is not None
            found.left = self._space.pages_left(found.first, found.last, found.stop)
        return found.left

    def _split(self, found: _Range, text: str, keys: list[str]) -> None:
        """Split a range at a text, or cut off what follows it, where no key does. keys: the first that follows."""
        if keys and not (keys[0] > text and self._is_ours(keys)):
            raise _Unordered
        stop, found.stop, found.left = found.stop, text, None
        if keys and (stop is None or keys[0] <= stop):
            self._space.learn(keys[0])
            self._begin(self._ranges.index(found) + 1, text, stop)
