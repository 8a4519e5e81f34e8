"""Tables, files and tasks for the engine's tests, with defaults."""

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.files.deletes.vectors import write_vectors
from amoro_core.files.row_groups.parquet_format import Bytes, FileMetaData, Struct, encoded
from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    DELETE_POS_FIELD_ID,
    DataFile,
    DeleteFile,
    DeleteKind,
    FileFormat,
    Partition,
)
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import CopyRule, InputFile, RewriteInput, RewriteOutput, TableContext
from amoro_optimizer.rewrite.engine import rewrite

ATTEMPT = Attempt(TaskId("01890000-0000-7000-8000-000000000001", 3), 2)
SEQUENCE = 7


def col(name: str, kind: pa.DataType, field_id: int, *, nullable: bool = True) -> pa.Field:
    """An Arrow field with a field id."""
    return pa.field(name, kind, nullable, metadata={b"PARQUET:field_id": str(field_id).encode()})


#: A number and a text.
NS = Schema(NestedField(1, "n", LongType()), NestedField(2, "s", StringType()))
NS_COLUMNS = [col("n", pa.int64(), 1), col("s", pa.string(), 2)]
#: Every row group is copied that can be.
EVERYTHING = CopyRule(0, 1024)


def access_to(root: Path) -> FileAccess:
    return open_access({}, str(root), read_locations=[str(root)], write_locations=[f"{root}/data"])


def context(
    root: Path,
    schema: Schema,
    *,
    spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
    name_mapping: str | None = None,
    dropped: Iterable[NestedField] = (),
    properties: Mapping[str, str] | None = None,
) -> TableContext:
    return TableContext(
        catalog="c",
        table="db.t",
        table_uuid="0e0e0e0e-0000-4000-8000-000000000000",
        format_version=2,
        location=str(root),
        data_location=f"{root}/data",
        schema_json=schema.model_dump_json(),
        spec_json=spec.model_dump_json(),
        name_mapping_json=name_mapping,
        dropped_fields_json=tuple(field.model_dump_json() for field in dropped),
        sort_order_json=None,
        properties=properties or {},
        read_locations=(str(root),),
    )


def data_file(
    root: Path,
    columns: Sequence[pa.Field],
    rows: Mapping[str, Sequence[Any]] | pa.Table,
    *,
    row_group_size: int | None = None,
    partition: Partition = (),
    spec_id: int = 0,
    **options: Any,
) -> DataFile:
    """A data file written by plain pyarrow."""
    table = rows if isinstance(rows, pa.Table) else pa.table(dict(rows), schema=pa.schema(columns))
    path = f"{root}/in/{uuid.uuid4()}.parquet"
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_group_size, **{"store_schema": False, **options})
    size = Path(path).stat().st_size
    return DataFile(path, FileFormat.PARQUET, spec_id, partition, table.num_rows, size, 1)


def numbered(root: Path, rows: int, first: int = 0, **options: Any) -> DataFile:
    """A file of `NS` with so many numbers, each with itself as text."""
    numbers = range(first, first + rows)
    return data_file(root, NS_COLUMNS, {"n": numbers, "s": [str(number) for number in numbers]}, **options)


def avro_file(root: Path, fields: Sequence[Mapping[str, Any]], rows: Sequence[Any], **options: Any) -> DataFile:
    """An Avro file with these fields."""
    path = root / "in" / f"{uuid.uuid4()}.avro"
    path.parent.mkdir(parents=True, exist_ok=True)
    schema = fastavro.parse_schema({"type": "record", "name": "table", "fields": fields})
    with path.open("wb") as out:
        fastavro.writer(out, schema, rows, **options)
    return DataFile(str(path), FileFormat.AVRO, 0, (), len(rows), path.stat().st_size, 1)


#: `NS` in Avro.
AVRO_NS = [{"name": "n", "type": "long", "field-id": 1}, {"name": "s", "type": ["null", "string"], "field-id": 2}]


def orc_file(root: Path, table: pa.Table) -> DataFile:
    path = root / "in" / f"{uuid.uuid4()}.orc"
    path.parent.mkdir(parents=True, exist_ok=True)
    orc.write_table(table, str(path), stripe_size=1024)
    return DataFile(str(path), FileFormat.ORC, 0, (), table.num_rows, path.stat().st_size, 1)


def orc_col(name: str, kind: pa.DataType, field_id: int) -> pa.Field:
    return pa.field(name, kind, metadata={b"iceberg.id": str(field_id).encode()})


ORC_NS = pa.schema([orc_col("n", pa.int64(), 1), orc_col("s", pa.string(), 2)])


