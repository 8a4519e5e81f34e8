"""Tasks that copy row groups byte for byte: which they copy, which they decode, and what the outputs hold."""

from __future__ import annotations

import math
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import DoubleType, LongType, NestedField, StringType

from amoro_core.errors import AttemptAbandoned, UnreadableFile
from amoro_core.files.row_groups.merge import split_offsets
from amoro_core.model.clustering import is_copied
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile
from amoro_core.model.task_payload import CopyRule, RewriteOutput

from .builders import (
    AVRO_NS,
    EVERYTHING,
    NS,
    NS_COLUMNS,
    ORC_NS,
    avro_file,
    col,
    context,
    data_file,
    equality_deletes,
    groups_of,
    numbered,
    numbers_of,
    orc_file,
    position_deletes,
    run,
    task,
    written_under,
)


def file(root: Path, first: int = 0, count: int = 100, **options: Any) -> DataFile:
    """Ascending numbers in row groups of ten rows."""
    return numbered(root, count, first, row_group_size=10, **{"write_page_checksum": True, **options})


def copying(
    root: Path,
    files: list[DataFile],
    deletes: list[DeleteFile] | None = None,
    rule: CopyRule | None = EVERYTHING,
    *,
    schema: Schema = NS,
    properties: dict[str, str] | None = None,
    limit: int = 512 << 20,
    **more: Any,
) -> RewriteOutput:
    table = context(root, schema, properties=properties)
    return run(task(table, files, deletes or [], copy=rule, **more), memory_limit_bytes=limit)


def test_files_without_deletes_are_copied_where_a_rule_allows_it(tmp_path: Path) -> None:
    files = [file(tmp_path), file(tmp_path, 100)]
    output = copying(tmp_path, files)
    assert (numbers_of(output), groups_of(output)) == (list(range(200)), [10] * 20)
    assert (output.files_copied, output.encoded_because) == (2, "")
    assert (output.rows_read, output.rows_deleted, output.rows_written) == (200, 0, 200)
    (made,) = output.data_files
    assert (made.sort_order_id, made.split_offsets, made.record_count) == (0, (4,), 200)
    output = copying(tmp_path, files, rule=None)
    assert (numbers_of(output), groups_of(output), output.files_copied) == (list(range(200)), [200], 0)


def test_files_of_which_a_row_is_deleted_are_decoded_in_their_place(tmp_path: Path) -> None:
    files = [file(tmp_path, 100 * number) for number in range(5)]
    gone = [115, 127, *range(140, 150)]
    deletes = [
        position_deletes(tmp_path, [(files[1].path, n - 100) for n in gone]),
        equality_deletes(tmp_path, [1], NS_COLUMNS[:1], {"n": [299, 1000]}),
    ]
    output = copying(tmp_path, files, deletes)
    assert numbers_of(output) == [n for n in range(500) if n not in (*gone, 299)]
    assert groups_of(output) == [*[10] * 10, 187, *[10] * 20]
    assert (output.files_copied, output.encoded_files) == (3, {"rows of it are deleted": 2})
    assert output.rows_deleted == 13
    whole = copying(tmp_path, files[:2], [position_deletes(tmp_path, [(files[1].path, n) for n in range(100)])])
    assert (groups_of(whole), whole.files_copied, whole.rows_deleted) == ([10] * 10, 2, 100)


def test_files_with_small_row_groups_are_encoded(tmp_path: Path) -> None:
    texts = {"n": list(range(2000)), "s": ["x" * 900] * 2000}
    large, small = data_file(tmp_path, NS_COLUMNS, texts, use_dictionary=False), file(tmp_path, 2000)
    limit = large.size_bytes - 1
    output = copying(tmp_path, [large, small], rule=CopyRule(limit, 1024))
    assert (numbers_of(output), groups_of(output), output.files_copied) == (list(range(2100)), [2000, 100], 1)
    reason = f"its row groups are smaller than {limit / 2**20:.3g} MiB on average"
    assert (output.encoded_because, output.encoded_files) == (reason, {reason: 1})
    # Its footer tells that it has ten. With half the rows that are written they are not small.
    assert copying(tmp_path, [small], rule=CopyRule(small.size_bytes, 1024)).files_copied == 0
    for rows, copied in ((20, 1), (21, 0)):
        properties = {"write.parquet.row-group-limit": str(rows)}
        assert copying(tmp_path, [file(tmp_path)], None, CopyRule(1 << 30, 1024), properties=properties) \
            .files_copied == copied  # fmt: skip


