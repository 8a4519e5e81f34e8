"""Statistics of a table in files beside its data: of columns (Puffin), and of partitions (Parquet)."""

from dataclasses import field

from amoro_core.records import record


@record
class ColumnSketch:
    """The serialized sketch of a column's number of distinct values."""

    field_id: int
    ndv: int  # the sketch's estimate
    payload: bytes = field(repr=False)


@record
class StatisticsEntry:
    """An entry of the metadata that names a file with statistics of a snapshot."""

    snapshot_id: int
    path: str
    size_bytes: int
    ndv_fields: frozenset[int] = frozenset()  # ids of the columns whose distinct values it counts; empty for partitions


@record
class KnownStatistics:
    """All entries of a table's metadata."""

    columns: tuple[StatisticsEntry, ...] = ()
    partitions: tuple[StatisticsEntry, ...] = ()

    @property
    def every(self) -> tuple[StatisticsEntry, ...]:
        """All entries: of columns, then of partitions."""
        return (*self.columns, *self.partitions)


@record
class StagedStatistics:
    """Statistics whose files are written, but not referenced by the metadata yet."""

    payload: bytes = field(repr=False)  # can be sent repeatedly, byte for byte
    written: tuple[StatisticsEntry, ...]  # referenced once it is sent
    partitions: int = 0  # rows of the file of partitions
