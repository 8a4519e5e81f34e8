"""A table that another writer fills, and a rewrite of it that is staged through the port."""

from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.ports import AnyTable
from amoro_core.model.commits import PlanRecord, SnapshotAdded, StagedCommit, Trace
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine.writer import append, delete_where, make_table, upsert

SCHEMA = Schema(NestedField(1, "x", LongType(), required=False), NestedField(2, "region", StringType(), required=False))
TABLE = TableIdentifier("cat", ("db",), "t")


def rows(*values: int) -> list[dict[str, object]]:
    return [{"x": value, "region": "n"} for value in values]


def filled(catalog: Catalog) -> Table:
    """The table with small files and deletes of both kinds."""
    table = make_table(catalog, "db.t", SCHEMA)
    append(table, rows(1, 2))
    append(table, rows(3, 4))
    upsert(table, rows(1), ["x"])
    delete_where(table, lambda row: row["x"] == 4)
    return table


def staged(config: CatalogConfig, plan: PlanRecord) -> tuple[AnyTable, StagedCommit]:
    """The rewrite validated and staged through the port."""
    found = IcebergFormat().load(config, TABLE)
    head = found.head(plan.snapshot_id)
    content = validate(build_view(plan, head)).content
    assert content is not None
    return found, found.stage(head, content, {"amoro.process-id": plan.process_id})


def traced(found: AnyTable, attempt: StagedCommit) -> Trace:
    return found.trace(SnapshotAdded(attempt.snapshot_id, attempt.parent_snapshot_id, attempt.sequence_number))