def test_files_that_are_encoded_are_counted_by_their_first_reason(tmp_path: Path) -> None:
    one, other, whole = file(tmp_path), file(tmp_path, 100), file(tmp_path, 200)
    deletes = [position_deletes(tmp_path, [(one.path, 15), (other.path, 99)])]
    old = data_file(tmp_path, NS_COLUMNS[:1], {"n": [300]})
    output = copying(tmp_path, [old, one, whole, other], deletes, applicable={1: [0], 3: [0]})
    assert list(output.encoded_files.items()) == [
        ("rows of it are deleted", 2),
        ("it has 1 columns, levels within them included, instead of 2", 1),
    ]
    assert (output.files_copied, output.encoded_because) == (1, "rows of it are deleted")


def older(root: Path, first: int) -> DataFile:
    """Like `file`, but refused: its column was renamed since."""
    columns = [NS_COLUMNS[0], col("t", pa.string(), 2)]
    return data_file(root, columns, {"n": range(first, first + 100), "t": ["x"] * 100})


def test_outputs_of_small_row_groups_are_marked(tmp_path: Path) -> None:
    """Those of which some is copied before a full row group was encoded."""

    def marked(output: RewriteOutput) -> list[bool]:
        return [is_copied(made.path) for made in output.data_files]

    new, old = file(tmp_path), older(tmp_path, 100)
    for rule, is_marked in ((EVERYTHING, True), (CopyRule(1, 1024), False), (None, False)):
        assert marked(copying(tmp_path, [new], rule=rule)) == [is_marked]
    assert marked(copying(tmp_path, [old])) == [False]
    for files in ([new, old], [old, new]):
        output = copying(tmp_path, files)
        assert (sorted(groups_of(output)), marked(output)) == ([*[10] * 10, 100], [True])
    output = copying(tmp_path, [old, new, old], output_count=3)
    assert (marked(output), [made.record_count for made in output.data_files]) == ([False, True, False], [100] * 3)
    output = copying(tmp_path, [old, new], properties={"write.parquet.row-group-limit": "60"})
    assert (groups_of(output), marked(output)) == ([60, 40, *[10] * 10], [False])


def test_row_groups_beyond_what_an_output_may_have_are_encoded(tmp_path: Path) -> None:
    files = [file(tmp_path), file(tmp_path, 100)]
    output = copying(tmp_path, files, rule=CopyRule(0, 12))
    assert (numbers_of(output), groups_of(output)) == (list(range(200)), [*[10] * 12, 80])
    assert (output.files_copied, output.encoded_because) == (1, "its output has 12 row groups already")
    output = copying(tmp_path, files, limit=1 << 20)
    assert numbers_of(output) == list(range(200))
    assert output.encoded_because == "its output's footer would exceed the memory"


def test_several_outputs_stay_even(tmp_path: Path) -> None:
    """A row group that belongs to two outputs is left to the next where little is missing, and else decoded."""
    files = [file(tmp_path, 100 * number) for number in range(5)]
    output = copying(tmp_path, files, output_count=3)
    assert (numbers_of(output), groups_of(output)) == (list(range(500)), [10] * 50)
    assert [made.record_count for made in output.data_files] == [160, 170, 170]
    output = copying(tmp_path, files[:1], output_count=7)
    assert numbers_of(output) == list(range(100))
    assert [made.record_count for made in output.data_files] == [15, 15, 14, 14, 14, 14, 14]
    assert output.encoded_because == "its rows belong to two outputs"


def test_files_of_other_schemas_and_formats_are_decoded_between_copied_ones(tmp_path: Path) -> None:
    rows = [{"n": n, "s": "x"} for n in range(100, 200)]
    values = {"n": range(100, 200), "s": ["x"] * 100}
    others = {
        "its format is orc": orc_file(tmp_path, pa.Table.from_pylist(rows, schema=ORC_NS)),
        "its format is avro": avro_file(tmp_path, AVRO_NS, rows),
        "its columns are not as they would be written: t": older(tmp_path, 100),
        "its columns are not as they would be written: n": data_file(
            tmp_path, [col("n", pa.int32(), 1), NS_COLUMNS[1]], values
        ),
        "it has 3 columns": data_file(tmp_path, [*NS_COLUMNS, col("x", pa.int64(), 3)], {**values, "x": values["n"]}),
    }
    for reason, other in others.items():
        output = copying(tmp_path, [file(tmp_path), other, file(tmp_path, 200)])
        assert (numbers_of(output), groups_of(output)) == (list(range(300)), [*[10] * 10, 100, *[10] * 10])
        assert output.files_copied == 2
        assert output.encoded_because.startswith(reason)


