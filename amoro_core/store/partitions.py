"""When each partition was last optimized, by type, in `table_partition`."""

import struct
from collections.abc import Iterable
from datetime import datetime

from amoro_core.model.files import Partition
from amoro_core.model.plans import PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms_or_none, to_ms

_LENGTH = struct.Struct(">i")
_NULL = -1

_RECORD = {
    OptimizingType.MINOR: (
        "INSERT INTO table_partition (table_id, spec_id, partition, minor_at_ms) "
        "VALUES (:table_id, :spec_id, :partition, :at_ms) "
        "ON CONFLICT (table_id, spec_id, partition) DO UPDATE SET minor_at_ms = excluded.minor_at_ms"
    ),
    OptimizingType.MAJOR: (
        "INSERT INTO table_partition (table_id, spec_id, partition, major_at_ms) "
        "VALUES (:table_id, :spec_id, :partition, :at_ms) "
        "ON CONFLICT (table_id, spec_id, partition) DO UPDATE SET major_at_ms = excluded.major_at_ms"
    ),
    OptimizingType.FULL: (
        "INSERT INTO table_partition (table_id, spec_id, partition, full_at_ms) "
        "VALUES (:table_id, :spec_id, :partition, :at_ms) "
        "ON CONFLICT (table_id, spec_id, partition) DO UPDATE SET full_at_ms = excluded.full_at_ms"
    ),
}


def last_optimized(db: Connection, table_id: int) -> dict[PartitionKey, LastOptimized]:
    """The last times of each partition that was ever optimized."""
    rows = db.select(
        "SELECT * FROM table_partition WHERE table_id = :table_id ORDER BY spec_id, partition", {"table_id": table_id}
    )
    return {
        PartitionKey(row["spec_id"], _decode(row["partition"])): LastOptimized(
            minor=from_ms_or_none(row["minor_at_ms"]),
            major=from_ms_or_none(row["major_at_ms"]),
            full=from_ms_or_none(row["full_at_ms"]),
        )
        for row in rows
    }


def record(db: Connection, table_id: int, keys: Iterable[PartitionKey], type_: str, at: datetime) -> None:
    """Note that these partitions were optimized with this type; the times of other types stay."""
    for key in keys:
        db.execute(
            _RECORD[OptimizingType(type_)],
            {"table_id": table_id, "spec_id": key.spec_id, "partition": _encode(key.partition), "at_ms": to_ms(at)},
        )


def forget(db: Connection, table_id: int) -> None:
    """Delete the times of the table's partitions."""
    db.execute("DELETE FROM table_partition WHERE table_id = :table_id", {"table_id": table_id})


def _encode(partition: Partition) -> bytes:
    """Each value after its length in four bytes; a null has the length −1."""
    return b"".join(_LENGTH.pack(_NULL) if value is None else _LENGTH.pack(len(value)) + value for value in partition)


def _decode(blob: bytes) -> Partition:
    values: list[bytes | None] = []
    position = 0
    while position < len(blob):
        (length,) = _LENGTH.unpack_from(blob, position)
        position += _LENGTH.size
        values.append(None if length == _NULL else blob[position : position + length])
        position += max(length, 0)
    return tuple(values)
