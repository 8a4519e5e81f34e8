"""Tables, files and tasks for the engine's tests, with defaults."""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from amoro_core.files.io import FileAccess, open_access
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
from amoro_core.model.rewrite import InputFile, RewriteInput, RewriteOutput, TableContext
from amoro_optimizer.rewrite.engine import rewrite

ATTEMPT = Attempt(TaskId("01890000-0000-7000-8000-000000000001", 3), 2)
SEQUENCE = 7


def col(name: str, kind: pa.DataType, field_id: int, *, nullable: bool = True) -> pa.Field:
    """An Arrow field with a field id."""
    return pa.field(name, kind, nullable, metadata={b"PARQUET:field_id": str(field_id).encode()})


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


def position_deletes(root: Path, entries: Sequence[tuple[str | None, int | None]], **options: Any) -> DeleteFile:
    """A position delete file with these entries, in this order."""
    columns = [col("file_path", pa.string(), DELETE_PATH_FIELD_ID), col("pos", pa.int64(), DELETE_POS_FIELD_ID)]
    rows = {"file_path": [path for path, _ in entries], "pos": [pos for _, pos in entries]}
    return _delete(data_file(root, columns, rows, **options), DeleteKind.POSITION, ())


def equality_deletes(
    root: Path, ids: Sequence[int], columns: Sequence[pa.Field], rows: Mapping[str, Sequence[Any]] | pa.Table
) -> DeleteFile:
    return _delete(data_file(root, columns, rows), DeleteKind.EQUALITY, tuple(ids))


def _delete(file: DataFile, kind: DeleteKind, ids: tuple[int, ...]) -> DeleteFile:
    return DeleteFile(
        file.path, kind, file.file_format, file.spec_id, file.partition, file.record_count, file.size_bytes, 2, ids
    )


def task(
    table: TableContext,
    rewritten: Sequence[DataFile] = (),
    deletes: Sequence[DeleteFile] = (),
    *,
    applicable: Mapping[int, Sequence[int]] | None = None,
    converted: Sequence[DataFile] = (),
    output_count: int = 1,
    target_size_bytes: int = 128 << 20,
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


def written_under(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in (root / "data").rglob("*") if path.is_file())


def renamed(file: DataFile, path: str) -> DataFile:
    return replace(file, path=path)
