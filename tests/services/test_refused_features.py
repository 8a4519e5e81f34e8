"""What of format 3 is not handled: every entry refuses the table by the column or the field, and changes nothing."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import TableRefused
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.tables import OptimizingStatus, OptimizingType, parse_table
from amoro_core.services.upgrading import UpgradeService
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.iceberg.test_raw_metadata import (
    NANOS,
    Change,
    as_format_3,
    column,
    list_of,
    only_unknown,
    order_field,
    spec_field,
    struct,
    with_snapshot,
)
from tests.services.world import World

TABLE = parse_table("cat.db.t")
#: What pyiceberg makes no model of, or one that lacks it.
UNLOADABLE: list[tuple[Change, str, str]] = [
    (column("variant", "v"), "type", "column v has the type variant"),
    (column(struct("int", list_of("variant")), "v"), "type", "column v.f1.element has the type variant"),
    (column("geometry(OGC:CRS84)", "g"), "type", "column g has the type geometry(OGC:CRS84)"),
    (spec_field(**{"source-ids": [1, 2]}), "transform", "partition field p of spec 0 has the transform bucket[4] of 2"),
    (order_field(**{"source-ids": [1, 2]}), "transform", "field 1 of sort order 1 has the transform identity of 2 col"),
    (lambda one: one.update({"encryption-keys": [{"key-id": "k"}]}), "encryption", "the metadata has encryption-keys"),
    (with_snapshot(**{"key-id": "k"}), "encryption", "snapshot 5 has a key-id"),
    (column("timestamp_ns", "n", **{"initial-default": NANOS}), "default", "column n has the initial-default"),
    (column(struct("int"), "s", **{"initial-default": {}}), "default", "column s has the initial-default {}"),
    (lambda one: one.update({"format-version": 4}), "format-version", "format version 4 is not handled"),
]
#: What it makes one of.
LOADABLE: list[tuple[Change, str, str]] = [
    (column("geography", "g"), "type", "column g has the type geography, which is not handled"),
    (column(struct("unknown"), "u"), "type", "column u is a struct of nothing but unknown values"),
    (only_unknown, "type", "the table has no column that Parquet can hold"),
    (column("int", "i", **{"initial-default": "5"}), "default", "column i has the initial-default '5'"),
]


@pytest.fixture
def table(world: World, catalog: SqlCatalog) -> Table:
    made = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, properties={"self-optimizing.enabled": "true"})
    for number in range(3):
        writer.append(made, [row(number)])
    world.table()
    return made.refresh()


def entries(world: World) -> dict[str, Callable[[], Any]]:
    """Whatever writes to a table, or says what would be written."""
    table_id = world.table().table_id
    names = world.maintaining.names
    assert CLUSTER in names
    return {
        "plan": lambda: world.tables.preview(TABLE, OptimizingType.FULL, True),
        "optimize": lambda: world.tables.require_optimizable(TABLE),
        "optimize --type full": lambda: world.begin(OptimizingType.FULL),
        "service": lambda: world.planning.begin(table_id, trigger="evaluation"),
        **{f"{name} --dry-run": lambda name=name: world.maintaining.preview(TABLE, name) for name in names},
        **{name: lambda name=name: world.maintaining.begin(table_id, name, trigger="request") for name in names},
    }


def refused(enter: Callable[[], Any]) -> TableRefused:
    with pytest.raises(TableRefused) as found:
        enter()
    return found.value


@pytest.mark.parametrize(("change", "reason", "said"), [*UNLOADABLE, *LOADABLE])
def test_every_entry_refuses_it_by_name_and_changes_nothing(
    world: World, table: Table, change: Change, reason: str, said: str
) -> None:
    metadata = Path(local_path(table.metadata_location))
    metadata.write_text(as_format_3(table, change))
    before = sorted((path, path.stat().st_mtime_ns) for path in metadata.parents[1].rglob("*"))
    every = entries(world)
    if (change, reason, said) in UNLOADABLE:
        for dry_run in (True, False):
            every[f"upgrade, {dry_run=}"] = lambda dry_run=dry_run: UpgradeService(world.tables_of).upgrade(
                TABLE, 3, dry_run=dry_run
            )
    told = {name: refused(enter) for name, enter in every.items()}
    assert {name for name, error in told.items() if error.reason != reason or said not in error.message} == set()
    runtime = world.tables.refresh(world.table().table_id)
    assert runtime is not None
    assert (runtime.status, runtime.refusal) == (OptimizingStatus.REFUSED, reason)
    assert said in runtime.status_reason
    assert sorted((path, path.stat().st_mtime_ns) for path in metadata.parents[1].rglob("*")) == before
