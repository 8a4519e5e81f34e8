"""What `amoro doctor` looks at."""

import os
import shutil
import socket
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from amoro_core.errors import AmoroError, InvalidSettings
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.health import coordinator_health
from amoro_core.iceberg.catalogs import pyiceberg_catalogs
from amoro_core.iceberg.guards import allow_classes
from amoro_core.model.processes import CatalogConfig
from amoro_core.rpc.tls import valid_until
from amoro_core.settings import Settings
from amoro_core.settings_sources import load_settings
from amoro_core.store import catalogs
from amoro_core.store.database import Store
from amoro_core.store.lock import StateLock

FREE_BYTES = 1024**3
#: A certificate that is not renewed by then was forgotten.
RENEWED_BEFORE = timedelta(days=14)
#: From here on a rare corruption of a write-ahead log that two connections reset at once is mended in SQLite.
SQLITE_SAFE = (3, 51, 3)


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One thing that was looked at."""

    name: str
    ok: bool
    detail: str
    fix: str = ""


def diagnose(home: Path, config: Path | None) -> list[Diagnosis]:
    """Look at everything that must be in order; each finding that is not ok says what to do."""
    return [*_checks(home, config)]


def _checks(home: Path, config: Path | None) -> Iterator[Diagnosis]:
    yield Diagnosis(
        "python",
        sys.version_info >= (3, 11),
        sys.version.split()[0],
        "Install Python 3.11 or newer.",
    )
    sqlite = sqlite3.sqlite_version_info
    detail = sqlite3.sqlite_version
    if sqlite < SQLITE_SAFE:
        detail += " (older than 3.51.3: only safe with one writer, which is how it is used here)"
    yield Diagnosis("sqlite", sqlite >= (3, 38), detail, "STRICT tables and JSON need SQLite 3.38 or newer.")
    yield _guarded("settings", lambda: _said(load_settings(home, config)), "Mend the settings file.")
    yield _guarded("state directory", lambda: _writable(home), "Choose another directory with --home.")
    free = shutil.disk_usage(_nearest(home)).free
    yield Diagnosis(
        "disk",
        free >= FREE_BYTES,
        f"{free / 1024**3:.1f} GB free",
        "Free some space: outputs are written before inputs go.",
    )
    yield _guarded("loopback", _loopback, "gRPC needs to listen on 127.0.0.1.")
    yield from _tls(home, config)
    with suppress(InvalidSettings):  # said already
        allow_classes(load_settings(home, config).allowed_classes)
    if health := coordinator_health(home):
        serves, said = health
        yield Diagnosis("coordinator", serves, said, "Its log says more; amoro up starts it anew once it has ended.")
    found = _known_catalogs(home)
    if not found:
        yield Diagnosis(
            "catalogs", False, "none is known", "Run `amoro catalog add NAME type=… uri=…` or write ~/.pyiceberg.yaml."
        )
    for item in found:
        yield _catalog(item)


def _tls(home: Path, config: Path | None) -> Iterator[Diagnosis]:
    """The certificate, where one is to be listened with; settings that can't be read are said already."""
    fix = "Renew it: amoro up takes the new files by itself."
    try:
        settings = load_settings(home, config)
    except InvalidSettings:
        return
    try:
        files = settings.certificates()
        if files is None:
            return
        end = valid_until(files)
    except InvalidSettings as error:
        yield Diagnosis("tls", False, error.message, error.hint or fix)
        return
    yield Diagnosis("tls", end - datetime.now(UTC) >= RENEWED_BEFORE, f"valid until {end:%F %T} UTC", fix)


def _catalog(item: CatalogConfig) -> Diagnosis:
    tables = IcebergFormat()
    name = f"catalog {item.name}"
    try:
        tables.check(item)
    except AmoroError as error:
        return Diagnosis(name, False, error.message, error.hint or "Check its properties.")
    refusal = tables.commits_refused(item)
    if refusal is not None:
        return Diagnosis(name, False, refusal, "Tables are shown, but not optimized there.")
    return Diagnosis(name, True, f"answers ({item.origin})")


def _known_catalogs(home: Path) -> list[CatalogConfig]:
    known = {item.name: item for item in pyiceberg_catalogs()}
    if (home / "amoro.db").exists():
        try:
            with StateLock.acquire(home), Store.open(home / "amoro.db") as store:
                known |= {item.name: item.with_site_files() for item in store.read(catalogs.list_catalogs)}
        except AmoroError:
            # A running coordinator owns the directory; its catalogs are listed by `amoro catalog list`.
            return list(known.values())
    return list(known.values())


def _guarded(name: str, look: Callable[[], str], fix: str) -> Diagnosis:
    try:
        return Diagnosis(name, True, look())
    except (AmoroError, OSError) as error:
        return Diagnosis(name, False, str(error), fix)


def _said(settings: Settings) -> str:
    """What differs from the defaults, and who said so."""
    said = [f"{key} {value} ({origin})" for key, value, origin in settings.described() if origin != "default"]
    return ", ".join(said) or "all defaults"


def _writable(home: Path) -> str:
    with tempfile.TemporaryFile(dir=_nearest(home)) as file:
        file.write(b"amoro")
        os.fsync(file.fileno())
    return str(home)


def _nearest(home: Path) -> Path:
    """The directory, or where it would be made."""
    return next(place for place in (home, *home.parents) if place.exists())


def _loopback() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
    return "127.0.0.1"
