"""Lists that come in pages: what their links and their headers need."""

from collections.abc import Mapping

from amoro_core.dashboard.pages.urls import with_query
from amoro_core.documents.quantities import format_count
from amoro_core.records import record

ROWS = 50  # on a page of a list
MOST_EXACT = 10_000  # a total is counted up to here


@record
class Listed:
    """One page of a list: at `path`, with these filters, in this order.

    `next` and `after` are cursors, of the page after it and of this one; "": there is none, or it is the first. The
    address has them as `cursor`: a page with two lists has one for each.
    """

    path: str
    noun: str  # of its items, in the plural
    filters: Mapping[str, str]
    shown: int
    total: int
    next: str = ""
    after: str = ""
    sort: str = ""
    order: str = ""
    total_is_exact: bool = True
    default_sort: str = ""
    cursor: str = "after"

    @property
    def is_filtered(self) -> bool:
        """Whether a filter is set."""
        return any(self.filters.values())

    @property
    def is_whole(self) -> bool:
        """Whether it has all items of the list."""
        return self.is_first and not self.next

    @property
    def is_first(self) -> bool:
        """Whether it is the first page."""
        return not self.after

    @property
    def total_told(self) -> str:
        """How many items there are on all pages, such as 10,000+ where they were not counted to the end."""
        return format_count(self.total) + ("" if self.total_is_exact else "+")

    @property
    def first_url(self) -> str:
        """The address of the first page."""
        return self.path + with_query(self._query())

    @property
    def next_url(self) -> str:
        """The address of the page after this one; "" for the last."""
        return self.path + with_query({**self._query(), self.cursor: self.next}) if self.next else ""

    def sorted_by(self, key: str) -> str:
        """The address of the list sorted by the key, in the other direction where it is sorted by it already."""
        order = "desc" if key == self.sort and self.order != "desc" else ""
        return self.path + with_query({**self.filters, "sort": key, "order": order})

    def _query(self) -> dict[str, str]:
        sort = "" if self.sort == self.default_sort else self.sort
        return {**self.filters, "sort": sort, "order": self.order if self.order == "desc" else ""}
