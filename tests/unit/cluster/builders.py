"""Groups to be clustered, and what came of it, with defaults."""

from __future__ import annotations

import itertools
import struct
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.schema import Schema
from pyiceberg.transforms import parse_transform
from pyiceberg.types import DoubleType, FloatType, IcebergType
from pyiceberg.utils.datetime import date_to_days, datetime_to_micros, time_to_micros

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


def comparable(kind: IcebergType, value: Any) -> Any:
    """A Python value that compares as Iceberg compares the value, which is not null."""
    match value:
        case bool() | int():
            return int(value)
        case float():
            return _float(value, isinstance(kind, FloatType))
        case Decimal():
            return value
        case uuid.UUID():
            return value.bytes
        case str():
            return value.encode()
        case datetime():
            return datetime_to_micros(value)
        case date():
            return date_to_days(value)
        case time():
            return time_to_micros(value)
        case _:
            return bytes(value)


def _float(value: float, is_single: bool) -> int:
    """The place in IEEE's total order: −NaN < −∞ < … < −0 < 0 < … < NaN."""
    width = 32 if is_single else 64
    (bits,) = struct.unpack(">I" if is_single else ">Q", struct.pack(">f" if is_single else ">d", value))
    sign = 1 << (width - 1)
    return -(bits - sign) - 1 if bits & sign else bits


def stored(value: Any) -> Any:
    """The value in the form that pyiceberg's transforms take."""
    if isinstance(value, datetime | date | time):
        return comparable(DoubleType(), value)
    return value


def transformed(kind: IcebergType, key: LayoutKey, value: Any) -> Any:
    """What pyiceberg's transform makes of a value, as it compares."""
    if key.transform == "identity":
        return comparable(kind, value)
    made = parse_transform(key.transform).transform(kind)(stored(value))
    return made.encode() if isinstance(made, str) else made


def compared(key: LayoutKey, one: Any, other: Any) -> int:
    """−1, 0 or 1 for transformed values: nulls where the key says, whatever the direction."""
    if one is None or other is None:
        if one is None and other is None:
            return 0
        return -1 if (one is None) != key.nulls_last else 1
    sign = (one > other) - (one < other)
    return -sign if key.descending else sign
