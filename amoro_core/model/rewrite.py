"""The work of one rewrite task and its result."""

from collections.abc import Mapping
from dataclasses import dataclass

from amoro_core.model.files import DataFile, DeleteFile


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


@dataclass(frozen=True, slots=True)
class InputFile:
    """A data file with the indexes (into the input's deletes) of the deletes that apply to it."""

    data: DataFile
    deletes: tuple[int, ...] = ()


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
