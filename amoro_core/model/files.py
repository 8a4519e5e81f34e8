"""Data and delete files as a table's metadata describes them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: One value for each partition field, in Iceberg's single-value binary form; None is null.
#: Bytes compare and hash exactly, whatever the type (decimals, NaN, −0.0).
Partition = tuple[bytes | None, ...]


#: Field id of `file_path` in position delete files (Iceberg specification, reserved field ids).
DELETE_PATH_FIELD_ID = 2147483546
#: Field id of `pos` in position delete files.
DELETE_POS_FIELD_ID = 2147483545


class FileFormat(StrEnum):
    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"


class DeleteKind(StrEnum):
    POSITION = "position"
    EQUALITY = "equality"


@dataclass(frozen=True, slots=True)
class ColumnMetrics:
    """Counts and bounds by field id, as in a manifest entry; a missing key means "not known"."""

    column_sizes: Mapping[int, int] = field(default_factory=dict)
    value_counts: Mapping[int, int] = field(default_factory=dict)
    null_value_counts: Mapping[int, int] = field(default_factory=dict)
    nan_value_counts: Mapping[int, int] = field(default_factory=dict)
    lower_bounds: Mapping[int, bytes] = field(default_factory=dict)
    upper_bounds: Mapping[int, bytes] = field(default_factory=dict)


NO_METRICS = ColumnMetrics()


@dataclass(frozen=True, slots=True)
class DataFile:
    """A data file that is (or is to become) part of a table."""

    path: str
    file_format: FileFormat
    spec_id: int
    partition: Partition
    record_count: int
    size_bytes: int
    sequence_number: int  # the data sequence number, 0 in format 1
    metrics: ColumnMetrics = field(default=NO_METRICS, hash=False)
    sort_order_id: int | None = None
    split_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeleteFile:
    """A position or equality delete file."""

    path: str
    kind: DeleteKind
    file_format: FileFormat
    spec_id: int
    partition: Partition
    record_count: int
    size_bytes: int
    sequence_number: int
    equality_ids: tuple[int, ...] = ()
    referenced_data_file: str | None = None
    metrics: ColumnMetrics = field(default=NO_METRICS, hash=False)
    split_offsets: tuple[int, ...] = ()

    @property
    def path_bounds(self) -> tuple[str, str] | None:
        """The least and the greatest data file path a position delete may name; None when not known.

        Writers may shorten bounds: the upper one then is no path but still not below any path.
        """
        if self.referenced_data_file is not None:
            return self.referenced_data_file, self.referenced_data_file
        lower = self.metrics.lower_bounds.get(DELETE_PATH_FIELD_ID)
        upper = self.metrics.upper_bounds.get(DELETE_PATH_FIELD_ID)
        if lower is None or upper is None:
            return None
        return lower.decode(errors="surrogateescape"), upper.decode(errors="surrogateescape")


@dataclass(frozen=True, slots=True)
class ScannedFile:
    """A live data file with every delete file that applies to it, ordered by sequence number and path."""

    data: DataFile
    deletes: tuple[DeleteFile, ...] = ()


@dataclass(frozen=True, slots=True)
class TableScan:
    """All live files of one snapshot. `dangling` deletes apply to no live data file."""

    snapshot_id: int
    sequence_number: int
    files: tuple[ScannedFile, ...]
    dangling: tuple[DeleteFile, ...] = ()
