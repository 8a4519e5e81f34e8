"""The checks of `amoro doctor`."""

import errno
import os
import shutil
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import closing, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from amoro_cli.client import AdminClient
from amoro_cli.connection import CoordinatorAddress, Finding, running_endpoint
from amoro_cli.list_options import listed
from amoro_core.bootstrap.health import coordinator_health
from amoro_core.bootstrap.plugins import table_formats
from amoro_core.bootstrap.process import RAISE_OPEN_FILES, few_open_files
from amoro_core.bootstrap.settings import Settings, load_settings
from amoro_core.errors import AmoroError, InvalidSettings
from amoro_core.formats.tables import Formats
from amoro_core.iceberg.catalog.catalogs import kind_of, other_names, pyiceberg_catalogs
from amoro_core.iceberg.catalog.timeouts import limit_requests
from amoro_core.iceberg.pyiceberg_sandbox import allow_classes
from amoro_core.model.paging import ALL
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.task_payload import procedures_of
from amoro_core.protocol.admin_pb2 import ListGroupsRequest
from amoro_core.rpc.tls import valid_until
from amoro_core.scheduling.scaling import Member, missing_kinds_reason
from amoro_core.store import catalogs, groups, tables
from amoro_core.store.connection import ENGINE_VERSION
from amoro_core.store.database import ReadingStore

FREE_BYTES = 1024**3
#: How long catalogs may take to answer.
CATALOGS_S = 20.0
#: A certificate not renewed by then was probably forgotten.
RENEWED_BEFORE = timedelta(days=14)
#: From this version on SQLite has fixed a rare corruption of a write-ahead log reset by two connections at once.
SQLITE_SAFE = (3, 51, 3)


def diagnose(home: Path, config: Path | None) -> list[Finding]:
    """Run all checks; each finding that is not ok says what to do."""
    return [*_checks(home, config)]


def _checks(home: Path, config: Path | None) -> Iterator[Finding]:
    yield Finding("python", sys.version_info >= (3, 11), sys.version.split()[0], "Install Python 3.11 or newer.")
    sqlite = ENGINE_VERSION
    detail = ".".join(map(str, sqlite))
    if sqlite < SQLITE_SAFE:
        detail += " (older than 3.51.3: only safe with one writer, which is how it is used here)"
    yield Finding("sqlite", sqlite >= (3, 38), detail, "STRICT tables and JSON need SQLite 3.38 or newer.")
    yield _guarded("settings", lambda: _changed_settings(load_settings(home, config)), "Fix the settings file.")
    yield _guarded("state directory", lambda: _writable(home), "Choose another directory with --home.")
    free = shutil.disk_usage(_nearest(home)).free
    yield Finding(
        "disk",
        free >= FREE_BYTES,
        f"{free / 1024**3:.1f} GB free",
        "Free some space: outputs are written before inputs are removed.",
    )
    if few := few_open_files():
        yield Finding("open files", False, few, RAISE_OPEN_FILES)
    yield _guarded("loopback", _loopback, "gRPC needs to listen on 127.0.0.1.")
    with suppress(InvalidSettings):  # reported already
        settings = load_settings(home, config)
        yield from _tls(settings)
        allow_classes(settings.allowed_classes)
        limit_requests(settings.catalog_timeout)
    if health := coordinator_health(home):
        serves, detail = health
        yield Finding("coordinator", serves, detail, "Its log says more; amoro up starts it anew once it has ended.")
        if serves:
            yield from _optimizers(home)
    try:
        catalogs = _all_catalogs(home)
    except AmoroError as error:
        yield Finding("catalogs", False, error.message, error.hint or error.remedy)
        return
    if not catalogs:
        yield Finding(
            "catalogs", False, "none is known", "Run `amoro catalog add NAME type=… uri=…` or write ~/.pyiceberg.yaml."
        )
    yield from _in_time(catalogs)


def _optimizers(home: Path) -> Iterator[Finding]:
    """Whether an optimizer works for each group with tables; for every group if none has tables."""
    fix = "Start an optimizer for the group; until then its tables are evaluated, and nothing more."
    try:
        endpoint = running_endpoint(CoordinatorAddress(home), lasting=True)
        if endpoint is None:
            return
        with closing(AdminClient(endpoint)) as client:
            groups = listed(client, ALL, ListGroupsRequest()).items
    except AmoroError as error:
        yield Finding("optimizers", False, error.message, error.hint or error.remedy)
        return
    needed = [group for group in groups if group.tables] or list(groups)
    missing = [group.no_optimizer for group in needed if group.no_optimizer]
    missing += _lacking_jars(home, {group.name for group in needed if not group.no_optimizer})
    here = ", ".join(f"{group.optimizers} in group {group.name}" for group in needed if group.optimizers)
    yield Finding("optimizers", not missing, "; ".join(missing) or here, fix)


