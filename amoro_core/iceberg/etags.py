"""Asking a REST catalog whether a table is still as it was loaded, by the ETag of that answer."""

import threading
from collections import OrderedDict
from dataclasses import dataclass

from pyiceberg.catalog.rest import Capability, Endpoints

from amoro_core.iceberg.guards import GuardedRestCatalog
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier

#: The tables that were loaded longest ago are forgotten first.
MOST = 200_000


@dataclass(frozen=True, slots=True)
class _Loaded:
    config: CatalogConfig
    etag: str
    metadata_location: str


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


def is_current(catalog: GuardedRestCatalog, identifier: TableIdentifier, etag: str) -> bool:
    """Whether the server says that the table is what it was with that ETag; any other answer is a no."""
    catalog._check_endpoint(Capability.V1_LOAD_TABLE)
    path = catalog._split_identifier_for_path(identifier.in_catalog)
    url = catalog.url(Endpoints.load_table, prefixed=True, **path)
    asked = {"snapshots": mode} if (mode := catalog.properties.get("snapshot-loading-mode")) else {}
    with catalog._session.get(url, params=asked, headers={"If-None-Match": etag}) as answer:
        return answer.status_code == 304
