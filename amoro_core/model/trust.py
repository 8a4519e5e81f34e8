"""By what a coordinator and its clients know each other."""

from dataclasses import dataclass
from pathlib import Path

SECURE = "grpcs://"  # before HOST:PORT: encrypted, also without a CA file


@dataclass(frozen=True, slots=True)
class Trust:
    """Files in PEM; with any of them the channel is encrypted. Without a CA file public authorities are trusted."""

    ca_file: Path | None = None
    certificate_file: Path | None = None  # of the client, for a coordinator that asks for one
    key_file: Path | None = None


PLAIN = Trust()  # nothing to trust by: in the clear, but for an address with grpcs://


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: the coordinator's certificate with what leads to its authority, its key, its clients' authority."""

    certificate: Path
    key: Path
    client_ca: Path | None = None  # with it only clients with a certificate of this authority are let in
