"""TLS files by which a coordinator and its clients authenticate each other."""

from dataclasses import dataclass
from pathlib import Path

SECURE = "grpcs://"  # before HOST:PORT: encrypted, also without a CA file


@dataclass(frozen=True, slots=True)
class Trust:
    """Files in PEM; with any of them the channel is encrypted. Without a CA file public authorities are trusted."""

    ca_file: Path | None = None
    certificate_file: Path | None = None  # of the client, for a coordinator that asks for one
    key_file: Path | None = None


PLAIN = Trust()  # unencrypted, except for an address with grpcs://


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: the coordinator's certificate chain, its key, and the authority of its clients."""

    certificate: Path
    key: Path
    client_ca: Path | None = None  # with it only clients with a certificate of this authority are let in


_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})


def is_loopback(host: str) -> bool:
    """Whether who listens on the host is reached from this machine alone."""
    return host in _LOOPBACK
