"""REST catalogs: pyiceberg's, with time limits, without resent commits, and with ETags.

Imported when one is opened: its client takes 0.2 s of a start.
"""

import socket
from typing import Any

from pyiceberg.catalog import rest as pyiceberg_rest
from pyiceberg.catalog.rest import Capability, Endpoints
from pyiceberg.catalog.rest import auth as pyiceberg_auth
from pyiceberg.catalog.rest.auth import AuthManagerFactory
from pyiceberg.exceptions import UnauthorizedError
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import Identifier
from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import ReadTimeout, RequestException
from requests.utils import select_proxy
from tenacity import retry_if_exception_type
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.poolmanager import pool_classes_by_scheme

from amoro_core.iceberg.catalog.timeouts import Watchdog, current_watchdog, limits
from amoro_core.iceberg.pyiceberg_sandbox import only, refuse_lost, refuse_unmodelled
from amoro_core.model.tables import TableIdentifier


class TimedSession(Session):
    """A session whose requests end within the limits of catalogs, whatever the server does. A request's own timeouts
    for connecting and reading are honoured, but never extend the limit of the whole."""

    def send(self, request: PreparedRequest, **kwargs: Any) -> Response:
        limit = limits()
        if kwargs.get("timeout") is None:
            # Later than the watchdog, so that the watchdog reports the timeout.
            kwargs["timeout"] = (limit.connect_s, limit.whole_s + 1)
        if current_watchdog() is not None:  # a redirect within a request
            return super().send(request, **kwargs)
        self._watch_connections(request, kwargs.get("proxies") or {})
        with Watchdog(limit.whole_s) as watchdog:
            try:
                answer = super().send(request, **kwargs)
            except (RequestException, OSError, ValueError) as error:
                if watchdog.expired:
                    raise ReadTimeout(limit.message, request=request) from error
                raise
            if watchdog.expired:  # a truncated answer may look complete
                raise ReadTimeout(limit.message, request=request)
            return answer

    def _watch_connections(self, request: PreparedRequest, proxies: dict[str, str]) -> None:
        """Register the connections that the request may use with the watchdog, whichever adapter makes them."""
        adapter = self.get_adapter(url=request.url or "")
        if not isinstance(adapter, HTTPAdapter):
            return
        proxy = select_proxy(request.url or "", proxies)
        managers: list[PoolManager] = [adapter.poolmanager, *([adapter.proxy_manager_for(proxy)] if proxy else [])]
        for manager in managers:
            if manager.pool_classes_by_scheme is pool_classes_by_scheme:  # SOCKS has its own
                manager.pool_classes_by_scheme = {"http": _WatchedPool, "https": _WatchedTlsPool}


class TimedRequests:
    """What pyiceberg uses of `requests` without a session, with time limits."""

    @staticmethod
    def post(url: str, **kwargs: Any) -> Response:
        """Send a POST that ends within the limit."""
        with TimedSession() as session:
            return session.post(url, **kwargs)


def _watch(connection: HTTPConnection) -> None:
    """Register the connection with the watchdog, which cuts whatever socket it has by then."""
    watchdog = current_watchdog()
    if watchdog is not None:
        watchdog.cuts(lambda: _hang_up(connection.sock))


def _watch_answer(connection: HTTPConnection) -> None:
    """Register the socket of the answer with the watchdog: a connection that is not kept alive releases it."""
    watchdog, sock = current_watchdog(), connection.sock
    if watchdog is not None:
        watchdog.cuts(lambda: _hang_up(sock))


def _hang_up(sock: socket.socket | None) -> None:
    """Shut the socket down, which ends the reader's wait; the reader closes it."""
    if sock is not None:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's own, which would invalidate the reader's object


class _WatchedConnection(HTTPConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        _watch(self)
        super().request(*args, **kwargs)
        _watch_answer(self)


class _WatchedTlsConnection(HTTPSConnection):
    def connect(self) -> None:
        _watch(self)  # a proxy's tunnel is requested here
        super().connect()

    def request(self, *args: Any, **kwargs: Any) -> None:
        _watch(self)
        super().request(*args, **kwargs)
        _watch_answer(self)


class _WatchedPool(HTTPConnectionPool):
    ConnectionCls = _WatchedConnection


class _WatchedTlsPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedTlsConnection


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


class GuardedRestCatalog(pyiceberg_rest.RestCatalog):
    """A REST catalog whose session does not keep a table's token for the next table, which resends a commit only if the
    first sending is known to have had no effect, and which remembers the ETag of the table that it loaded last. Like
    other catalogs, it refuses metadata of which pyiceberg makes no model, or a lossy one, by name."""

    etag = ""  # of the table that was loaded last, "" without one
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
        """Whether the server says that the table is what it was with that ETag; any other answer is a no."""
        self._check_endpoint(Capability.V1_LOAD_TABLE)
        path = self._split_identifier_for_path(identifier.in_catalog)
        url = self.url(Endpoints.load_table, prefixed=True, **path)
        query = {"snapshots": mode} if (mode := self.properties.get("snapshot-loading-mode")) else {}
        with self._session.get(url, params=query, headers={"If-None-Match": etag}) as answer:
            return answer.status_code == 304
