"""Deletes that a commit carries over are written beside the outputs, named by the process and its task."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from amoro_core.files.options import WriterOptions, writer_options
from amoro_core.formats.carrying import write_carried
from amoro_core.positions import PositionSet
from amoro_core.validating.rebasing import CarriedRows
from tests.unit.rewrite.builders import access_to, col, data_file


@pytest.mark.parametrize(("options", "files", "ending"), [(WriterOptions(), 2, "parquet"), (None, 1, "puffin")])
def test_carried_deletes_lie_beside_the_outputs_and_name_their_process(
    tmp_path: Path, options: WriterOptions | None, files: int, ending: str
) -> None:
    columns = [col("n", pa.int64(), 1)]
    outputs = [
        replace(data_file(tmp_path, columns, {"n": range(5)}), path=f"{tmp_path}/data/p={number}/out.parquet")
        for number in range(2)
    ]
    rows = [CarriedRows(7, output, PositionSet.of([number])) for number, output in enumerate(outputs)]
    written = write_carried(access_to(tmp_path), rows, "process", options)
    assert [one.referenced_data_file for one in written] == [output.path for output in outputs]
    paths = sorted({one.path for one in written})
    assert len(paths) == files
    assert all(Path(path).exists() for path in paths)
    for path, output in zip(paths, outputs, strict=False):
        assert Path(path).parent == Path(output.path).parent
        assert re.fullmatch(rf"process-7-[0-9a-f-]{{36}}-carried\.{ending}", Path(path).name)


@pytest.mark.parametrize(("properties", "level"), [({}, 1), ({"write.parquet.compression-level": "3"}, 3)])
def test_position_deletes_are_compressed_as_hard_as_data(
    tmp_path: Path, properties: dict[str, str], level: int
) -> None:
    columns = [col("n", pa.int64(), 1)]
    output = replace(data_file(tmp_path, columns, {"n": range(400_000)}), path=f"{tmp_path}/data/out.parquet")
    rows = CarriedRows(7, output, PositionSet.of(range(0, 400_000, 2)))

    def bytes_of_positions(options: WriterOptions) -> int:
        """Without the column of paths: whether a level makes it smaller depends on the directory of the test."""
        [written] = write_carried(access_to(tmp_path), [rows], "process", options)
        group = pq.read_metadata(written.path).row_group(0)
        (column,) = (one for one in map(group.column, range(2)) if one.path_in_schema == "pos")
        size: int = column.total_compressed_size
        return size

    sizes = {tried: bytes_of_positions(replace(WriterOptions(), level=tried, lower_level=None)) for tried in (1, 3)}
    assert sizes[1] != sizes[3]
    assert bytes_of_positions(writer_options(properties)) == sizes[level]