def position_deletes(root: Path, entries: Sequence[tuple[str | None, int | None]], **options: Any) -> DeleteFile:
    """A position delete file with these entries, in this order."""
    columns = [col("file_path", pa.string(), DELETE_PATH_FIELD_ID), col("pos", pa.int64(), DELETE_POS_FIELD_ID)]
    rows = {"file_path": [path for path, _ in entries], "pos": [pos for _, pos in entries]}
    return as_delete(data_file(root, columns, rows, **options), DeleteKind.POSITION)


def equality_deletes(
    root: Path, ids: Sequence[int], columns: Sequence[pa.Field], rows: Mapping[str, Sequence[Any]] | pa.Table
) -> DeleteFile:
    return as_delete(data_file(root, columns, rows), DeleteKind.EQUALITY, ids)


def as_delete(file: DataFile, kind: DeleteKind, ids: Sequence[int] = ()) -> DeleteFile:
    """The file as a delete file."""
    return DeleteFile(
        file.path,
        kind,
        file.file_format,
        file.spec_id,
        file.partition,
        file.record_count,
        file.size_bytes,
        2,
        tuple(ids),
    )


def vectors_of(root: Path, *found: tuple[DataFile, list[int]]) -> tuple[DeleteFile, ...]:
    """Vectors of several data files, in one Puffin file."""
    path = f"{root}/data/{len(list(root.rglob('*.puffin')))}-in.puffin"
    made = write_vectors(access_to(root), path, [(data, PositionSet.of(some)) for data, some in found], 2)
    moved = Path(f"{root}/in/{Path(path).name}")
    Path(path).rename(moved)
    return tuple(replace(one, path=str(moved)) for one in made)


def task(
    table: TableContext,
    rewritten: Sequence[DataFile] = (),
    deletes: Sequence[DeleteFile] = (),
    *,
    applicable: Mapping[int, Sequence[int]] | None = None,
    converted: Sequence[DataFile] = (),
    output_count: int = 1,
    target_size_bytes: int = 128 << 20,
    copy: CopyRule | None = None,
) -> RewriteInput:
    """A task in which every delete applies to every file, or file number n to those of `applicable[n]`."""
    everything = tuple(range(len(deletes)))

    def chosen(number: int) -> tuple[int, ...]:
        return everything if applicable is None else tuple(applicable.get(number, ()))

    inputs = [InputFile(file, chosen(number)) for number, file in enumerate((*rewritten, *converted))]
    return RewriteInput(
        table=table,
        rewritten=tuple(inputs[: len(rewritten)]),
        converted=tuple(inputs[len(rewritten) :]),
        deletes=tuple(deletes),
        sequence_number=SEQUENCE,
        target_size_bytes=target_size_bytes,
        output_count=output_count,
        copy=copy,
    )


def run(work: RewriteInput, access: FileAccess | None = None, **options: Any) -> RewriteOutput:
    root = Path(work.table.location)
    defaults: dict[str, Any] = {
        "on_progress": lambda done, total: None,
        "is_cancelled": lambda: False,
        "memory_limit_bytes": 512 << 20,
    }
    return rewrite(work, access or access_to(root), ATTEMPT, **{**defaults, **options})


def rows_of(output: RewriteOutput) -> list[dict[str, Any]]:
    """The rows of all data files of a result, in order."""
    return [row for file in output.data_files for row in pq.read_table(file.path).to_pylist()]


def numbers_of(output: RewriteOutput) -> list[int]:
    """The column `n` of all data files of a result, in order."""
    return [n for file in output.data_files for n in pq.read_table(file.path, columns=["n"]).column("n").to_pylist()]


def groups_of(output: RewriteOutput) -> list[int]:
    """The number of rows of each row group."""
    footers = [pq.read_metadata(file.path) for file in output.data_files]
    return [one.row_group(number).num_rows for one in footers for number in range(one.num_row_groups)]


def written_under(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "data").rglob("*") if path.is_file())


def renamed(file: DataFile, path: str) -> DataFile:
    return replace(file, path=path)


def decoded(kind: type[Struct], content: bytes) -> Struct:
    """The Thrift struct at the begin of the bytes."""
    return Bytes(content).read(kind, 0)[0]


def footer_of(path: Path | str) -> tuple[bytes, bytes]:
    """What is before the footer of a Parquet file, and its bytes."""
    content = Path(path).read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:begin], content[begin:-8]


def with_footer(path: Path | str, before: bytes, footer: bytes) -> None:
    """Write a Parquet file of these two."""
    Path(path).write_bytes(before + footer + len(footer).to_bytes(4, "little") + b"PAR1")


def change_footer(path: Path | str, change: Callable[[Struct], object]) -> None:
    """Let the footer of a Parquet file say something else."""
    before, text = footer_of(path)
    footer = decoded(FileMetaData, text)
    change(footer)
    with_footer(path, before, encoded(footer))
