"""Tasks that copy row groups: which they copy, which they decode, and what the outputs hold."""

import logging
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.schema import Schema
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.errors import AttemptAbandoned, UnreadableFile
from amoro_core.events import FIELDS
from amoro_core.files import splicing
from amoro_core.files.parquet_format import Struct
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.copied_files import is_copied
from amoro_core.model.files import ColumnMetrics, DataFile, DeleteFile, ScannedFile
from amoro_core.model.rewrite import CopyRule, RewriteInput, RewriteOutput
from amoro_core.planning.files import assess
from amoro_core.protocol import codec
from amoro_optimizer.kinds import RewriteKind, Run
from amoro_optimizer.rewrite import reading
from tests.unit.files.copies import change_footer
from tests.unit.rewrite.builders import (
    ATTEMPT,
    access_to,
    col,
    context,
    data_file,
    equality_deletes,
    position_deletes,
    run,
    task,
)
from tests.unit.rewrite.builders import written_under as written
from tests.unit.rewrite.test_other_formats import avro_file, orc_col, orc_file

SCHEMA = Schema(NestedField(1, "id", LongType()), NestedField(2, "s", StringType()))
COLUMNS = [col("id", pa.int64(), 1), col("s", pa.string(), 2)]
EVERYTHING = CopyRule(0, 1024)


def file(root: Path, first: int, count: int = 100, **options: Any) -> DataFile:
    """Ascending ids; row groups of ten rows."""
    rows = {"id": list(range(first, first + count)), "s": [f"text {n}" for n in range(first, first + count)]}
    return data_file(root, COLUMNS, rows, row_group_size=10, **{"write_page_checksum": True, **options})


def work(
    root: Path,
    files: list[DataFile],
    deletes: list[DeleteFile] | None = None,
    rule: CopyRule | None = EVERYTHING,
    **more: Any,
) -> RewriteInput:
    return replace(task(context(root, SCHEMA), files, deletes or [], **more), copy=rule)


def ids(output: RewriteOutput) -> list[int]:
    return [n for made in output.data_files for n in pq.read_table(made.path).column("id").to_pylist()]


def groups(output: RewriteOutput) -> list[int]:
    metadata = [pq.ParquetFile(made.path).metadata for made in output.data_files]
    return [one.row_group(number).num_rows for one in metadata for number in range(one.num_row_groups)]


def test_files_without_deletes_are_copied(tmp_path: Path) -> None:
    output = run(work(tmp_path, [file(tmp_path, 0), file(tmp_path, 100)]))
    assert (ids(output), groups(output)) == (list(range(200)), [10] * 20)
    assert (output.files_copied, output.encoded_because) == (2, "")
    assert (output.rows_read, output.rows_deleted, output.rows_written) == (200, 0, 200)
    (made,) = output.data_files
    assert (made.sort_order_id, made.split_offsets, made.record_count) == (0, (4,), 200)


def test_the_manifest_tells_where_splits_begin_that_are_worth_a_reading_of_the_footer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = work(tmp_path, [file(tmp_path, 0), file(tmp_path, 100)])
    (whole,) = run(given).data_files
    row_groups = pq.ParquetFile(whole.path).metadata
    begins = [row_groups.row_group(number).column(0) for number in range(20)]
    every = [one.dictionary_page_offset or one.data_page_offset for one in begins]
    monkeypatch.setattr(splicing, "_SPLIT_BYTES", every[3] - every[0])
    (made,) = run(given).data_files
    told = made.split_offsets
    assert told[0] == every[0]
    assert set(told) < set(every)
    assert all(other - one >= every[3] - every[0] for one, other in pairwise(told))
    # The one before each would have been too near.
    assert all(every[every.index(other) - 1] - one < every[3] - every[0] for one, other in pairwise(told))
    assert len(told) > 4


def test_nothing_is_copied_without_a_rule(tmp_path: Path) -> None:
    output = run(work(tmp_path, [file(tmp_path, 0), file(tmp_path, 100)], rule=None))
    assert (ids(output), groups(output), output.files_copied) == (list(range(200)), [200], 0)


