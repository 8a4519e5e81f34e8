"""Deletion vectors while rewriting, and files whose deletes become vectors."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file
from pyiceberg.table.puffin import PuffinFile

from amoro_core.errors import AttemptAbandoned, CheckFailed, DataFileMissing, UnreadableFile
from amoro_core.files.parquet.reading import read_facts
from amoro_core.files.storage.io import FileAccess
from amoro_core.model.commits import VectorFacts
from amoro_core.model.files import DataFile, FileFormat
from amoro_core.model.row_positions import PositionSet
from amoro_core.model.task_payload import RewriteInput

from .builders import (
    NS,
    NS_COLUMNS,
    SEQUENCE,
    access_to,
    context,
    equality_deletes,
    numbered,
    numbers_of,
    position_deletes,
    run,
    task,
    vectors_of,
    written_under,
)


def format_3(work: RewriteInput) -> RewriteInput:
    return replace(work, table=replace(work.table, format_version=3))


class Asked(FileAccess):
    """Tells which parts of Puffin files were read."""

    def __init__(self, root: Path) -> None:
        super().__init__(PyArrowFileIO(), read_locations=[str(root)], write_locations=[f"{root}/data"])
        self.parts: list[tuple[str, int, int]] = []

    def read_range(self, path: str, offset: int, size_bytes: int) -> bytes:
        self.parts.append((path, offset, size_bytes))
        return super().read_range(path, offset, size_bytes)


@pytest.mark.parametrize("output_count", [1, 2])
def test_the_rows_in_vectors_are_left_out(tmp_path: Path, output_count: int) -> None:
    files = [numbered(tmp_path, 100, row_group_size=30), numbered(tmp_path, 50, 1000), numbered(tmp_path, 10, 2000)]
    vectors = vectors_of(tmp_path, (files[0], [0, 29, 30, 99]), (files[1], list(range(50))))

    work = task(context(tmp_path, NS), files, vectors, applicable={0: [0], 1: [1]}, output_count=output_count)
    output = run(work)

    gone = {0, 29, 30, 99, *range(1000, 1050)}
    assert numbers_of(output) == [n for n in (*range(100), *range(2000, 2010)) if n not in gone]
    assert (output.rows_read, output.rows_deleted, output.rows_written) == (160, 54, 106)
    read = sum(file.size_bytes for file in files) + sum(one.identity.size for one in vectors)
    assert output.bytes_read == read


def test_the_vectors_of_one_file_are_read_in_one_request_and_no_byte_beside_them(tmp_path: Path) -> None:
    files = [numbered(tmp_path, 100, 100 * at) for at in range(4)]
    others, vectors = vectors_of(tmp_path, (files[3], [3])), vectors_of(tmp_path, *((one, [1, 2]) for one in files[:3]))
    access = Asked(tmp_path)

    work = task(context(tmp_path, NS), files, [*others, *vectors], applicable={0: [1], 2: [3], 3: [0]})
    output = run(work, access)

    first, _, last = (one.identity for one in vectors)
    assert sorted(access.parts) == [
        (others[0].path, 4, others[0].identity.size),
        (vectors[0].path, 4, last.offset + last.size - first.offset),
    ]
    assert output.rows_deleted == 5


def broken(content: bytes, at: int) -> bytes:
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


@pytest.mark.parametrize(
    ("change", "told", "why"),
    [
        (lambda content, one: broken(content, one.content_offset + one.content_size_bytes - 1), {}, "checksum"),
        (lambda content, one: content[: one.content_offset + 9], {}, "has 9 of .* bytes: the file ends before"),
        (lambda content, one: content, {"record_count": 4}, "has 3 positions, its manifest entry tells of 4"),
        (lambda content, one: content, {"content_size_bytes": 1 << 40}, "are the most possible"),
    ],
    ids=["crc", "cut", "cardinality", "huge"],
)
def test_a_vector_that_is_not_as_its_entry_says_is_unreadable_and_named(
    tmp_path: Path, change: Any, told: dict[str, int], why: str
) -> None:
    file, other = numbered(tmp_path, 100), numbered(tmp_path, 5)
    _, vector = vectors_of(tmp_path, (other, [1]), (file, [5, 7, 99]))
    path = Path(vector.path)
    path.write_bytes(change(path.read_bytes(), vector))

    with pytest.raises(UnreadableFile, match=f"{path} at {vector.content_offset} .*{why}"):
        run(task(context(tmp_path, NS), [file], [replace(vector, **told)]))  # type: ignore[arg-type]
    assert written_under(tmp_path) == []


def test_a_vector_of_another_file_or_beyond_its_end_or_that_is_gone_is_never_applied(tmp_path: Path) -> None:
    file = numbered(tmp_path, 100)
    (vector,) = vectors_of(tmp_path, (file, [5, 100]))
    with pytest.raises(UnreadableFile, match=rf"{vector.path} at 4 deletes row 100, the data file has 100 rows"):
        run(task(context(tmp_path, NS), [file], [vector]))
    file = numbered(tmp_path, 100)
    (vector,) = vectors_of(tmp_path, (file, [5]))
    Path(vector.path).unlink()
    with pytest.raises(DataFileMissing, match=vector.path):
        run(task(context(tmp_path, NS), [file], [vector]))
    file, other = numbered(tmp_path, 100), numbered(tmp_path, 100)
    (vector,) = vectors_of(tmp_path, (other, [5]))
    with pytest.raises(CheckFailed, match="names another file"):
        run(task(context(tmp_path, NS), [file, other], [vector]))


def converted(tmp_path: Path, *, marks: bool = False) -> tuple[RewriteInput, list[DataFile]]:
    """Files with an old vector, position and equality deletes; the last one with an equality delete that hits none."""
    files = [numbered(tmp_path, 100, 100 * at) for at in range(4)]
    (old,) = vectors_of(tmp_path, (files[0], [3, 50]))
    shared = position_deletes(tmp_path, [(files[1].path, 7), (files[1].path, 8), (files[2].path, 0)])
    keys = equality_deletes(tmp_path, [1], NS_COLUMNS[:1], {"n": [50, 51, 108, 109]})
    applicable = {0: [0, 2], 1: [1, 2], 2: [1], 3: [2]}
    work = task(context(tmp_path, NS), [], [old, shared, keys], applicable=applicable, converted=files)
    return replace(format_3(work), marks_converted=marks), files


def test_a_conversion_in_format_3_writes_one_file_with_a_vector_of_all_deletes_of_each_data_file(
    tmp_path: Path,
) -> None:
    work, files = converted(tmp_path)

    output = run(work)

    (name,) = written_under(tmp_path)
    path = str(tmp_path / name)
    expected = [(files[0], [3, 50, 51]), (files[1], [7, 8, 9]), (files[2], [0])]
    content = Path(path).read_bytes()
    read = {
        one.referenced_data_file: one.to_vector().to_pylist()
        for one in deletion_vectors_from_puffin_file(PuffinFile(content))
    }
    assert read == {file.path: positions for file, positions in expected}
    assert [(one.referenced_data_file, one.record_count) for one in output.delete_files] == [
        (file.path, len(positions)) for file, positions in expected
    ]
    for one in output.delete_files:
        assert (one.path, one.file_format, one.size_bytes) == (path, FileFormat.PUFFIN, len(content))
        assert (one.sequence_number, one.is_vector, one.is_converted) == (SEQUENCE, True, True)
    assert output.positions_written == 7
    facts = read_facts(access_to(tmp_path), path)
    assert (facts.size_bytes, facts.record_count) == (len(content), 7)
    assert facts.vectors == {
        one.content_offset: VectorFacts(file.path, one.content_size_bytes or 0, len(positions), positions[-1])
        for one, (file, positions) in zip(output.delete_files, expected, strict=True)
    }


def test_a_file_that_is_to_be_marked_has_a_vector_without_positions(tmp_path: Path) -> None:
    work, files = converted(tmp_path, marks=True)
    last = run(work).delete_files[-1]
    assert (last.referenced_data_file, last.record_count, last.is_converted) == (files[3].path, 0, True)
    again = task(context(tmp_path, NS), [files[3]], [last])
    assert run(again).rows_deleted == 0


def test_an_abandoned_attempt_leaves_no_vectors(tmp_path: Path) -> None:
    work, _ = converted(tmp_path)
    with pytest.raises(AttemptAbandoned):
        run(work, is_cancelled=lambda: bool(written_under(tmp_path)))
    assert written_under(tmp_path) == []


def test_a_file_of_other_blobs_has_no_facts(tmp_path: Path) -> None:
    path = tmp_path / "data" / "x.puffin"
    path.parent.mkdir()
    path.write_bytes(b"PFA1" * 8)
    with pytest.raises(UnreadableFile, match=r"x\.puffin can't be read as a Puffin file"):
        read_facts(access_to(tmp_path), str(path))


def test_a_mask_of_many_positions_is_made_piece_by_piece() -> None:
    rows = 9_000_000
    gone = PositionSet.first(rows) - PositionSet.of([0, 4_194_303, 4_194_304, 8_999_999])
    assert np.flatnonzero(~gone.mask(rows)).tolist() == [0, 4_194_303, 4_194_304, 8_999_999]
    assert gone.mask(rows + 1)[-1] == np.False_
    assert PositionSet.first(rows).mask(rows).all()
    assert np.flatnonzero(PositionSet.of([1, 3]).mask(4)).tolist() == [1, 3]