def test_row_groups_without_rows_are_left_out(tmp_path: Path) -> None:
    rows = pa.table({"n": range(30), "s": ["x"] * 30}, schema=pa.schema(NS_COLUMNS))
    one = data_file(tmp_path, NS_COLUMNS, rows)
    with pq.ParquetWriter(one.path, rows.schema, store_schema=False) as writer:
        for part in (rows.slice(0, 0), rows.slice(0, 20), rows.slice(0, 0), rows.slice(20)):
            writer.write_table(part)
    output = copying(tmp_path, [replace(one, size_bytes=Path(one.path).stat().st_size)])
    assert (numbers_of(output), groups_of(output), output.files_copied) == (list(range(30)), [20, 10], 1)


def test_indexes_of_many_row_groups_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("amoro_core.files.row_groups.merge._PIECE_BYTES", 300)
    output = copying(tmp_path, [file(tmp_path, write_page_index=True)])
    (made,) = output.data_files
    assert (output.files_copied, numbers_of(output)) == (1, list(range(100)))
    assert duckdb.sql(f"select s from '{made.path}' where n = 57").fetchall() == [("57",)]


def large(root: Path, **options: Any) -> DataFile:
    """A file of more than a MiB, which is a stream where there is little memory."""
    texts = [f"{n:012000}" for n in range(100)]
    plain = {"use_dictionary": False, "compression": "none", "row_group_size": 10}
    made = data_file(root, NS_COLUMNS, {"n": range(100), "s": texts}, **{**plain, **options})
    assert made.size_bytes > 1 << 20
    return made


def test_a_large_file_is_copied_from_a_stream_as_from_memory(tmp_path: Path) -> None:
    one = large(tmp_path, write_page_index=True, write_page_checksum=True)
    outputs = [copying(tmp_path, [one], limit=limit) for limit in (512 << 20, 16 << 20)]
    assert [output.files_copied for output in outputs] == [1, 1]
    contents = [Path(made.path).read_bytes() for output in outputs for made in output.data_files]
    assert contents[0] == contents[1]
    # A column that is larger than the memory is decoded.
    output = copying(tmp_path, [large(tmp_path, row_group_size=100)], limit=2 << 20)
    assert (numbers_of(output), output.encoded_because) == (list(range(100)), "a column exceeds the memory")


def test_the_manifest_tells_where_splits_begin_that_are_worth_a_reading_of_the_footer() -> None:
    every = [4, 5, (32 << 20) + 3, (32 << 20) + 4, (40 << 20), (64 << 20) + 3, (64 << 20) + 4]
    assert split_offsets(every) == (4, (32 << 20) + 4, (64 << 20) + 4)
    assert split_offsets([]) == ()


def with_bounds(one: DataFile, least: int, greatest: int) -> DataFile:
    low, high = (struct.pack("<q", number) for number in (least, greatest))
    return replace(one, metrics=ColumnMetrics(lower_bounds={1: low}, upper_bounds={1: high}))


def bounds_of(output: RewriteOutput) -> tuple[int | None, ...]:
    (made,) = output.data_files
    told = made.metrics.lower_bounds.get(1), made.metrics.upper_bounds.get(1)
    return tuple(None if bound is None else struct.unpack("<q", bound)[0] for bound in told)


def test_bounds_are_those_of_the_manifests_and_of_the_rows_that_are_encoded(tmp_path: Path) -> None:
    one, other = with_bounds(file(tmp_path), 0, 99), older(tmp_path, 100)
    output = copying(tmp_path, [one])
    assert bounds_of(output) == (0, 99)
    assert output.data_files[0].metrics.value_counts == {1: 100, 2: 100}
    assert output.data_files[0].metrics.null_value_counts == {1: 0, 2: 0}
    assert bounds_of(copying(tmp_path, [one, other])) == (0, 199)
    assert bounds_of(copying(tmp_path, [replace(one, metrics=ColumnMetrics()), other])) == (None, None)