def test_row_groups_with_a_deleted_row_are_decoded_and_keep_their_place(tmp_path: Path) -> None:
    one, other = file(tmp_path, 0), file(tmp_path, 100)
    deletes = [position_deletes(tmp_path, [(one.path, 15), (one.path, 27), (other.path, 99)])]
    output = run(work(tmp_path, [one, other], deletes))
    assert ids(output) == [n for n in range(200) if n not in (15, 27, 199)]
    # Decoded neighbours share a row group.
    assert groups(output) == [10, 18, *[10] * 16, 9]
    assert (output.files_copied, output.encoded_because) == (0, "rows of its row groups are deleted")
    assert output.rows_deleted == 3


def test_row_groups_whose_rows_are_all_deleted_are_not_read(tmp_path: Path) -> None:
    one = file(tmp_path, 0)
    deletes = [position_deletes(tmp_path, [(one.path, n) for n in range(10, 20)])]
    output = run(work(tmp_path, [one], deletes))
    assert (ids(output), groups(output)) == ([n for n in range(100) if not 10 <= n < 20], [10] * 9)
    assert (output.files_copied, output.rows_deleted) == (1, 10)


def test_equality_deletes_decide_by_row_group_too(tmp_path: Path) -> None:
    deletes = [equality_deletes(tmp_path, [1], COLUMNS[:1], {"id": [42, 1000]})]
    output = run(work(tmp_path, [file(tmp_path, 0)], deletes))
    assert (ids(output), groups(output)) == ([n for n in range(100) if n != 42], [10, 10, 10, 10, 9, *[10] * 5])


def test_files_with_small_row_groups_are_encoded(tmp_path: Path) -> None:
    large = data_file(tmp_path, COLUMNS, {"id": list(range(2000)), "s": ["x" * 900] * 2000}, use_dictionary=False)
    small = file(tmp_path, 2000)
    limit = large.size_bytes - 1
    output = run(work(tmp_path, [large, small], rule=CopyRule(limit, 1024)))
    assert (ids(output), groups(output), output.files_copied) == (list(range(2100)), [2000, 100], 1)
    reason = f"its row groups are smaller than {limit / 2**20:.3g} MiB on average"
    assert (output.encoded_because, output.encoded_files) == (reason, {reason: 1})
    # Not by its bytes alone: its footer tells that it has ten.
    output = run(work(tmp_path, [small], rule=CopyRule(small.size_bytes, 1024)))
    reason = f"its row groups are smaller than {small.size_bytes / 2**20:.3g} MiB on average"
    assert (output.files_copied, output.encoded_because) == (0, reason)


def test_files_that_are_encoded_are_counted_by_their_first_reason(tmp_path: Path) -> None:
    one, other, whole = file(tmp_path, 0), file(tmp_path, 100), file(tmp_path, 200)
    deletes = [position_deletes(tmp_path, [(one.path, 15), (other.path, 99)])]
    old = data_file(tmp_path, COLUMNS[:1], {"id": [300]})
    output = run(work(tmp_path, [old, one, whole, other], deletes, applicable={1: [0], 3: [0]}))
    assert list(output.encoded_files.items()) == [
        ("rows of its row groups are deleted", 2),
        ("it has 1 columns, levels within them included, instead of 2", 1),
    ]
    assert (output.files_copied, output.encoded_because) == (1, "rows of its row groups are deleted")


