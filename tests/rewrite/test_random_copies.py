"""Random tables and files, rewritten by copying what can be copied: the rows are those of the slow reader, in order."""

from __future__ import annotations

import random
import tempfile
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema

from amoro_core.errors import UnreadableFile
from amoro_core.files.row_groups.checks import NotCopied, open_source
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.task_payload import CopyRule
from tests.rewrite.checking import assert_holding_metrics, read_rows, rewritten
from tests.rewrite.random_copies import (
    FIELDS,
    KEY,
    Writer,
    by_arrow,
    by_datafusion,
    by_duckdb,
    by_polars,
    copy_files,
    make_rows,
    told_of,
)
from tests.rewrite.random_tables import random_work
from tests.tiers import count, seeds
from tests.unit.rewrite.builders import EVERYTHING, context, run, task


def test_random_tables_keep_their_rows_when_they_are_copied(warehouse: tuple[Catalog, CatalogConfig]) -> None:
    copied = encoded = 0
    for seed in seeds(4, 12):
        made, live, works = random_work(*warehouse, seed)
        for work in works:
            work = replace(work, copy=CopyRule(0, made.chance.choice((2, 1024, 1024))))
            output = rewritten(work, made.chance.choice((512 << 20, 8 << 20)))
            schema = Schema.model_validate_json(work.table.schema_json)
            expected = [row.row for file in work.rewritten for row in live.get(file.data.path, ())]
            assert [row for file in output.data_files for row in read_rows(file, schema)] == expected, seed
            # Rows that can't be encoded as those that were copied are stored have a file of their own.
            is_mixed = 0 < output.files_copied < len(work.rewritten)
            assert len(output.data_files) <= work.output_count + is_mixed, seed
            for file in output.data_files:
                assert_holding_metrics(file, schema)
            copied += output.files_copied
            encoded += len(work.rewritten) - output.files_copied
            assert bool(output.encoded_because) == (output.files_copied < len(work.rewritten)), seed
            assert sum(output.encoded_files.values()) == len(work.rewritten) - output.files_copied, seed
    # Both ways were taken.
    assert min(copied, encoded) > 0


def test_random_files_of_several_writers_are_copied_as_they_are() -> None:
    """The first ones of the proof `copies`."""
    totals: Counter[str] = Counter()
    for number in range(count(12, 40)):
        with tempfile.TemporaryDirectory() as made:
            copy_files(Path(made), number, totals)
    assert totals["files copied whole"] >= totals["files"] // 4
    # Of tasks of which every file was.
    kinds = ("arrow", "duckdb", "polars", "datafusion")
    assert min(totals[f"files of {kind} copied whole"] for kind in kinds) >= count(0, 1)


# Damage: what is copied of a file with bytes turned, cut out or put in never gives other rows

ROWS = 300
FLAT = Schema(KEY, *FIELDS[:3])
NESTED = Schema(KEY, *FIELDS[-4:])
#: The ids that a condition asks for: a filter may not hide any.
CONDITIONS = ((0, 0), (99, 101), (150, 249), (299, 299), (-9, -1), (300, 2**40))
CHECKED = partial(
    by_arrow,
    row_group_size=100,
    write_page_index=True,
    write_page_checksum=True,
    max_rows_per_page=40,
    write_batch_size=20,
)
#: The first four with a checksum for each page.
DAMAGED: dict[str, tuple[Writer, Schema]] = {
    **{
        f"arrow {version} {name}": (partial(CHECKED, data_page_version=version), schema)
        for version in ("1.0", "2.0")
        for name, schema in (("flat", FLAT), ("nested", NESTED))
    },
    "duckdb": (by_duckdb, FLAT),
    "duckdb with data pages of version 2": (partial(by_duckdb, parquet_version="v2", codec="zstd"), FLAT),
    "polars": (partial(by_polars, data_page_size=500), FLAT),
    "datafusion": (
        partial(by_datafusion, max_row_group_size=100, data_page_row_count_limit=20, write_batch_size=20),
        FLAT,
    ),
}


