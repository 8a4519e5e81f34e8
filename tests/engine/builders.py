"""Small tables and rows with defaults, and what tests ask of a table, in one word each."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform
from pyiceberg.types import LongType, NestedField, StringType

from tests.engine import oracle, writer
from tests.engine.values import Row, rows_of

SCHEMA = Schema(
    NestedField(1, "id", LongType(), required=False),
    NestedField(2, "part", StringType(), required=False),
    NestedField(3, "value", StringType(), required=False),
)
BY_PART = PartitionSpec(PartitionField(2, 1000, IdentityTransform(), "part"))
SPECS = {"unpartitioned": UNPARTITIONED_PARTITION_SPEC, "partitioned": BY_PART}


def row(id_: int | None, part: str | None = "a", value: str | None = "v") -> dict[str, Any]:
    """A row of `SCHEMA`."""
    return {"id": id_, "part": part, "value": value}


def make(
    catalog: Catalog, version: int = 2, spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC, schema: Schema = SCHEMA
) -> Table:
    """The new table `db.t`."""
    return writer.make_table(catalog, "db.t", schema, spec, version)


def ids(table: Table) -> list[int]:
    """The `id`s of the head's live rows, in order."""
    return sorted(live.record["id"] for live in oracle.live_rows_with_positions(table))


def by_content(table: Table) -> dict[int, int]:
    """How many files of each content the head has."""
    return dict(Counter(file.content for file in oracle.live_files(table)))


def as_pyiceberg_reads(table: Table) -> Counter[Row]:
    """The head's rows by pyiceberg's own scan, which knows no equality deletes."""
    table.refresh()
    return rows_of(table.schema(), table.scan().to_arrow().to_pylist())
