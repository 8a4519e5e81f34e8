"""Rows as multisets that compare exactly, whichever engine read them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Rows = Counter[tuple[Hashable, ...]]


def spark_rows(spark: SparkSession, table: str, snapshot_id: int | None = None) -> Rows:
    """The rows of the table, of its head or of one snapshot, in the order of the columns, as Spark reads them."""
    version = "" if snapshot_id is None else f" VERSION AS OF {snapshot_id}"
    return Counter(
        tuple(frozen(value) for value in row) for row in spark.sql(f"SELECT * FROM {table}{version}").collect()
    )


def arrow_rows(table: pa.Table) -> Rows:
    """The same multiset from an Arrow table."""
    return Counter(tuple(frozen(value) for value in row.values()) for row in table.to_pylist(maps_as_pydicts="strict"))


def frozen(value: Any) -> Hashable:
    """Return a hashable equal exactly to that of every equal Iceberg value.

    Floats compare as Iceberg's equality does: NaN is NaN, and 0.0 is not -0.0. A time with a zone becomes the same
    time in UTC, as Spark gives it under the session's settings. Structs and maps lose the order of their parts.
    """
    if isinstance(value, float):
        return ("float", value.hex())
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(UTC).replace(tzinfo=None)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, Mapping):
        return frozenset((frozen(key), frozen(part)) for key, part in value.items())
    if hasattr(value, "__fields__"):  # Spark's Row
        return frozenset((name, frozen(part)) for name, part in zip(value.__fields__, value, strict=True))
    if isinstance(value, list | tuple):
        return tuple(frozen(part) for part in value)
    if not isinstance(value, Hashable):
        raise ValueError(f"no multiset for values of {type(value).__name__}")
    return value
