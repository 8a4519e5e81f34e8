"""The work of a task and its result, as sent: a kind, and the kind's own message."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta

from amoro_core.model.files import DataFile, DeleteFile

#: Files rewritten and converted; the one kind that is always known.
REWRITE = "rewrite"
#: Files listed, and those found unreferenced; condemned files deleted; values of columns counted.
LIST, DELETE, SKETCH = "list", "delete", "sketch"
#: A service of a table by its format's own engine, which commits it: optimizers on Spark that have the engine's jar.
PROCEDURE_HUDI, PROCEDURE_PAIMON = "procedure:hudi", "procedure:paimon"
#: By the format of the tables: the `type` of their catalogs, and the module in `formats`.
PROCEDURES = {"hudi": PROCEDURE_HUDI, "paimon": PROCEDURE_PAIMON}
#: An option of Hudi's, "true" where a person asks for a plan that somebody has begun, and says that nobody is at it.
TAKE_OVER = "amoro.take-over"
#: How long a procedure that was stopped may go on: then its JVM is killed. The next attempt begins later still.
PROCEDURE_GRACE = timedelta(seconds=15)


def procedures_of(formats: Iterable[str]) -> tuple[str, ...]:
    """The kinds of procedures that tables of these formats need."""
    return tuple(sorted(PROCEDURES[name] for name in set(formats) & PROCEDURES.keys()))


@dataclass(frozen=True, slots=True)
class Work:
    """The work of a task; `payload` is the protobuf message of its kind."""

    kind: str
    payload: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class WorkResult:
    """The result of work; `payload` is the result message of its kind."""

    kind: str
    payload: bytes = field(repr=False)


#: What the names of files end with that tell which rows a task left out: no commit ever has such a file.
MAP_ENDING = "-applied.puffin"


@dataclass(frozen=True, slots=True)
class TableContext:
    """What an executor must know about the table, as of the plan; JSON as in the Iceberg specification, appendix C."""

    catalog: str
    table: str
    table_uuid: str
    format_version: int
    location: str
    data_location: str  # the prefix below which outputs are written
    schema_json: str  # the schema of the outputs
    spec_json: str  # the spec of the inputs and of the outputs
    name_mapping_json: str | None
    dropped_fields_json: tuple[str, ...]  # columns that only equality deletes still name
    sort_order_json: str | None
    properties: Mapping[str, str]  # the table's properties that concern a writer (write.*)
    read_locations: tuple[str, ...]  # prefixes below which inputs may lie
    once_unknown: tuple[int, ...] = ()  # ids of compared columns that had the type unknown: deletes may lack them


@dataclass(frozen=True, slots=True)
class InputFile:
    """A data file with the indexes (into the input's deletes) of the deletes that apply to it."""

    data: DataFile
    deletes: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class CopyRule:
    """Which row groups are copied byte for byte instead of decoded and encoded."""

    min_row_group_bytes: int  # files whose row groups are smaller on average are encoded; 0: none, outputs are coarse
    max_row_groups: int  # of one output; what is beyond is encoded
    verifies: bool = True  # pages are compared with their checksums and indexes before they are copied

    def is_coarse(self, size_bytes: int, rows: int, row_groups: int, row_limit: int) -> bool:
        """Whether a file's row groups are so small, in bytes and in rows, that it gains by being encoded anew.

        `row_limit`: the most rows of a row group as they are written. A narrow table reaches it long before the bytes:
        encoding its files again would change nothing.
        """
        return size_bytes < self.min_row_group_bytes * row_groups and 2 * rows < row_limit * row_groups


@dataclass(frozen=True, slots=True)
class RewriteInput:
    """Everything a rewrite needs. All files share one (spec, partition); each delete is listed once."""

    table: TableContext
    rewritten: tuple[InputFile, ...]  # read with their deletes and rewritten
    converted: tuple[InputFile, ...]  # kept; the deletes of each become one position delete file
    deletes: tuple[DeleteFile, ...]
    sequence_number: int  # S, the sequence number of the plan's snapshot: outputs carry it
    target_size_bytes: int
    output_count: int  # outputs expected, of even size
    marks_converted: bool = False  # a converted file gets its position delete even without positions, as a mark
    copy: CopyRule | None = None  # None: nothing is copied
    tells_left_out: bool = False  # the result tells which rows of each rewritten file it left out
    max_hidden_ratio: float = 0.0  # of an output's rows, hidden where an input is gone when it is committed
    may_reorder: bool = False  # the rewritten files may be written in another order, which the result tells


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """The rows of one rewritten file that the outputs do not hold, as a deletion vector in the file of the map."""

    input: int  # index into the rewritten files
    content_offset: int
    content_size_bytes: int
    record_count: int  # at least one


@dataclass(frozen=True, slots=True)
class PositionMap:
    """Where each row of the rewritten files went.

    The outputs are the rows of the rewritten files, in their order or in `order`, without these, cut at the outputs'
    record counts.
    """

    path: str  # of a Puffin file; empty where every row is in an output
    size_bytes: int
    left_out: tuple[DeletedRows, ...]  # in the order of the inputs; inputs that lost no row are missing
    order: tuple[int, ...] = ()  # indexes into the rewritten files as they were written; empty: as they are


@dataclass(frozen=True, slots=True)
class RewriteOutput:
    """The result of a rewrite. Rows are those of the rewritten files only: read − deleted = written."""

    data_files: tuple[DataFile, ...]
    delete_files: tuple[DeleteFile, ...]
    rows_read: int
    rows_deleted: int
    rows_written: int
    positions_written: int  # entries of the position delete files for converted files
    bytes_read: int
    duration_ms: int
    peak_memory_bytes: int
    files_copied: int = 0  # rewritten files of which no row was decoded
    encoded_because: str = ""  # the commonest reason why the others were not, where copying is allowed
    encoded_files: Mapping[str, int] = field(default_factory=dict)  # how many others for each reason, the commonest
    position_map: PositionMap | None = None  # None: not known
