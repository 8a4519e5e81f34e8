"""Files of several writers with bytes turned, cut out or put in: what is copied of them never gives other rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema

from amoro_core.files.bound_merging import CopiedFile
from amoro_core.files.copy_bounds import compared_columns, require_told
from amoro_core.files.copy_source import NotCopied
from amoro_core.model.files import ColumnMetrics
from tests.unit.files.copies import (
    FLAT,
    NESTED,
    Writer,
    by_arrow,
    by_datafusion,
    by_duckdb,
    by_polars,
    flat_rows,
    nested_rows,
    output,
    source,
    told_of,
)

ROWS = 300
#: The ids that a condition asks for, and of how many rows they are; a filter may not hide any.
CONDITIONS = ((0, 0), (99, 101), (150, 249), (299, 299), (-9, -1), (300, 2**40))
CHECKED = partial(
    by_arrow,
    row_group_size=100,
    write_page_index=True,
    write_page_checksum=True,
    max_rows_per_page=40,
    write_batch_size=20,
)
#: With a checksum for each page.
CHECKED_WRITERS: dict[str, tuple[Writer, Schema]] = {
    f"arrow {version} {name}": (partial(CHECKED, data_page_version=version), schema)
    for version in ("1.0", "2.0")
    for name, schema in (("flat", FLAT), ("nested", NESTED))
}
#: Without any.
OTHER_WRITERS: dict[str, Writer] = {
    "duckdb": by_duckdb,
    "duckdb with data pages of version 2": partial(by_duckdb, parquet_version="v2", codec="zstd"),
    "polars": partial(by_polars, data_page_size=500),
    "datafusion": partial(by_datafusion, max_row_group_size=100, data_page_row_count_limit=20, write_batch_size=20),
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


def copied_whole(path: Path, schema: Schema, told: ColumnMetrics) -> Path | None:
    """The output with all row groups of the file, as a task makes it; None where something is not copied."""
    result = output(path.parent, schema, name=f"{path.stem}-out.parquet")
    try:
        one = source(path)
        require_told(one, compared_columns(one.schema, schema), schema, told, are_reached=True)
        for number in range(len(one.rows)):
            result.copy(one, number, CopiedFile(told, sum(one.rows)))
    except NotCopied:
        result.discard()
        return None
    return Path(result.close().path)


def rows_of(path: Path, like: pa.Schema) -> pa.Table | None:
    """None where nobody can read the file. Arrow does not where its own schema in the footer, never copied, is bad."""
    for read in (pq.read_table, lambda one: duckdb.sql(f"select * from '{one}'").to_arrow_table()):
        try:
            return read(path).cast(like)
        except (OSError, pa.ArrowException, duckdb.Error):
            continue
    return None


def by_arrows_filter(path: Path, low: int, high: int) -> int | None:
    try:
        return pq.read_table(path, columns=["id"], filters=[("id", ">=", low), ("id", "<=", high)]).num_rows
    except (OSError, pa.ArrowException):
        return None


def by_duckdbs_filter(path: Path, low: int, high: int) -> int | None:
    try:
        return len(duckdb.sql(f"select id from '{path}' where id between {low} and {high}").fetchall())
    except duckdb.Error:
        return None


def _text(rows: pa.Table) -> str:
    """In which NaN is NaN, and a text may be none in UTF-8: a turned bit can make either."""
    columns = (column.cast(pa.binary()) if pa.types.is_string(column.type) else column for column in rows.columns)
    return str([column.to_pylist() for column in columns])


def require_found(path: Path, made: Path, rows: pa.Table) -> None:
    """A condition finds what is there, or as much as it finds in the file that was copied, if that can be read."""
    ids = rows["id"].to_pylist()
    readers: tuple[Callable[[Path, int, int], int | None], ...] = (by_arrows_filter, by_duckdbs_filter)
    for low, high in CONDITIONS:
        there = sum(one is not None and low <= one <= high for one in ids)
        for read in readers:
            found = read(made, low, high)
            assert found == there or read(path, low, high) in (None, found), (read.__name__, low, high)


@pytest.mark.parametrize("name", CHECKED_WRITERS)
def test_damaged_files_with_checksums_never_give_other_rows(tmp_path: Path, name: str) -> None:
    """What is copied from a damaged file is as it was, or nothing is.

    How many entries a dictionary has is in no checksum: what is unreadable for that is as unreadable when copied.
    """
    chance, (writer, schema) = random.Random(name), CHECKED_WRITERS[name]
    rows = (flat_rows if schema is FLAT else nested_rows)(0, ROWS)
    writer(rows, tmp_path / "in.parquet")
    whole, told = (tmp_path / "in.parquet").read_bytes(), told_of(rows, tmp_path, schema)
    came_through = trials = 0
    while trials < 60 or (not came_through and trials < 600):
        path = tmp_path / f"{trials}.parquet"
        path.write_bytes(damaged(chance, whole))
        trials += 1
        made = copied_whole(path, schema, told)
        if made is None:
            continue
        if (after := rows_of(made, rows.schema)) is None:
            assert rows_of(path, rows.schema) is None
            continue
        assert after.equals(rows)
        require_found(path, made, rows)
        came_through += 1
    assert came_through


@pytest.mark.parametrize("name", OTHER_WRITERS)
def test_damaged_files_without_checksums_give_the_rows_that_they_have(tmp_path: Path, name: str) -> None:
    """What nobody can notice is as if it had been written so: the copy has the rows that decoding finds."""
    chance, outcomes = random.Random(name), Counter[str]()
    rows = flat_rows(0, ROWS)
    OTHER_WRITERS[name](rows, tmp_path / "in.parquet")
    whole, told = (tmp_path / "in.parquet").read_bytes(), told_of(rows, tmp_path, FLAT)
    for trial in range(60):
        path = tmp_path / f"{trial}.parquet"
        path.write_bytes(damaged(chance, whole))
        made = copied_whole(path, FLAT, told)
        if made is None:
            outcomes["not copied"] += 1
            continue
        before, after = rows_of(path, rows.schema), rows_of(made, rows.schema)
        assert (before and _text(before)) == (after and _text(after))
        outcomes["unreadable" if after is None else "as it was" if after.equals(rows) else "other values"] += 1
        if after is not None:
            require_found(path, made, after)
    assert outcomes["not copied"] >= 10
    assert outcomes["as it was"] + outcomes["other values"] >= 3
