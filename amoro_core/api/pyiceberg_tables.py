"""Planning, optimizing and verifying tables loaded with pyiceberg, without running a server."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from pathlib import Path
from typing import Unpack

from pyiceberg.catalog import Catalog
from pyiceberg.table import Table

from amoro_cli.connection import connect, resolve_place
from amoro_cli.progress import progress_report
from amoro_core.api.client import Client, Duration, PlanOptions, duration, with_hints
from amoro_core.api.results import Optimizing, Plan, Verification
from amoro_core.bootstrap.launcher import LocalLauncher
from amoro_core.errors import InvalidArgument
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.protocol import admin_pb2 as pb

#: Modules of pyiceberg's catalogs, and their type in configuration.
_KINDS = {
    "pyiceberg.catalog.sql": "sql",
    "pyiceberg.catalog.rest": "rest",
    "pyiceberg.catalog.hive": "hive",
    "pyiceberg.catalog.glue": "glue",
    "pyiceberg.catalog.dynamodb": "dynamodb",
    "pyiceberg.catalog.bigquery_metastore": "bigquery",
}


@with_hints
def plan(table: Table, *, home: Path | str | None = None, **options: Unpack[PlanOptions]) -> Plan:
    """What optimizing the table would rewrite now, and why, as `Client.plan`. Nothing is changed.

    Like `amoro plan`: through the coordinator of the state directory if one runs, else in this process, from the state
    directory and the catalog. `home` is the state directory, by default `AMORO_HOME`, else ~/.amoro.
    """
    with _session(table, home) as (client, name):
        return client.plan(name, **options)


@with_hints
def optimize(
    table: Table,
    *,
    timeout: Duration = "10m",
    progress: bool = False,
    home: Path | str | None = None,
    **options: Unpack[PlanOptions],
) -> Optimizing:
    """Optimize the table once, as `Client.optimize`, and wait for the commit, after which the table is refreshed.

    Like `amoro optimize --wait`; without a running coordinator, this process uses all its cores. `progress` shows
    progress on stderr. Raises like `Client.optimize`, and StateDirectoryLocked when others hold the state directory.
    """
    wait = duration(timeout)
    with _session(table, home, wait) as (client, name), progress_report() if progress else nullcontext() as report:
        done = client.optimize(name, timeout=wait, report=report, **options)
    if done.snapshot_id is not None:
        table.refresh()
    return done


@with_hints
def verify(
    table: Table,
    *,
    before: int | None = None,
    after: int | None = None,
    timeout: Duration = "1h",
    home: Path | str | None = None,
) -> Verification:
    """Prove that the last optimizing, or every rewrite between two snapshots, kept every row. Like `amoro verify`.

    Raises VerificationFailed when something differs or can't be read.
    """
    with _session(table, home) as (client, name):
        return client.verify(name, before=before, after=after, timeout=timeout)


@contextmanager
def _session(table: Table, home: Path | str | None, lock_wait: timedelta | None = None) -> Iterator[tuple[Client, str]]:
    """A client that knows the table's catalog, and the table's full name there. Raises InvalidArgument.

    Without `lock_wait` the client is read-only and waits for no lock.
    """
    if not isinstance(table, Table):
        raise InvalidArgument(
            f"{table!r} is not a table that pyiceberg has loaded",
            hint="Give load_catalog(…).load_table(…), or name the table to a coordinator: connect().optimize(…).",
        )
    config = _config_of(table.catalog)
    name = str(TableIdentifier(config.name, table.name()[:-1], table.name()[-1]))
    place = resolve_place(None if home is None else Path(home), None, None, None, os.environ)
    launcher = LocalLauncher((config,), is_guest=True)
    wait, reading = lock_wait or timedelta(0), lock_wait is None
    with connect(launcher, place, wait, lambda text: None, lasting=True, reading=reading) as connection:
        state = connection.client.GetTable(pb.GetTableRequest(table=name))
        if state.table_uuid and state.table_uuid != str(table.metadata.table_uuid):
            raise InvalidArgument(
                f"{name} is another table there: its UUID is {state.table_uuid}, not {table.metadata.table_uuid}",
                hint="Another catalog has the same name: rename this one, or use another state directory.",
            )
        yield Client(connection), name


def _config_of(catalog: Catalog) -> CatalogConfig:
    """The configuration to open the catalog again in another thread. Raises InvalidArgument when that is impossible."""
    kind = next((_KINDS[base.__module__] for base in type(catalog).__mro__ if base.__module__ in _KINDS), None)
    uri = str(catalog.properties.get("uri", ""))
    if kind is None:
        raise InvalidArgument(
            f"catalog {catalog.name} is of the unknown kind {type(catalog).__name__}",
            hint="Load the table from one of pyiceberg's own catalogs.",
        )
    if kind == "sql" and ":memory:" in uri:
        raise InvalidArgument(
            f"catalog {catalog.name} is in memory, where no other connection can commit",
            hint="Use a catalog in a file: uri=sqlite:////absolute/path.db",
        )
    properties = {key: str(value) for key, value in catalog.properties.items() if value is not None}
    return CatalogConfig(catalog.name, tuple(sorted({**properties, "type": kind}.items())), origin="pyiceberg")
