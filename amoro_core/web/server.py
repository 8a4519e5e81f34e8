"""The HTTP server of a coordinator: its port, its TLS with the certificate of the gRPC address, and its thread."""

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import uvicorn
from starlette.types import ASGIApp

from amoro_core.errors import AddressInUse
from amoro_core.model.principals import Certificates
from amoro_core.notifier import Changes
from amoro_core.rpc.server import listen_error
from amoro_core.rpc.tls import Renewed, read


def server_context(files: Certificates) -> ssl.SSLContext:
    """The context to listen with; renewed files are used for new connections automatically.

    Raises InvalidSettings naming the file and what is wrong with it, including an expired certificate.
    """
    renewed = Renewed(files, lambda: _context(files))
    result = renewed()

    def choose(connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        connection.context = renewed()

    # OpenSSL asks for the name in each handshake, with or without one: the place to take up a renewed certificate.
    result.sni_callback = choose
    return result


def _context(files: Certificates) -> ssl.SSLContext:
    read(files, datetime.now(UTC))
    result = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    result.minimum_version = ssl.TLSVersion.TLSv1_2
    result.load_cert_chain(files.certificate, files.key)
    if files.client_ca is not None:
        result.load_verify_locations(files.client_ca)
        result.verify_mode = ssl.CERT_REQUIRED
    return result


STOP_GRACE_S = 1
_KEEP_ALIVE_S = 30
_BACKLOG = 256


class Listener:
    """A bound port that does not answer yet."""

    def __init__(self, host: str, port: int, certificates: Certificates | None = None) -> None:
        """Raises AddressInUse, which names the holder of the port, and InvalidSettings."""
        self.context = server_context(certificates) if certificates else None
        try:
            self.socket = _bound(host.strip("[]"), port)
        except OSError as error:
            raise _bind_error(host, port) from error
        self.host = f"[{host}]" if ":" in host and not host.startswith("[") else host
        self.port: int = self.socket.getsockname()[1]

    @property
    def address(self) -> str:
        """Its URL, without a path."""
        return f"{'https' if self.context else 'http'}://{self.host}:{self.port}"

    def close(self) -> None:
        """Give the port back."""
        self.socket.close()


class WebServer:
    """Serves an application on a listener until stopped."""

    def __init__(
        self, listener: Listener, app: ASGIApp, *, proxies: Sequence[str] = (), changes: Sequence[Changes] = ()
    ) -> None:
        """Forwarded headers of `proxies` are trusted; coroutines of the application may wait for `changes`."""
        self._listener = listener
        self._changes = changes
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        config = uvicorn.Config(
            app,
            log_config=None,
            log_level="error",
            access_log=False,
            lifespan="off",
            http="h11",
            ws="none",
            interface="asgi3",
            proxy_headers=bool(proxies),
            forwarded_allow_ips=list(proxies) or None,
            server_header=False,
            backlog=_BACKLOG,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=STOP_GRACE_S,
        )
        config.load()
        config.ssl = listener.context
        self._server = _Server(config, self._is_up.set)
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)

    def start(self) -> None:
        """Answer from now on."""
        for change in self._changes:
            change.bind(self._loop)
        self._thread.start()
        self._is_up.wait()

    def stop(self) -> None:
        """Refuse new requests, end running ones after a second, and stop."""
        self._server.should_exit = True
        if self._thread.is_alive():
            self._thread.join()
        for change in self._changes:
            change.release(self._loop)
        self._listener.close()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._server.serve(sockets=[self._listener.socket]))
        finally:
            self._is_up.set()
            self._loop.run_until_complete(self._loop.shutdown_asyncgens())
            self._loop.close()


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, when_up: Callable[[], None]) -> None:
        super().__init__(config)
        self._when_up = when_up

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._when_up()


def _bound(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    result = socket.socket(family, kind, protocol)
    try:
        result.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        result.bind(place)
        result.listen(_BACKLOG)
    except OSError:
        result.close()
        raise
    return result


def _bind_error(host: str, port: int) -> Exception:
    error = listen_error(host, port)
    if isinstance(error, AddressInUse):
        error.hint = "Stop what listens there, or choose another http-port in amoro.yaml (0: no pages, no REST)."
    else:
        error.hint = "Give an address of this machine, such as 127.0.0.1, as http-host in amoro.yaml."
    return error