def test_bounds_of_a_file_in_two_outputs_need_not_be_reached(tmp_path: Path) -> None:
    one = with_bounds(file(tmp_path), 0, 99)
    output = copying(tmp_path, [one], output_count=2)
    low, high = output.data_files
    assert (low.metrics, low.record_count) == (replace(high.metrics, column_sizes=low.metrics.column_sizes), 50)
    again = copying(tmp_path, [low])
    assert (numbers_of(again), again.files_copied, bounds_of(again)) == (list(range(50)), 1, (0, 99))
    renamed = Path(low.path).rename(tmp_path / "in" / "other.parquet")
    assert copying(tmp_path, [replace(low, path=str(renamed))]).files_copied == 0


def test_row_groups_without_a_value_take_no_bounds_away(tmp_path: Path) -> None:
    files = []
    for numbers, low, high in (([1, 2], 1, 2), ([None, None], None, None), ([5], 5, 5)):
        one = data_file(tmp_path, NS_COLUMNS, {"n": numbers, "s": ["x"] * len(numbers)})
        files.append(one if low is None else with_bounds(one, low, high))
    assert bounds_of(copying(tmp_path, files)) == (1, 5)


@pytest.mark.parametrize(
    ("nans", "is_whole", "expected"), [({}, True, None), ({2: 0}, True, 0), ({2: 1}, True, 1), ({2: 1}, False, None)]
)
def test_floats_have_bounds_only_where_their_nans_are_counted(
    tmp_path: Path, nans: dict[int, int], is_whole: bool, expected: int | None
) -> None:
    schema = Schema(NestedField(1, "n", LongType()), NestedField(2, "f", DoubleType()))
    columns = [NS_COLUMNS[0], col("f", pa.float64(), 2)]
    one = data_file(tmp_path, columns, {"n": [1, 2], "f": [1.0, math.nan]}, row_group_size=1)
    bound = struct.pack("<d", 1.0)
    told = ColumnMetrics(nan_value_counts=nans, lower_bounds={2: bound}, upper_bounds={2: bound})
    outputs = copying(tmp_path, [replace(one, metrics=told)], schema=schema, output_count=1 if is_whole else 2)
    for made in outputs.data_files:
        assert made.metrics.nan_value_counts.get(2) == expected
        assert (2 in made.metrics.lower_bounds, 2 in made.metrics.upper_bounds) == (expected is not None,) * 2


WITHOUT_CODEC = """
import sys
from pathlib import Path
sys.modules.update({"thrift.protocol.fastbinary": None, "zlib_ng": None, "zlib_ng.zlib_ng": None})
from tests.unit.rewrite.test_copying import copying, file, groups_of, numbers_of
root = Path(sys.argv[1])
output = copying(root, [file(root), file(root, 100)])
print(numbers_of(output) == list(range(200)), groups_of(output), output.files_copied, output.encoded_because, sep="; ")
"""


def test_nothing_is_copied_where_thrift_lacks_its_codec(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_CODEC, str(tmp_path)], capture_output=True, text=True)
    reason = "the package thrift is installed without its C extension"
    assert (done.stdout, done.stderr) == (f"True; [200]; 0; {reason}\n", "")


def test_a_file_with_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UnreadableFile, match="has 100 rows, but the manifest says 101"):
        copying(tmp_path, [replace(file(tmp_path), record_count=101)])


@pytest.mark.parametrize("size", [1, 12_000], ids=["copied", "encoded"])
def test_a_cancelled_attempt_leaves_nothing(tmp_path: Path, size: int) -> None:
    """Encoded rows are written while they are encoded."""
    files = [file(tmp_path, 100 * n) for n in range(5)] if size == 1 else [large(tmp_path), older(tmp_path, 100)]
    work = task(context(tmp_path, Schema(*NS.fields[:1], NestedField(2, "t", StringType()))), files, copy=EVERYTHING)
    work = work if size > 1 else task(context(tmp_path, NS), files, copy=EVERYTHING)
    with pytest.raises(AttemptAbandoned):
        run(work, is_cancelled=lambda: bool(written_under(tmp_path)))
    assert written_under(tmp_path) == []
