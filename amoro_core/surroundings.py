"""What the coordinator measures of the machine around it."""

import shutil
from collections.abc import Mapping
from pathlib import Path

from amoro_core.model.trust import Certificates


def free_part(home: Path) -> Mapping[tuple[str, ...], float]:
    """The free part of the disk with the directory, 0 to 1; nothing when it can't be told."""
    try:
        disk = shutil.disk_usage(home)
    except OSError:
        return {}
    # As `df` counts: what is reserved for root is neither free nor used.
    return {(): disk.free / max(1, disk.used + disk.free)}


def certificate_end(files: Certificates) -> Mapping[tuple[str, ...], float]:
    """When the certificate ends or has ended, in seconds since 1970; nothing while the file can't be read."""
    # Loaded only where calls are encrypted.
    from cryptography import x509

    try:
        own = x509.load_pem_x509_certificates(files.certificate.read_bytes())[0]
    except (OSError, ValueError):
        return {}
    return {(): own.not_valid_after_utc.timestamp()}