def test_the_optimizers_log_tells_how_many_files_were_copied_and_why_others_were_not(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    whole, other = file(tmp_path, 0), file(tmp_path, 100)
    deletes = [position_deletes(tmp_path, [(other.path, 99)])]
    works = [
        work(tmp_path, [whole, other], deletes, applicable={1: [0]}),
        work(tmp_path, [whole]),
        work(tmp_path, [whole], rule=None),
    ]
    with caplog.at_level(logging.INFO, "amoro"):
        for given in works:
            payload = codec.encode_input(given).SerializeToString()
            kind_of_work = RewriteKind()
            one = Run(ATTEMPT, {}, 512 << 20, lambda done, total: None, lambda: False)
            kind_of_work.execute(payload, access_to(tmp_path), one)
    told = [getattr(record, FIELDS) for record in caplog.records if hasattr(record, FIELDS)]
    common = {"event": "files.copied", "task": str(ATTEMPT)}
    assert [fields for fields in told if fields["event"] == "files.copied"] == [
        {**common, "copied": 1, "encoded": 1, "because": "rows of its row groups are deleted"},
        {**common, "copied": 1, "encoded": 0},
    ]


def test_row_groups_with_half_the_rows_that_are_written_are_not_small(tmp_path: Path) -> None:
    for limit, copied in ((20, 1), (21, 0)):
        table = context(tmp_path, SCHEMA, properties={"write.parquet.row-group-limit": str(limit)})
        given = replace(task(table, [file(tmp_path, 0)]), copy=CopyRule(1 << 30, 1024))
        assert run(given).files_copied == copied


def test_only_outputs_of_small_row_groups_are_marked(tmp_path: Path) -> None:
    for rule, marked in ((EVERYTHING, True), (CopyRule(1, 1024), False), (None, False)):
        (made,) = run(work(tmp_path, [file(tmp_path, 0), file(tmp_path, 100)], rule=rule)).data_files
        assert is_copied(made.path) is marked


def older(root: Path, first: int, count: int = 100, **options: Any) -> DataFile:
    """Like `file`, but refused: its column was renamed since."""
    columns = [COLUMNS[0], col("t", pa.string(), 2)]
    return data_file(root, columns, {"id": list(range(first, first + count)), "t": ["x"] * count}, **options)


def coarse(output: RewriteOutput) -> list[bool]:
    """For each output, whether it is coarse if it has target size."""
    sized = [replace(made, size_bytes=200 << 20) for made in output.data_files]
    return [assess(ScannedFile(made, ()), OptimizingConfig()).is_coarse for made in sized]


def test_an_output_of_which_nothing_is_copied_is_neither_marked_nor_coarse(tmp_path: Path) -> None:
    output = run(work(tmp_path, [older(tmp_path, 0), older(tmp_path, 100)]))
    assert (ids(output), groups(output), output.files_copied) == (list(range(200)), [200], 0)
    assert (written(tmp_path), coarse(output)) == ([f"data/{Path(output.data_files[0].path).name}"], [False])
    assert coarse(run(work(tmp_path, [file(tmp_path, 0), file(tmp_path, 100)]))) == [True]


@pytest.mark.parametrize("refused", [0, 1])
def test_an_output_of_which_some_is_copied_is_marked_though_other_rows_come_first(tmp_path: Path, refused: int) -> None:
    files = [file(tmp_path, 0), older(tmp_path, 100)]
    output = run(work(tmp_path, files[::-1] if refused else files))
    assert (sorted(ids(output)), sorted(groups(output))) == (list(range(200)), [*[10] * 10, 100])
    assert coarse(output) == [True]


def test_each_of_several_outputs_is_marked_by_what_it_holds(tmp_path: Path) -> None:
    files = [older(tmp_path, 0), file(tmp_path, 100), older(tmp_path, 200)]
    output = run(work(tmp_path, files, output_count=3))
    assert (ids(output), [made.record_count for made in output.data_files]) == (list(range(300)), [100] * 3)
    assert coarse(output) == [False, True, False]


def test_an_output_that_has_a_full_row_group_before_one_is_copied_is_not_marked(tmp_path: Path) -> None:
    table = context(tmp_path, SCHEMA, properties={"write.parquet.row-group-limit": "60"})
    output = run(replace(task(table, [older(tmp_path, 0), file(tmp_path, 100)]), copy=EVERYTHING))
    assert (ids(output), groups(output)) == (list(range(200)), [60, 40, *[10] * 10])
    assert coarse(output) == [False]


def test_a_large_file_refused_for_its_pages_marks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SMALL_FILE_BYTES", 1)
    monkeypatch.setattr(reading, "_LEAST_BYTES", 1)
    one = file(tmp_path, 0)
    change_footer(Path(one.path), without_encodings)
    output = run(work(tmp_path, [replace(one, size_bytes=Path(one.path).stat().st_size)]))
    assert (ids(output), groups(output)) == (list(range(100)), [100])
    assert output.encoded_because == "a page has an encoding that the footer does not name"
    assert coarse(output) == [False]


def without_encodings(footer: Struct) -> None:
    for group in footer.row_groups:
        group.columns[0].meta_data.encodings = [4]


WITHOUT_CODEC = """
import sys
from pathlib import Path
sys.modules["thrift.protocol.fastbinary"] = None
from tests.unit.rewrite.test_copying import file, groups, ids, run, work
root = Path(sys.argv[1])
output = run(work(root, [file(root, 0), file(root, 100)]))
print(ids(output) == list(range(200)), groups(output), output.files_copied, output.encoded_because, sep="; ")
"""


def test_nothing_is_copied_where_thrift_lacks_its_codec(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", WITHOUT_CODEC, str(tmp_path)], capture_output=True, text=True)
    reason = "the package thrift is installed without its C extension"
    assert (done.stdout, done.stderr) == (f"True; [200]; 0; {reason}\n", "")


def test_what_is_beyond_the_most_row_groups_is_encoded(tmp_path: Path) -> None:
    output = run(work(tmp_path, [file(tmp_path, 0), file(tmp_path, 100)], rule=CopyRule(0, 12)))
    assert (ids(output), groups(output)) == (list(range(200)), [*[10] * 12, 80])
    assert (output.files_copied, output.encoded_because) == (1, "its output has 12 row groups already")


def test_several_outputs_stay_even(tmp_path: Path) -> None:
    files = [file(tmp_path, 100 * number) for number in range(5)]
    output = run(work(tmp_path, files, output_count=3))
    assert ids(output) == list(range(500))
    # A row group that belongs to two outputs is left to the next where little is missing, and else decoded.
    assert [made.record_count for made in output.data_files] == [160, 170, 170]
    assert groups(output) == [10] * 50
    output = run(work(tmp_path, files[:1], output_count=7))
    assert ids(output) == list(range(100))
    assert [made.record_count for made in output.data_files] == [15, 15, 14, 14, 14, 14, 14]
    assert output.encoded_because == "its rows belong to two outputs"


@pytest.mark.parametrize("kind", ["renamed", "added", "dropped", "promoted"])
def test_files_of_an_older_schema_are_decoded(tmp_path: Path, kind: str) -> None:
    schemas = {
        "renamed": Schema(SCHEMA.fields[0], NestedField(2, "t", StringType())),
        "added": Schema(*SCHEMA.fields, NestedField(3, "n", LongType())),
        "dropped": Schema(SCHEMA.fields[0]),
        "promoted": SCHEMA,
    }
    columns = [col("id", pa.int32(), 1), COLUMNS[1]] if kind == "promoted" else COLUMNS
    old = data_file(tmp_path, columns, {"id": [1, 2], "s": ["a", "b"]})
    output = run(replace(task(context(tmp_path, schemas[kind]), [old]), copy=EVERYTHING))
    assert (ids(output), output.files_copied) == ([1, 2], 0)
    assert output.encoded_because.startswith(("its columns are not as they would be written", "it has 2 columns"))


def test_large_files_are_copied_from_a_stream(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "SMALL_FILE_BYTES", 1)
    monkeypatch.setattr(reading, "_LEAST_BYTES", 1)
    one = file(tmp_path, 0)
    deletes = [position_deletes(tmp_path, [(one.path, 15)])]
    output = run(work(tmp_path, [one, file(tmp_path, 100)], deletes, applicable={0: [0]}))
    assert (ids(output), output.files_copied) == ([n for n in range(200) if n != 15], 1)


def test_a_broken_page_is_not_copied_but_named(tmp_path: Path) -> None:
    one = file(tmp_path, 0, compression="none")
    content = bytearray(Path(one.path).read_bytes())
    content[content.index(b"text 57") + 6] ^= 1
    Path(one.path).write_bytes(content)
    with pytest.raises(UnreadableFile, match=one.path):
        run(work(tmp_path, [file(tmp_path, 100), one]))
    assert written(tmp_path) == []


def test_a_file_with_another_number_of_rows_is_refused(tmp_path: Path) -> None:
    one = replace(file(tmp_path, 0), record_count=101)
    with pytest.raises(UnreadableFile, match="has 100 rows, but the manifest says 101"):
        run(work(tmp_path, [one]))


def test_a_cancelled_copy_leaves_nothing(tmp_path: Path) -> None:
    asked = iter(range(1000))
    with pytest.raises(AttemptAbandoned):
        run(
            work(tmp_path, [file(tmp_path, 100 * n) for n in range(5)]),
            is_cancelled=lambda: next(asked) > 30,
        )
    assert written(tmp_path) == []


def test_bounds_are_those_of_the_manifest(tmp_path: Path) -> None:
    low, high = (0).to_bytes(8, "little"), (99).to_bytes(8, "little")
    one = replace(file(tmp_path, 0), metrics=ColumnMetrics(lower_bounds={1: low}, upper_bounds={1: high}))
    (made,) = run(work(tmp_path, [one])).data_files
    assert (made.metrics.lower_bounds, made.metrics.upper_bounds) == ({1: low}, {1: high})
    assert made.metrics.value_counts == {1: 100, 2: 100}
    assert made.metrics.null_value_counts == {1: 0, 2: 0}


def with_bounds(one: DataFile, least: int, greatest: int) -> DataFile:
    low, high = (number.to_bytes(8, "little") for number in (least, greatest))
    size = Path(one.path).stat().st_size
    return replace(one, metrics=ColumnMetrics(lower_bounds={1: low}, upper_bounds={1: high}), size_bytes=size)


def hide_first_rows(footer: Struct) -> None:
    footer.row_groups[0].columns[0].meta_data.statistics.min_value = (5).to_bytes(8, "little")


def found(output: RewriteOutput, number: int) -> int:
    """How many rows with that id a reader finds that goes by statistics."""
    (path,) = (made.path for made in output.data_files)
    return len(duckdb.sql(f"select * from '{path}' where id = {number}").fetchall())


def test_a_file_whose_footer_would_hide_rows_is_decoded(tmp_path: Path) -> None:
    one = file(tmp_path, 0)
    change_footer(Path(one.path), hide_first_rows)
    output = run(work(tmp_path, [with_bounds(one, 0, 99)]))
    assert (ids(output), found(output, 2), output.files_copied) == (list(range(100)), 1, 0)
    assert output.encoded_because == "statistics of column id contradict the manifest"
    # Where the manifest tells nothing, there is nothing to compare.
    assert found(run(work(tmp_path, [replace(with_bounds(one, 0, 99), metrics=ColumnMetrics())])), 2) == 0


def test_files_with_other_columns_are_compared_by_their_own(tmp_path: Path) -> None:
    less = data_file(tmp_path, COLUMNS[:1], {"id": list(range(100, 200))})
    turned = data_file(tmp_path, COLUMNS[::-1], {"s": ["x"] * 100, "id": list(range(200, 300))})
    files = [with_bounds(one, at, at + 99) for one, at in ((file(tmp_path, 0), 0), (less, 100), (turned, 200))]
    output = run(work(tmp_path, files))
    assert (ids(output), output.files_copied) == (list(range(300)), 1)
    output = run(work(tmp_path, [files[0], files[2]]))
    assert output.encoded_because.startswith("its columns are not as they would be written")


def test_bounds_of_what_was_copied_in_part_need_not_be_reached(tmp_path: Path) -> None:
    one = file(tmp_path, 0)
    deletes = [position_deletes(tmp_path, [(one.path, n) for n in range(10)])]
    (made,) = run(work(tmp_path, [with_bounds(one, 0, 99)], deletes)).data_files
    assert int.from_bytes(made.metrics.lower_bounds[1], "little") == 0  # its least id is 10
    again = run(work(tmp_path, [made]))
    assert (ids(again), again.files_copied) == (list(range(10, 100)), 1)
    renamed = Path(made.path).rename(tmp_path / "in" / "other.parquet")
    assert run(work(tmp_path, [replace(made, path=str(renamed))])).files_copied == 0


def test_files_of_other_formats_are_decoded_between_copied_ones(tmp_path: Path) -> None:
    numbers = range(100, 200)
    columns = pa.schema([orc_col(field.name, field.type, at) for at, field in enumerate(COLUMNS, 1)])
    orc = orc_file(tmp_path, pa.table({"id": list(numbers), "s": ["x"] * 100}, schema=columns))
    fields = [
        {"name": "id", "type": ["null", "long"], "field-id": 1},
        {"name": "s", "type": ["null", "string"], "field-id": 2},
    ]
    avro = avro_file(
        tmp_path, {"type": "record", "name": "r", "fields": fields}, [{"id": n, "s": "x"} for n in numbers]
    )
    for other, reason in ((orc, "its format is orc"), (avro, "its format is avro")):
        output = run(work(tmp_path, [file(tmp_path, 0), other, file(tmp_path, 200)]))
        assert (ids(output), groups(output)) == (list(range(300)), [*[10] * 10, 100, *[10] * 10])
        assert (output.files_copied, output.encoded_because, coarse(output)) == (2, reason, [True])
