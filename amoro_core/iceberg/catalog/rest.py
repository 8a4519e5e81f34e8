"""Asking a catalog whether a table is still as it was loaded, by the ETag of that answer."""

import threading
from abc import ABC, abstractmethod
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from pyiceberg.catalog import rest as pyiceberg_rest
from pyiceberg.catalog.rest import Capability, Endpoints
from pyiceberg.catalog.rest import auth as pyiceberg_auth
from pyiceberg.catalog.rest.auth import AuthManagerFactory
from pyiceberg.exceptions import UnauthorizedError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import Response
from tenacity import retry_if_exception_type

from amoro_core.iceberg.catalog.timeouts import TimedRequests, TimedSession
from amoro_core.iceberg.support.pyiceberg_sandbox import only, refuse_lost, refuse_unmodelled
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier

#: The tables that were loaded longest ago are forgotten first.
MOST = 200_000


@dataclass(frozen=True, slots=True)
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


_AUTH_MANAGERS = frozenset(("noop", "basic", "legacyoauth2", "oauth2", "google", "entra"))


def _install_guards() -> None:
    """Replace pyiceberg's choice of an auth manager and its HTTP sessions by ours, for the whole process."""
    create = only(_AUTH_MANAGERS, AuthManagerFactory.create, "auth manager", allowable=True)
    AuthManagerFactory.create = create  # type: ignore[method-assign]  # pyiceberg has no other way in
    vars(pyiceberg_rest)["Session"] = TimedSession
    vars(pyiceberg_auth)["requests"] = TimedRequests


_install_guards()

#: pyiceberg resends a commit with a new token after a 401 and a 419. That is allowed only after a 401, which means that
#: nothing was applied: after a 419 the answer to the second sending would hide that the first may still be applied.
_send_again_after_401 = pyiceberg_rest.RestCatalog.commit_table.retry_with(
    retry=retry_if_exception_type(UnauthorizedError)
)


class GuardedRestCatalog(pyiceberg_rest.RestCatalog, Tagged):
    """A REST catalog whose session does not keep a table's own token for the next table, which resends a commit only if
    the first sending is known to have had no effect, and which remembers the ETag of the table that it loaded last.

    Like other catalogs it refuses metadata by name of which pyiceberg makes no model, or one that lacks something."""

    _content = b""  # what was answered last while a table is loaded

    def load_table(self, identifier: str | Identifier) -> Table:
        self.etag = ""
        hooks = self._session.hooks["response"]
        hooks.append(self._note)
        try:
            loaded: Table = super().load_table(identifier)
            return loaded
        except Exception:  # whatever pyiceberg and pydantic raise
            refuse_unmodelled(self._content)
            raise
        finally:
            hooks.remove(self._note)
            self._content = b""

    def _note(self, answer: Response, *arguments: Any, **named: Any) -> None:
        if answer.request.method == "GET":
            self.etag = answer.headers.get("ETag", "") if answer.ok else ""
            if answer.ok:
                self._content = answer.content
                refuse_lost(self._content)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        own = self._session.headers.get("Authorization")
        try:
            done: CommitTableResponse = _send_again_after_401(self, table, requirements, updates)
            return done
        finally:
            if own is None:
                self._session.headers.pop("Authorization", None)
            else:
                self._session.headers["Authorization"] = own

    def is_current(self, identifier: TableIdentifier, etag: str) -> bool:
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        path = self._split_identifier_for_path(identifier.in_catalog)
        url = self.url(Endpoints.load_table, prefixed=True, **path)
        asked = {"snapshots": mode} if (mode := self.properties.get("snapshot-loading-mode")) else {}
        with self._session.get(url, params=asked, headers={"If-None-Match": etag}) as answer:
            return answer.status_code == 304
