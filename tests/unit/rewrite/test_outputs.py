"""What a rewrite writes: names, sizes, numbers; and what is left when it fails."""

from __future__ import annotations

import errno
import io
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.conversions import to_bytes
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import BucketTransform, DayTransform, IdentityTransform
from pyiceberg.types import DateType, LongType, NestedField, StringType, TimestampType

from amoro_core.errors import CheckFailed, StorageFull, UnreadableFile
from amoro_core.files.storage.io import FileAccess

from .builders import (
    NS,
    NS_COLUMNS,
    SEQUENCE,
    access_to,
    col,
    context,
    data_file,
    equality_deletes,
    numbered,
    run,
    task,
    written_under,
)


def test_a_file_that_grows_far_beyond_the_target_is_ended_early(tmp_path: Path) -> None:
    wide = [{"n": range(100), "s": [os.urandom(500).hex() for _ in range(100)]} for _ in range(6)]
    narrow = {"n": range(600), "s": ["x"] * 600}
    files = [data_file(tmp_path, NS_COLUMNS, rows) for rows in (*wide, narrow)]
    properties = {"write.parquet.row-group-limit": "50"}

    output = run(task(context(tmp_path, NS, properties=properties), files, output_count=2, target_size_bytes=150_000))

    assert [file.record_count for file in output.data_files] == [500, 700]  # a wide row has about 520 bytes


def test_an_output_carries_the_plan_s_numbers_and_a_name_of_its_attempt(tmp_path: Path) -> None:
    given = replace(numbered(tmp_path, 10), sort_order_id=3)
    (file,) = run(task(context(tmp_path, NS), [given])).data_files

    name = r"01890000-0000-7000-8000-000000000001-3-2-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.parquet"
    assert re.fullmatch(re.escape(f"{tmp_path}/data/") + name, file.path)
    assert (file.sequence_number, file.spec_id, file.partition, file.sort_order_id) == (SEQUENCE, 0, (), 0)
    assert (file.record_count, file.size_bytes) == (10, Path(file.path).stat().st_size)
    assert file.split_offsets == (4,)


PARTITIONED = Schema(
    NestedField(1, "region", StringType()),
    NestedField(2, "at", TimestampType()),
    NestedField(3, "id", LongType()),
    NestedField(4, "day", DateType()),
)
SPEC = PartitionSpec(
    PartitionField(1, 1000, IdentityTransform(), "region"),
    PartitionField(2, 1001, DayTransform(), "at_day"),
    PartitionField(3, 1002, BucketTransform(16), "id bucket"),
    PartitionField(4, 1003, IdentityTransform(), "day"),
    spec_id=4,
)


def test_outputs_lie_in_the_directory_of_their_partition(tmp_path: Path) -> None:
    partition = (b"a/b c", to_bytes(DateType(), 19000), (3).to_bytes(4, "little"), None)
    columns = [
        col("region", pa.string(), 1),
        col("at", pa.timestamp("us"), 2),
        col("id", pa.int64(), 3),
        col("day", pa.date32(), 4),
    ]
    rows = {"region": ["a/b c"], "at": [0], "id": [1], "day": [None]}
    file = data_file(tmp_path, columns, rows, partition=partition, spec_id=4)

    output = run(task(context(tmp_path, PARTITIONED, spec=SPEC), [file]))

    (written,) = written_under(tmp_path)
    assert Path(written).parent == Path("data/region=a%2Fb+c/at_day=2022-01-08/id+bucket=3/day=null")
    assert (output.data_files[0].partition, output.data_files[0].spec_id) == (partition, 4)


def test_files_of_two_partitions_or_with_a_broken_page_are_not_rewritten(tmp_path: Path) -> None:
    files = [numbered(tmp_path, 1, partition=(b"a",)), numbered(tmp_path, 1, partition=(b"b",))]

    with pytest.raises(CheckFailed, match="2 partitions"):
        run(task(context(tmp_path, NS), files))
    file = numbered(tmp_path, 5000, compression="zstd", write_page_checksum=True)
    content = bytearray(Path(file.path).read_bytes())
    content[100:400] = b"\xaa" * 300
    Path(file.path).write_bytes(content)

    with pytest.raises(UnreadableFile, match=re.escape(file.path)):
        run(task(context(tmp_path, NS), [file]))
    assert written_under(tmp_path) == []


@pytest.mark.parametrize("converted", [False, True])
def test_a_file_with_other_rows_than_the_manifest_says_is_unreadable(tmp_path: Path, converted: bool) -> None:
    file = replace(numbered(tmp_path, 10), record_count=11)
    table = context(tmp_path, NS)
    work = task(table, converted=[file]) if converted else task(table, [file])

    with pytest.raises(UnreadableFile, match="has 10 rows, but the manifest says 11"):
        run(work)


class FullDisk(FileAccess):
    """A disk that takes a number of bytes and then no more."""

    def __init__(self, root: Path, room: int) -> None:
        super().__init__(PyArrowFileIO(), read_locations=[str(root)], write_locations=[f"{root}/data"])
        self.room = room

    def create_output(self, path: str) -> Any:
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        return FullFile(path, self)


class FullFile(io.FileIO):
    def __init__(self, path: str, disk: FullDisk) -> None:
        super().__init__(path, "x")
        self._disk = disk

    def write(self, content: Any) -> int:
        self._disk.room -= len(content)
        if self._disk.room < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return super().write(content)


@pytest.mark.parametrize("room", [0, 3, 2_000, 9_000, 12_000])
def test_a_full_disk_is_said_and_leaves_no_file(tmp_path: Path, room: int) -> None:
    files = [numbered(tmp_path, 1000, start) for start in (0, 1000)]
    properties = {"write.parquet.row-group-limit": "100"}
    work = task(context(tmp_path, NS, properties=properties), files, output_count=2)

    with pytest.raises(StorageFull, match="no space left"):
        run(work, FullDisk(tmp_path, room))
    assert written_under(tmp_path) == []


def test_a_full_disk_while_position_deletes_are_written_leaves_no_file(tmp_path: Path) -> None:
    rewritten, converted = numbered(tmp_path, 10), numbered(tmp_path, 10)
    delete = equality_deletes(tmp_path, [1], [NS_COLUMNS[0]], {"n": [1]})
    work = task(context(tmp_path, NS), [rewritten], [delete], converted=[converted])
    needed = run(work).data_files[0].size_bytes
    for path in (tmp_path / "data").iterdir():
        path.unlink()

    with pytest.raises(StorageFull):
        run(work, FullDisk(tmp_path, needed + 100))
    assert written_under(tmp_path) == []


def test_large_files_are_streamed_with_the_same_result(tmp_path: Path) -> None:
    """Of more than a MiB where there is little memory."""
    rows = 2_000
    table = pa.table(
        {"n": range(rows), "s": [os.urandom(900).hex() for _ in range(rows)]}, schema=pa.schema(NS_COLUMNS)
    )
    file = data_file(tmp_path, NS_COLUMNS, table, row_group_size=700, compression="none")
    delete = equality_deletes(tmp_path, [1], [NS_COLUMNS[0]], {"n": range(0, rows, 7)})
    access = access_to(tmp_path)

    output = run(task(context(tmp_path, NS), [file], [delete]), access, memory_limit_bytes=16 << 20)

    expected = table.filter(pa.array([n % 7 != 0 for n in range(rows)]))
    written = pq.read_table(output.data_files[0].path)
    assert written.cast(expected.schema).equals(expected)
