"""TLS: the coordinator's certificate, and the authority of its clients."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat, load_pem_private_key

from amoro_core.errors import InvalidSettings
from amoro_core.logger import get_logger
from amoro_core.model.tls_files import Certificates

log = get_logger("amoro.tls")


def server_credentials(files: Certificates) -> grpc.ServerCredentials:
    """Credentials to listen with; renewed files are used for new connections automatically.

    Raises InvalidSettings naming the file and what is wrong with it, including an expired certificate.
    """
    current = _read(files, datetime.now(UTC))
    return grpc.dynamic_ssl_server_credentials(
        current, _renewal(files, current), require_client_authentication=files.client_ca is not None
    )


def valid_until(files: Certificates) -> datetime:
    """When the certificate expires. Raises InvalidSettings as `server_credentials` does."""
    check(files, datetime.now(UTC))
    return _certificates("tls-certificate", files.certificate, files.certificate.read_bytes())[0].not_valid_after_utc


def check(files: Certificates, now: datetime) -> None:
    """Raise InvalidSettings as `server_credentials` does."""
    _read(files, now)


def _renewal(
    files: Certificates, current: grpc.ServerCertificateConfiguration
) -> Callable[[], grpc.ServerCertificateConfiguration]:
    """Called for each connection: the files' present content, or the last usable one."""
    seen = stamps(files)

    def renewed() -> grpc.ServerCertificateConfiguration:
        nonlocal seen, current
        now = stamps(files)
        if now != seen:
            seen = now
            try:
                current = _read(files, datetime.now(UTC))
                log.info("certificate.renewed", certificate=str(files.certificate))
            except InvalidSettings as error:
                # Certificate and key are replaced one after the other; the old pair is used until they match.
                log.warning("certificate.rejected", error=error.message)
        return current

    return renewed


def stamps(files: Certificates) -> tuple[int, ...]:
    """When each file changed last, in nanoseconds; 0 for one that is not there."""
    paths = [files.certificate, files.key, *([files.client_ca] if files.client_ca else [])]
    return tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)


def _read(files: Certificates, now: datetime) -> grpc.ServerCertificateConfiguration:
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
