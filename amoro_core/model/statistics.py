"""Statistics of a table that lie in files beside its data: of columns (Puffin), and of partitions (Parquet)."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ColumnSketch:
    """How many different values a column has, as a sketch in its serialized form."""

    field_id: int
    ndv: int  # the sketch's estimate
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class StatisticsEntry:
    """An entry of the metadata that names a file with statistics of a snapshot."""

    snapshot_id: int
    path: str
    size_bytes: int
    ndv_fields: frozenset[int] = frozenset()  # ids of the columns whose different values it counts; of partitions none


@dataclass(frozen=True, slots=True)
class KnownStatistics:
    """All entries of a table's metadata."""

    columns: tuple[StatisticsEntry, ...] = ()
    partitions: tuple[StatisticsEntry, ...] = ()

    @property
    def every(self) -> tuple[StatisticsEntry, ...]:
        """Those of columns, then those of partitions."""
        return (*self.columns, *self.partitions)


@dataclass(frozen=True, slots=True)
class StagedStatistics:
    """Statistics whose files are written, ready to be named by the metadata."""

    payload: bytes = field(repr=False)  # to be sent any number of times byte for byte
    written: tuple[StatisticsEntry, ...]  # named once it is sent
    partitions: int = 0  # rows of the file of partitions
