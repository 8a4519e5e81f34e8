"""TLS of the HTTP server, with the certificate of the coordinator's gRPC address."""

import ssl
from datetime import UTC, datetime

from amoro_core.errors import InvalidSettings
from amoro_core.events import get_logger
from amoro_core.model.trust import Certificates
from amoro_core.rpc.tls import check, stamps

log = get_logger("amoro.http")


def server_context(files: Certificates) -> ssl.SSLContext:
    """The context to listen with; renewed files are used for new connections automatically.

    Raises InvalidSettings naming the file and what is wrong with it, including an expired certificate.
    """
    renewing = _Renewing(files)
    outer = _context(files)
    # OpenSSL asks for the name in each handshake, with or without one: the place to take up a renewed certificate.
    outer.sni_callback = renewing.choose
    return outer


class _Renewing:
    """The context of the files' present content, or of the last usable one."""

    def __init__(self, files: Certificates) -> None:
        self._files = files
        self._seen = stamps(files)
        self._current: ssl.SSLContext | None = None  # None: the files are as at the start

    def choose(self, connection: ssl.SSLObject | ssl.SSLSocket, name: str | None, context: ssl.SSLContext) -> None:
        """Give the connection the current certificate."""
        now = stamps(self._files)
        if now != self._seen:
            self._seen = now
            try:
                self._current = _context(self._files)
                log.info("certificate.renewed", certificate=str(self._files.certificate))
            except (InvalidSettings, OSError) as error:
                # Certificate and key are replaced one after the other; the old pair is used until they match.
                log.warning("certificate.rejected", error=str(error))
        if self._current is not None:
            connection.context = self._current


def _context(files: Certificates) -> ssl.SSLContext:
    check(files, datetime.now(UTC))
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    made.load_cert_chain(files.certificate, files.key)
    if files.client_ca is not None:
        made.load_verify_locations(files.client_ca)
        made.verify_mode = ssl.CERT_REQUIRED
    return made
