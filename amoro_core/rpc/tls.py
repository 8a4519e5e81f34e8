"""TLS: the coordinator's certificate, and the authority of its clients."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Generic, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from amoro_core.errors import InvalidSettings
from amoro_core.logger import get_logger
from amoro_core.model.principals import Certificates

log = get_logger("amoro.tls")

T = TypeVar("T")


class Renewed(Generic[T]):
    """Content loaded from TLS files, reloaded when they change.

    Certificate and key are replaced one after the other: the last usable pair is used until they match.
    """

    def __init__(self, files: Certificates, load: Callable[[], T]) -> None:
        """Raises what `load` raises."""
        self._files = files
        self._load = load
        self._stamps = _modified_ns(files)
        self._current = load()

    def __call__(self) -> T:
        """The content of the files, or of the last usable ones."""
        if (now := _modified_ns(self._files)) != self._stamps:
            self._stamps = now
            try:
                self._current = self._load()
                log.info("certificate.renewed", certificate=str(self._files.certificate))
            except (InvalidSettings, OSError) as error:
                log.warning("certificate.rejected", error=str(error))
        return self._current


def server_credentials(files: Certificates) -> grpc.ServerCredentials:
    """Credentials to listen with; renewed files are used for new connections automatically.

    Raises InvalidSettings naming the file and what is wrong with it, including an expired certificate.
    """
    renewed = Renewed(files, lambda: read(files, datetime.now(UTC)))
    return grpc.dynamic_ssl_server_credentials(
        renewed(), renewed, require_client_authentication=files.client_ca is not None
    )


def valid_until(files: Certificates) -> datetime:
    """When the certificate expires. Raises InvalidSettings as `server_credentials` does."""
    read(files, datetime.now(UTC))
    return _certificates("tls-certificate", files.certificate, files.certificate.read_bytes())[0].not_valid_after_utc


def _modified_ns(files: Certificates) -> tuple[int, ...]:
    """When each file changed last, in nanoseconds; 0 for one that is not there."""
    paths = [files.certificate, files.key, *([files.client_ca] if files.client_ca else [])]
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)


def read(files: Certificates, now: datetime) -> grpc.ServerCertificateConfiguration:
    """The content of the files. Raises InvalidSettings as `server_credentials` does."""
    chain = _content("tls-certificate", files.certificate)
    own = _certificates("tls-certificate", files.certificate, chain)[0]
    key = _content("tls-key", files.key)
    try:
        public = load_pem_private_key(key, None).public_key()
    except (ValueError, TypeError) as error:  # TypeError: it is encrypted
        raise InvalidSettings(
            f"tls-key {files.key} can't be used: {error}", hint="It must be a private key in PEM without a password."
        ) from error
    shape = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    if public.public_bytes(*shape) != own.public_key().public_bytes(*shape):
        raise InvalidSettings(f"tls-key {files.key} is not the key of tls-certificate {files.certificate}")
    if now > own.not_valid_after_utc:
        raise InvalidSettings(f"tls-certificate {files.certificate} has expired: {own.not_valid_after_utc:%F %T} UTC")
    if now < own.not_valid_before_utc:
        raise InvalidSettings(
            f"tls-certificate {files.certificate} is not valid before {own.not_valid_before_utc:%F %T} UTC"
        )
    roots = None
    if files.client_ca is not None:
        roots = _content("tls-client-ca", files.client_ca)
        _certificates("tls-client-ca", files.client_ca, roots)
    return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=roots)


def _content(key: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise InvalidSettings(f"{key} {path} can't be read: {error.strerror}") from error


def _certificates(key: str, path: Path, content: bytes) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(content)
    except ValueError as error:
        raise InvalidSettings(f"{key} {path} holds no certificate in PEM") from error
