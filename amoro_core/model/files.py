"""Data and delete files as a table's metadata describes them, row lineage, and marks in names of files."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

#: One value for each partition field, in Iceberg's single-value binary form; None is null.
#: Bytes compare and hash exactly, whatever the type (decimals, NaN, −0.0).
Partition = tuple[bytes | None, ...]


#: Field id of `file_path` in position delete files (Iceberg specification, reserved field ids).
DELETE_PATH_FIELD_ID = 2147483546
#: Field id of `pos` in position delete files.
DELETE_POS_FIELD_ID = 2147483545


#: {process}-{task}-{attempt}-{uuid}-deletes, where process is a UUIDv7: the name of a position delete file written by
#: one of our conversions.
_CONVERTED_NAME = re.compile(
    r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}-\d+-\d+-[0-9a-f-]{32,36}(-\d+)?-deletes\."
)


#: From this version of Iceberg's format on deletes by position are deletion vectors.
FORMAT_WITH_VECTORS = 3


class FileFormat(StrEnum):
    """The format of a file."""

    PARQUET = "parquet"
    AVRO = "avro"
    ORC = "orc"
    PUFFIN = "puffin"  # deletion vectors alone


class DeleteKind(StrEnum):
    """How a delete file identifies rows."""

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
    first_row_id: int | None = None  # of its first row; format 3 gives one to each file with its first commit there


class DeleteIdentity(NamedTuple):
    """The identity of a delete file; several deletion vectors may be parts of one file."""

    path: str
    offset: int
    size: int


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
    content_offset: int | None = None  # where a deletion vector begins in its file
    content_size_bytes: int | None = None
    #: The path and the part of the file; an ordinary delete is the whole file. A field: planning reads it very often.
    identity: DeleteIdentity = field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        size = self.size_bytes if self.content_size_bytes is None else self.content_size_bytes
        object.__setattr__(self, "identity", DeleteIdentity(self.path, self.content_offset or 0, size))

    @property
    def numbered(self) -> tuple[DeleteIdentity, int]:
        """The identity with the data sequence number, which decides what the delete applies to."""
        return self.identity, self.sequence_number

    @property
    def is_vector(self) -> bool:
        """Whether it is a deletion vector: a part of a Puffin file, of format 3."""
        return self.file_format is FileFormat.PUFFIN

    @property
    def named_file(self) -> str | None:
        """The path of the only data file that a position delete names, as Java's readers decide; None: maybe several.

        It is the referenced data file, or the path in both bounds if they are equal. A bound that is not UTF-8 was
        truncated within a character, so it is no path.
        """
        if self.kind is DeleteKind.EQUALITY or self.referenced_data_file is not None:
            return self.referenced_data_file
        lower = self.metrics.lower_bounds.get(DELETE_PATH_FIELD_ID)
        if lower is None or lower != self.metrics.upper_bounds.get(DELETE_PATH_FIELD_ID):
            return None
        try:
            return lower.decode()
        except UnicodeDecodeError:
            return None

    @property
    def is_converted(self) -> bool:
        """Whether a conversion of ours wrote the position delete, for the one file that it names."""
        return self.named_file is not None and _CONVERTED_NAME.match(self.path.rpartition("/")[2]) is not None

    @property
    def path_bounds(self) -> tuple[str, str] | None:
        """Lower and upper bound of the data file paths that a position delete may name; None when not known.

        Writers may truncate bounds: the upper one is then not a path, but still not below any path.
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
    """A live data file with every delete file that applies to it, sorted by sequence number and path."""

    data: DataFile
    deletes: tuple[DeleteFile, ...] = ()

    @property
    def carried_through(self) -> int:
        """The sequence number up to which deletes are folded into the file's own position delete; −1 without one.

        A conversion planned at a number folds in all applicable deletes up to it, and its position delete carries that
        number. A delete added later with a lower number repeats earlier ones, as Spark's compaction of deletes does.
        """
        return max((delete.sequence_number for delete in self.deletes if delete.is_converted), default=-1)


@dataclass(frozen=True, slots=True)
class TableScan:
    """All live files of one snapshot. `dangling` deletes apply to no live data file.

    The files are rows, or columns that make rows on access.
    """

    snapshot_id: int
    sequence_number: int
    files: Sequence[ScannedFile]
    dangling: tuple[DeleteFile, ...] = ()
    unpartitioned_specs: frozenset[int] = frozenset()  # specs whose equality deletes are global
    format_version: int = 2  # of the table

    @property
    def has_vectors(self) -> bool:
        """Whether deletes by position are vectors: what remains of position delete files is folded into them."""
        return self.format_version >= FORMAT_WITH_VECTORS


#: Field id of `_row_id`: the row's own number, which it keeps whatever file holds it.
ROW_ID_FIELD_ID = 2147483540
#: Field id of `_last_updated_sequence_number`: the sequence number of the commit that wrote the row's values.
LAST_UPDATED_FIELD_ID = 2147483539
#: Both, in the order in which files have them, behind the table's columns.
LINEAGE_IDS = (ROW_ID_FIELD_ID, LAST_UPDATED_FIELD_ID)
LINEAGE_NAMES = ("_row_id", "_last_updated_sequence_number")
#: The format version from which on rows have lineage.
FORMAT_WITH_LINEAGE = 3