def damaged(chance: random.Random, whole: bytes) -> bytes:
    """Bytes changed, cut out or put in: footers and headers are a small part, but most can go wrong in them."""
    content = bytearray(whole)
    for _ in range(chance.choice((1, 1, 1, 3))):
        at = chance.randrange(chance.choice((0, len(content) * 2 // 3)), len(content))
        match chance.random():
            case way if way < 0.6:
                content[at] = chance.choice((content[at] ^ (1 << chance.randrange(8)), chance.randrange(256)))
            case way if way < 0.8:
                del content[at : at + chance.choice((1, 1, 4, 100))]
            case _:
                content[at:at] = chance.randbytes(chance.choice((1, 1, 4, 100)))
    return bytes(content)


def is_openable(content: bytes) -> bool:
    """Whether its footer is sound: Arrow ends the process that decodes some of the others."""
    try:
        open_source(lambda at, length: content[at : at + length], len(content), content)
    except NotCopied:
        return False
    return True


def rows_of(path: str, like: pa.Schema) -> pa.Table | None:
    """None where nobody can read the file. Arrow does not where its own schema in the footer, never copied, is bad."""
    for read in (pq.read_table, lambda one: duckdb.sql(f"select * from '{one}'").to_arrow_table()):
        try:
            return read(path).cast(like)
        except (OSError, pa.ArrowException, duckdb.Error):
            continue
    return None


def by_arrows_filter(path: str, low: int, high: int) -> int | None:
    try:
        return pq.read_table(path, columns=["id"], filters=[("id", ">=", low), ("id", "<=", high)]).num_rows
    except (OSError, pa.ArrowException):
        return None


def by_duckdbs_filter(path: str, low: int, high: int) -> int | None:
    try:
        return len(duckdb.sql(f"select id from '{path}' where id between {low} and {high}").fetchall())
    except duckdb.Error:
        return None


def _text(rows: pa.Table) -> str:
    """In which NaN is NaN, and a text may be none in UTF-8: a turned bit can make either."""
    columns = (column.cast(pa.binary()) if pa.types.is_string(column.type) else column for column in rows.columns)
    return str([column.to_pylist() for column in columns])


def require_found(path: str, made: str, rows: pa.Table) -> None:
    """A condition finds what is there, or as much as it finds in the file that was copied, if that can be read."""
    ids = rows["id"].to_pylist()
    readers: tuple[Callable[[str, int, int], int | None], ...] = (by_arrows_filter, by_duckdbs_filter)
    for low, high in CONDITIONS:
        there = sum(one is not None and low <= one <= high for one in ids)
        for read in readers:
            found = read(made, low, high)
            assert found == there or read(path, low, high) in (None, found), (read.__name__, low, high)


@pytest.mark.parametrize("name", DAMAGED)
def test_what_is_copied_of_damaged_files_gives_no_other_rows(tmp_path: Path, name: str) -> None:
    """Those that it had where pages have checksums, or nothing; else those that decoding finds: nobody can notice.

    How many entries a dictionary has is in no checksum: what is unreadable for that is as unreadable when copied.
    """
    chance, (writer, schema), outcomes = random.Random(name), DAMAGED[name], Counter[str]()
    rows = make_rows(chance, schema, 0, ROWS)
    writer(rows, tmp_path / "in.parquet")
    whole, told = (tmp_path / "in.parquet").read_bytes(), told_of(rows, tmp_path, schema)
    for trial in range(count(20, 100)):
        path, content = tmp_path / f"{trial}.parquet", damaged(chance, whole) if trial else whole
        path.write_bytes(content)
        file = DataFile(str(path), FileFormat.PARQUET, 0, (), ROWS, len(content), 1, told)
        try:
            output = run(task(context(tmp_path, schema), [file], copy=EVERYTHING)) if is_openable(content) else None
        except UnreadableFile:
            output = None
        if output is None or not output.files_copied:
            outcomes["not copied"] += 1
            continue
        (made,) = output.data_files
        before, after = rows_of(file.path, rows.schema), rows_of(made.path, rows.schema)
        if after is None:
            outcomes["unreadable"] += 1
            assert before is None
            continue
        if name.startswith("arrow"):
            assert _text(after) == _text(rows)
        else:
            assert before is not None
            assert _text(before) == _text(after)
        require_found(file.path, made.path, after)
        outcomes["as it was" if _text(after) == _text(rows) else "other values"] += 1
    assert outcomes["not copied"] >= 5
    assert outcomes["as it was"] >= 1