def _lacking_jars(home: Path, staffed: Set[str]) -> Iterator[str]:
    """Which of these groups have tables whose services none of their optimizers has the jar for, and the remedy."""
    with closing(ReadingStore.open(home / "amoro.db")) as store:
        formats, optimizers = store.read(tables.formats_by_group), store.read(groups.list_optimizers)
    for group in sorted(staffed & formats.keys()):
        members = [Member(item.draining, kinds=item.kinds) for item in optimizers if item.group == group]
        if reason := missing_kinds_reason(group, members, procedures_of(formats[group])):
            yield reason


def _tls(settings: Settings) -> Iterator[Finding]:
    """The certificate for listening, if configured."""
    fix = "Renew it: amoro up takes the new files by itself."
    try:
        files = settings.certificates()
        if files is None:
            return
        end = valid_until(files)
    except InvalidSettings as error:
        yield Finding("tls", False, error.message, error.hint or fix)
        return
    yield Finding("tls", end - datetime.now(UTC) >= RENEWED_BEFORE, f"valid until {end:%F %T} UTC", fix)


def _in_time(catalogs: Sequence[CatalogConfig]) -> Iterator[Finding]:
    """The check of each catalog, concurrently; one without an answer within the limit has failed."""
    answers: dict[str, Finding] = {}

    def check(item: CatalogConfig) -> None:
        answers[item.name] = _catalog(item)

    deadline = time.monotonic() + CATALOGS_S
    threads = [
        threading.Thread(target=check, args=(item,), name=f"check-{item.name}", daemon=True) for item in catalogs
    ]
    for thread in threads:
        thread.start()
    for item, thread in zip(catalogs, threads, strict=True):
        thread.join(max(0.0, deadline - time.monotonic()))
        yield answers.get(item.name) or Finding(
            f"catalog {item.name}",
            False,
            f"hangs: there was no answer within {CATALOGS_S:g} s",
            "Check that its server runs and can be reached from here.",
        )


def _catalog(item: CatalogConfig) -> Finding:
    formats = Formats(table_formats())
    name = f"catalog {item.name}"
    try:
        formats.check(item)
        others = other_names(item) if kind_of(item) == "sql" else []  # of a database whose tables are all others'
    except AmoroError as error:
        return Finding(name, False, error.message, error.hint or "Check its properties.")
    refusal = formats.commits_refused(item)
    if refusal is not None:
        return Finding(name, False, refusal, "Tables are shown, but not optimized there.")
    note = "; it has no table, but its database has tables of {}: a table belongs to its catalog's name"
    return Finding(name, True, f"answers ({item.origin}){note.format(', '.join(others)) if others else ''}")


def _all_catalogs(home: Path) -> list[CatalogConfig]:
    """Catalogs of pyiceberg's configuration and added ones. Raises InvalidSettings, StoreFailed."""
    by_name = {item.name: item for item in pyiceberg_catalogs()}
    with closing(ReadingStore.open(home / "amoro.db")) as store:
        by_name |= {item.name: item.with_site_files() for item in store.read(catalogs.list_catalogs)}
    return [by_name[name] for name in sorted(by_name)]


def _guarded(name: str, check: Callable[[], str], fix: str) -> Finding:
    try:
        return Finding(name, True, check())
    except OSError as error:
        where = f"{error.filename}: " if error.filename else ""
        return Finding(name, False, f"{where}{error.strerror or error}", fix)
    except AmoroError as error:
        return Finding(name, False, error.message, error.hint or fix)


def _changed_settings(settings: Settings) -> str:
    """Settings that differ from the defaults, with their origins."""
    changed = [f"{key} {value} ({origin})" for key, value, origin in settings.described() if origin != "default"]
    return ", ".join(changed) or "all defaults"


def _writable(home: Path) -> str:
    """The directory, if it can be written or created; raises OSError."""
    with suppress(FileNotFoundError):
        os.listdir(home)
    for name in ("amoro.lock", "amoro.db", "admin.token", "enrolment.token"):
        if os.path.exists(home / name) and not os.access(home / name, os.R_OK | os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(home / name))
    with tempfile.TemporaryFile(dir=_nearest(home)) as file:
        file.write(b"amoro")
        os.fsync(file.fileno())
    return str(home)


def _nearest(home: Path) -> Path:
    """The directory, or its nearest existing parent; `Path.exists` would raise without permission."""
    return next(place for place in (home, *home.parents) if os.path.exists(place))


def _loopback() -> str:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
    return "127.0.0.1"
