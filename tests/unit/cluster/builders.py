"""Groups to be clustered, and what came of it, with defaults."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

from amoro_core.files.schema.schemas import arrow_schema
from amoro_core.model.clustering import ClusterInput, ClusterOutput, Layout, LayoutKey, Strategy
from amoro_core.model.files import DataFile
from amoro_optimizer.cluster.engine import cluster
from tests.unit.rewrite.builders import ATTEMPT, access_to, context, data_file, task

GROUP = "0123456789ab"


def linear(*keys: int | LayoutKey) -> Layout:
    return Layout(Strategy.LINEAR, tuple(key if isinstance(key, LayoutKey) else LayoutKey(key) for key in keys))


def curve(strategy: Strategy, *ids: int) -> Layout:
    return Layout(strategy, tuple(LayoutKey(number) for number in ids))


def files_of(root: Path, schema: Schema, rows: pa.Table, count: int, **options: Any) -> list[DataFile]:
    """The rows in their order, in so many files."""
    kind = arrow_schema(schema)
    edges = [rows.num_rows * at // count for at in range(count + 1)]
    return [
        data_file(root, list(kind), rows.slice(low, high - low), **options) for low, high in itertools.pairwise(edges)
    ]


def table_of(schema: Schema, columns: Sequence[Any]) -> pa.Table:
    """The columns as the schema's types; uuids as their 16 bytes."""
    kind = arrow_schema(schema)
    arrays = []
    for column, field in zip(columns, kind, strict=True):
        if isinstance(column, pa.Array):
            arrays.append(column)
        elif isinstance(field.type, pa.BaseExtensionType):
            arrays.append(pa.ExtensionArray.from_storage(field.type, pa.array(column, field.type.storage_type)))
        else:
            arrays.append(pa.array(column, field.type))
    return pa.Table.from_arrays(arrays, schema=kind)


def group(
    root: Path,
    schema: Schema,
    layout: Layout,
    files: Sequence[DataFile],
    *,
    outputs: int = 1,
    properties: dict[str, str] | None = None,
    sort_order_id: int = 0,
    **more: Any,
) -> ClusterInput:
    rewrite = task(context(root, schema, properties=properties), files, output_count=outputs, **more)
    return ClusterInput(rewrite, layout, GROUP, seed=7, sort_order_id=sort_order_id)


def run(work: ClusterInput, **options: Any) -> ClusterOutput:
    root = Path(work.rewrite.table.location)
    defaults: dict[str, Any] = {
        "on_progress": lambda done, total: None,
        "is_cancelled": lambda: False,
        "memory_limit_bytes": 512 << 20,
        "spill_root": str(root / "spill"),
    }
    return cluster(work, options.pop("access", None) or access_to(root), ATTEMPT, **{**defaults, **options})


def tables(output: ClusterOutput) -> list[pa.Table]:
    """The rows of each file, in order."""
    return [pq.read_table(file.path) for file in output.rewrite.data_files]


def rows_of(output: ClusterOutput) -> list[dict[str, Any]]:
    return [row for table in tables(output) for row in table.to_pylist()]


def with_seed(work: ClusterInput, seed: int) -> ClusterInput:
    return replace(work, seed=seed)
