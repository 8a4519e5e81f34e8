"""Asking a catalog whether a table is still as it was loaded, by the ETag of that answer."""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict

from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.records import record

#: The tables that were loaded longest ago are forgotten first.
MOST = 200_000


@record
class _Loaded:
    config: CatalogConfig
    etag: str
    metadata_location: str


class Tagged(ABC):
    """A catalog that remembers the ETag of the table that it loaded last; "" without one."""

    etag = ""

    @abstractmethod
    def is_current(self, identifier: TableIdentifier, etag: str) -> bool:
        """Whether the server says that the table is what it was with that ETag; any other answer is a no."""


class ETags:
    """The ETags of tables as they were loaded last, of all threads."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[TableIdentifier, _Loaded] = OrderedDict()

    def keep(self, config: CatalogConfig, identifier: TableIdentifier, etag: str, metadata_location: str) -> None:
        """Keep the ETag of an answer; an answer without one takes back what was kept."""
        with self._lock:
            self._kept.pop(identifier, None)
            if etag:
                self._kept[identifier] = _Loaded(config, etag, metadata_location)
            if len(self._kept) > self._most:
                self._kept.popitem(last=False)

    def find(self, config: CatalogConfig, identifier: TableIdentifier, metadata_location: str) -> str:
        """The ETag of the table with that metadata, loaded through that very configuration; "" if none is known."""
        with self._lock:
            found = self._kept.get(identifier)
        is_same = found and found.config == config and found.metadata_location == metadata_location
        return found.etag if found and is_same else ""
