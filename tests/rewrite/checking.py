"""A table's files rewritten by the engine, and what came out compared with what the slow reader says."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from pyiceberg.schema import Schema

from amoro_core.files.storage.io import FileAccess, open_access
from amoro_core.model.files import DataFile, DeleteFile, DeleteKind, FileFormat, ScannedFile
from amoro_core.model.processes import Attempt, TaskId
from amoro_core.model.task_payload import InputFile, RewriteInput, RewriteOutput, TableContext
from tests.engine.files import POSITION_SCHEMA
from tests.engine.oracle import LiveRow
from tests.engine.parquet_rows import read_parquet
from tests.engine.values import Row, canonical

Rewrite = Callable[[RewriteInput, FileAccess, Attempt], RewriteOutput]
ATTEMPT = Attempt(TaskId("0197c0de-0000-7000-8000-000000000001", 1), 1)


def access_to(table: TableContext) -> FileAccess:
    """Access as the optimizer has it."""
    return open_access(
        {},
        table.location,
        read_locations=table.read_locations,
        write_locations=(table.location, table.data_location),
    )


def tasks(table: Any, chance: random.Random) -> list[RewriteInput]:
    """One task for each partition; files that have deletes are rewritten or converted by chance.

    Tables that are refused for their keys are taken, too: whoever verifies such a table reads it.
    """
    snapshot_id = table.facts.snapshot_id
    scan = None if snapshot_id is None else table.scan_of(snapshot_id)
    if scan is None:
        return []
    places: defaultdict[Any, list[ScannedFile]] = defaultdict(list)
    for file in scan.files:
        places[file.data.spec_id, file.data.partition].append(file)
    found = []
    for (spec_id, _), files in places.items():
        deletes = tuple(dict.fromkeys(delete for file in files for delete in file.deletes))
        inputs = [InputFile(file.data, tuple(deletes.index(one) for one in file.deletes)) for file in files]
        converted = [one for one in inputs if one.deletes and chance.random() < 0.4]
        found.append(
            RewriteInput(
                table=table.context(spec_id),
                rewritten=tuple(one for one in inputs if one not in converted),
                converted=tuple(converted),
                deletes=deletes,
                sequence_number=scan.sequence_number,
                target_size_bytes=1 << 27,
                output_count=chance.randint(1, 3),
            )
        )
    return found


def assert_right(work: RewriteInput, output: RewriteOutput, live: Mapping[str, Sequence[LiveRow]]) -> None:
    """Fail unless the outputs hold exactly the live rows of the task's files, in their order, and say so truly."""
    schema = Schema.model_validate_json(work.table.schema_json)
    expected = [row.row for file in work.rewritten for row in live.get(file.data.path, ())]
    written: list[Row] = []
    for file in output.data_files:
        rows = read_rows(file, schema)
        assert len(rows) == file.record_count
        written += rows
    assert written == expected
    sizes = sorted(file.record_count for file in output.data_files)
    assert len(sizes) == min(work.output_count, len(expected))
    assert not sizes or sizes[-1] - sizes[0] <= 1
    read = sum(file.data.record_count for file in work.rewritten)
    assert (output.rows_read, output.rows_deleted) == (read, read - len(expected))
    assert output.rows_written == len(expected)
    assert {(file.spec_id, file.partition) for file in output.data_files} <= {_place(work)}
    assert {file.sequence_number for file in output.data_files} <= {work.sequence_number}
    positions = {file.data.path: _deleted(file.data, live.get(file.data.path, ())) for file in work.converted}
    made = {file.referenced_data_file: read_positions(file) for file in output.delete_files}
    assert made == {path: gone for path, gone in positions.items() if gone}
    assert output.positions_written == sum(map(len, positions.values()))


def _place(work: RewriteInput) -> tuple[int, Any]:
    first = (*work.rewritten, *work.converted)[0].data
    return first.spec_id, first.partition


def _deleted(data: DataFile, live: Iterable[LiveRow]) -> list[int]:
    return sorted(set(range(data.record_count)) - {row.position for row in live})


def read_rows(file: DataFile, schema: Schema) -> list[Row]:
    """The canonical rows of a written file, in their order, read as another engine reads them."""
    assert file.file_format is FileFormat.PARQUET
    kind = schema.as_struct()
    return [canonical(kind, row) for row in read_parquet(file.path, None, {}).records(kind)]


def read_positions(file: DeleteFile) -> list[int]:
    """The positions of a file-scoped position delete file, which are ascending and each there once."""
    assert file.kind is DeleteKind.POSITION
    rows = read_parquet(file.path, None, {}).records(POSITION_SCHEMA.as_struct())
    assert {row["file_path"] for row in rows} == {file.referenced_data_file}
    positions = [row["pos"] for row in rows]
    assert all(low < high for low, high in pairwise(positions))
    assert len(positions) == file.record_count
    return positions
