"""HTTP sessions with a limit on the whole duration of each request."""

import socket
from typing import Any

from requests import PreparedRequest, Response, Session
from requests.adapters import HTTPAdapter
from requests.exceptions import ReadTimeout, RequestException
from requests.utils import select_proxy
from urllib3 import HTTPConnectionPool, HTTPSConnectionPool, PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.poolmanager import pool_classes_by_scheme

from amoro_core.iceberg.limits import Watchdog, current_watchdog, limits


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
                    raise ReadTimeout(limit.told, request=request) from error
                raise
            if watchdog.expired:  # a truncated answer may look complete
                raise ReadTimeout(limit.told, request=request)
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
    """The functions of `requests` that are used without a session, with time limits."""

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
