"""Authorities and certificates made for a test."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import trustme


@dataclass(frozen=True, slots=True)
class Pair:
    """A certificate and its key as files."""

    certificate: Path
    key: Path


class Authority:
    """Signs certificates, and writes them below a directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._authority = trustme.CA()
        self._directory = directory
        self.file = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(self.file)

    def issue(self, name: str, *, until: datetime | None = None, since: datetime | None = None, to: str = "") -> Pair:
        """A certificate for the name, valid by default; in the files of `to` if named."""
        now, days = datetime.now(UTC), timedelta(days=2)
        made = self._authority.issue_cert(name, not_before=since or now - days, not_after=until or now + days)
        pair = Pair(self._directory / f"{to or name}.crt", self._directory / f"{to or name}.key")
        pair.key.write_bytes(made.private_key_pem.bytes())
        pair.certificate.write_bytes(b"".join(each.bytes() for each in made.cert_chain_pems))
        return pair
