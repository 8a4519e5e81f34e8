"""HTTP sessions whose requests end."""

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
    """A session whose requests end within the limits of catalogs, whatever the server does; a request's own timeout
    for connecting and reading wins, but not over the limit of the whole."""

    def send(self, request: PreparedRequest, **kwargs: Any) -> Response:
        limit = limits()
        if kwargs.get("timeout") is None:
            # The watchdog is to say it, and not the last wait for a byte.
            kwargs["timeout"] = (limit.connect_s, limit.whole_s + 1)
        if current_watchdog() is not None:  # a redirection within a request
            return super().send(request, **kwargs)
        self._watch_connections(request, kwargs.get("proxies") or {})
        with Watchdog(limit.whole_s) as watchdog:
            try:
                answer = super().send(request, **kwargs)
            except (RequestException, OSError, ValueError) as error:
                if watchdog.expired:
                    raise ReadTimeout(limit.told, request=request) from error
                raise
            if watchdog.expired:  # what came may be a part that looks whole
                raise ReadTimeout(limit.told, request=request)
            return answer

    def _watch_connections(self, request: PreparedRequest, proxies: dict[str, str]) -> None:
        """Have the connections that the request may use known to the watchdog, whoever's adapter makes them."""
        adapter = self.get_adapter(url=request.url or "")
        if not isinstance(adapter, HTTPAdapter):
            return
        proxy = select_proxy(request.url or "", proxies)
        managers: list[PoolManager] = [adapter.poolmanager, *([adapter.proxy_manager_for(proxy)] if proxy else [])]
        for manager in managers:
            if manager.pool_classes_by_scheme is pool_classes_by_scheme:  # SOCKS has its own
                manager.pool_classes_by_scheme = {"http": _WatchedPool, "https": _WatchedTlsPool}


class TimedRequests:
    """What is used of the module `requests` where there is no session: each request ends."""

    @staticmethod
    def post(url: str, **kwargs: Any) -> Response:
        """Send a POST that ends within the limit."""
        with TimedSession() as session:
            return session.post(url, **kwargs)


def _watch(connection: HTTPConnection) -> None:
    """Have the watchdog cut what the connection is by then; before it is connected, too."""
    watchdog = current_watchdog()
    if watchdog is not None:
        watchdog.cuts(lambda: _hang_up(connection.sock))


def _watch_answer(connection: HTTPConnection) -> None:
    """Have the watchdog cut what the answer is read from, which a connection without a next request gives away."""
    watchdog, sock = current_watchdog(), connection.sock
    if watchdog is not None:
        watchdog.cuts(lambda: _hang_up(sock))


def _hang_up(sock: socket.socket | None) -> None:
    """End it for who reads from it, who closes it himself."""
    if sock is not None:
        socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not TLS's own, which takes from the reader what he reads by


class _WatchedConnection(HTTPConnection):
    def request(self, *args: Any, **kwargs: Any) -> None:
        _watch(self)
        super().request(*args, **kwargs)
        _watch_answer(self)


class _WatchedTlsConnection(HTTPSConnection):
    def connect(self) -> None:
        _watch(self)  # a tunnel through a proxy is asked for here
        super().connect()

    def request(self, *args: Any, **kwargs: Any) -> None:
        _watch(self)
        super().request(*args, **kwargs)
        _watch_answer(self)


class _WatchedPool(HTTPConnectionPool):
    ConnectionCls = _WatchedConnection


class _WatchedTlsPool(HTTPSConnectionPool):
    ConnectionCls = _WatchedTlsConnection
