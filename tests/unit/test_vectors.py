"""Deletion vectors: as bytes, in the check before a commit, and what a commit may do with them."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.table.deletion_vector import deletion_vectors_from_puffin_file as theirs
from pyiceberg.table.puffin import PuffinFile
from pyiceberg.types import StructType

from amoro_core.errors import CheckFailed, CommitConflict, UnreadableFile
from amoro_core.files.deletes.vectors import packed, positions_in, read_omitted_rows, vectors_file
from amoro_core.iceberg.commit.rewrite_files import _require_new, require_one_vector
from amoro_core.iceberg.manifest.reading import ChangeCounts, ManifestHeader
from amoro_core.iceberg.manifest.writing import added_entry
from amoro_core.model.commits import CommitContent, FileFacts, Group, Head, PlanRecord, VectorFacts
from amoro_core.model.files import NO_METRICS, DataFile, DeleteFile, FileFormat, ScannedFile, TableScan
from amoro_core.model.row_positions import NO_POSITIONS, PositionSet
from amoro_core.model.task_payload import DeletedRows, InputFile, PositionMap
from amoro_core.scan.matching import match
from amoro_core.validation import check
from tests.unit.rewrite.builders import access_to
from tests.unit.test_check import CONTEXT, CONVERTED, EQUALITY, GROUP, RECORD, C, data, scanned_of
from tests.unit.test_removal import vector
from tests.unit.test_validating import data as live_data
from tests.unit.test_validating import position

sets = st.sets(st.integers(0, 2**33) | st.integers(0, 300), max_size=200)


@given(found=sets)
def test_positions_are_read_as_they_were_packed(found: set[int]) -> None:
    positions = PositionSet.of(found)
    assert positions_in(packed(positions), len(found), 2**33 + 1, "f at 4") == positions
    assert positions.ascending().tolist() == sorted(found)
    assert (len(positions), positions.last) == (len(found), max(found, default=-1))


@given(left=sets, right=sets)
def test_positions_are_sets(left: set[int], right: set[int]) -> None:
    one, other = PositionSet.of(left), PositionSet.of(np.array(sorted(right), dtype=np.uint64))
    assert one | other == PositionSet.of(left | right)
    assert one - other == PositionSet.of(left - right)
    assert (one <= other) == (left <= right)
    assert hash(one - NO_POSITIONS) == hash(one)


def test_the_first_positions_are_a_run_of_few_bytes() -> None:
    assert PositionSet.first(4_000_000) == PositionSet.of(np.arange(4_000_000))
    assert len(packed(PositionSet.of(np.arange(4_000_000)))) < 1000
    assert PositionSet.first(0) == NO_POSITIONS


def test_a_file_of_vectors_is_read_by_pyiceberg_and_by_range() -> None:
    vectors = (("s3://b/one.parquet", PositionSet.of([1, 5, 2**20])), ("s3://b/two.parquet", PositionSet.first(70_000)))
    content, parts = vectors_file(vectors)
    read = PuffinFile(content)
    assert [(found.referenced_data_file, found.to_vector().to_pylist()) for found in theirs(read)] == [
        (path, positions.ascending().tolist()) for path, positions in vectors
    ]
    for (path, positions), part, blob in zip(vectors, parts, read.footer.blobs, strict=True):
        assert (blob.offset, blob.length) == (part.offset, part.size_bytes)
        assert blob.properties == {"referenced-data-file": path, "cardinality": str(len(positions))}
        assert (blob.snapshot_id, blob.sequence_number, blob.compression_codec) == (-1, -1, None)
        found = content[part.offset : part.offset + part.size_bytes]
        assert positions_in(found, len(positions), 2**21, path) == positions


def _resealed(body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + body + struct.pack(">I", zlib.crc32(body))


GOOD = PositionSet.of([3, 7, 2**17])


@pytest.mark.parametrize(
    ("broken", "why"),
    [
        (lambda blob: blob[:-1], "another length"),
        (lambda blob: blob[:5], "another length"),
        (lambda blob: blob + b"\0", "another length"),
        (lambda blob: blob[:4] + b"\xd2" + blob[5:], "begins with d2d33964"),
        (lambda blob: blob[:-8] + bytes([blob[-8] ^ 1]) + blob[-7:], "another checksum"),
        (lambda blob: blob[:-1] + bytes([blob[-1] ^ 1]), "another checksum"),
        (lambda blob: _resealed(blob[4:20]), "can't be read"),
        (lambda blob: _resealed(blob[4:8]), "can't be read"),
        (lambda blob: packed(PositionSet.of([3, 7])), "has 2 positions, its manifest entry tells of 3"),
    ],
)
def test_a_broken_vector_is_told_with_its_place(broken: Callable[[bytes], bytes], why: str) -> None:
    with pytest.raises(UnreadableFile, match=f"f.puffin at 4 .*{why}"):
        positions_in(broken(packed(GOOD)), 3, 2**18, "f.puffin at 4")


def test_a_position_beyond_the_file_is_told() -> None:
    with pytest.raises(UnreadableFile, match=r"deletes row 131072, the data file has 131072 rows"):
        positions_in(packed(GOOD), 3, 2**17, "f.puffin at 4")


def test_rows_left_out_are_read_by_input_and_damage_is_told_with_its_place(tmp_path: Path) -> None:
    first, third = PositionSet.of([1, 5]), PositionSet.of([0, 70_000])
    content, parts = vectors_file([("a", first), ("c", third)])
    path = tmp_path / "map.puffin"
    path.write_bytes(content)
    rows = tuple(
        DeletedRows(number, part.offset, part.size_bytes, 2) for number, part in zip((0, 2), parts, strict=True)
    )
    access, found = access_to(tmp_path), PositionMap(str(path), len(content), rows)
    assert read_omitted_rows(access, found, [6, 9, 70_001]) == {0: first, 2: third}
    assert read_omitted_rows(access, PositionMap("", 0, ()), [6, 9, 70_001]) == {}
    with pytest.raises(UnreadableFile, match=f"{path}, byte {parts[1].offset} deletes row 70000"):
        read_omitted_rows(access, found, [6, 9, 70_000])
    with pytest.raises(UnreadableFile, match=f"{path}, byte {parts[0].offset} has 2 positions, .* tells of 3"):
        read_omitted_rows(access, replace(found, left_out=(replace(rows[0], record_count=3),)), [6])
    with pytest.raises(UnreadableFile, match=f"{path} has {len(content)} bytes, the map of positions tells of 5"):
        read_omitted_rows(access, replace(found, size_bytes=5), [6, 9, 70_001])


@given(cut=st.integers(0, 60), flipped=st.integers(0, 60), mask=st.integers(1, 255))
def test_no_damage_below_a_right_checksum_ends_the_process(cut: int, flipped: int, mask: int) -> None:
    body = bytearray(packed(GOOD)[4:-4])
    body[4 + flipped % (len(body) - 4)] ^= mask
    with suppress(UnreadableFile):
        assert len(positions_in(_resealed(bytes(body[: len(body) - cut])), 3, 2**18, "f")) == 3


D = data("d", 5, 100, 0)
OF_C = replace(
    CONVERTED,
    path="file:///w/t/data/p-1-1-u2.puffin",
    file_format=FileFormat.PUFFIN,
    metrics=NO_METRICS,
    content_offset=4,
    content_size_bytes=60,
)
OF_D = replace(OF_C, referenced_data_file=D.path, content_offset=64, record_count=3)
OLD = replace(OF_C, path="file:///w/t/data/old.puffin", sequence_number=8, record_count=15)


def record(*vectors: DeleteFile, old: DeleteFile = OLD) -> PlanRecord:
    """Two files that were converted: C with a vector, and D."""
    work = replace(
        GROUP.work,
        table=replace(CONTEXT, format_version=3),
        rewritten=(),
        converted=(InputFile(C, (0, 1)), InputFile(D, (0,))),
        deletes=(EQUALITY, old),
    )
    positions = sum(one.record_count for one in vectors)
    output = replace(
        GROUP.output, data_files=(), delete_files=vectors, rows_read=0, rows_deleted=0, rows_written=0,
        positions_written=positions,
    )  # fmt: skip
    return replace(RECORD, format_version=3, groups=(Group(1, work, output),))


FACTS = {
    OF_C.path: FileFacts(
        OF_C.size_bytes, 23, {}, {}, {4: VectorFacts(C.path, 60, 20, 999), 64: VectorFacts(D.path, 60, 3, 9)}
    )
}


def facts(**changes: object) -> dict[str, FileFacts]:
    return {OF_C.path: replace(FACTS[OF_C.path], **changes)}  # type: ignore[arg-type]


def problem(now: PlanRecord, found: dict[str, FileFacts] = FACTS) -> str:
    scanned: dict[str, ScannedFile] = scanned_of(now)
    with pytest.raises(CheckFailed) as failed:
        check(now, scanned, found)
    return failed.value.message


def test_vectors_of_all_converted_files_lie_in_one_file_and_are_those_that_were_reported() -> None:
    now = record(OF_C, OF_D)
    check(now, scanned_of(now), FACTS)
    vectors = {**FACTS[OF_C.path].vectors, 64: VectorFacts(D.path, 60, 3, 100)}
    assert f"deletes row 100 of 100 of {D.path}" in problem(now, facts(vectors=vectors))
    assert "has vectors that were not reported, at [64]" in problem(record(OF_C))
    assert "check files" in problem(now, facts(size_bytes=199))
    assert f"{C.path} has more than one" in problem(record(OF_C, replace(OF_C, content_offset=64)))
    other = replace(OF_D, path="file:///w/t/data/p-1-1-u3.puffin")
    found = {**facts(vectors={4: VectorFacts(C.path, 60, 20, 999)})}
    found[other.path] = replace(FACTS[OF_C.path], vectors={64: VectorFacts(D.path, 60, 3, 9)})
    assert "its vectors lie in several files" in problem(record(OF_C, other), found)


def test_a_position_delete_file_is_none_of_format_3_and_a_vector_none_of_format_2() -> None:
    assert "check format" in problem(record(replace(OF_C, file_format=FileFormat.PARQUET)))
    now = record(OF_C, OF_D)
    work = replace(now.groups[0].work, table=CONTEXT)
    assert "check format" in problem(replace(now, groups=(replace(now.groups[0], work=work),)))


@pytest.mark.parametrize(
    "changed",
    [{"content_offset": 5}, {"content_size_bytes": 61}, {"record_count": 19}, {"referenced_data_file": D.path}],
    ids=str,
)
def test_a_vector_that_is_not_where_its_entry_will_say_fails(changed: dict[str, object]) -> None:
    others = () if "referenced_data_file" in changed else (OF_D,)
    assert "check vectors" in problem(record(replace(OF_C, **changed), *others, old=EQUALITY))  # type: ignore[arg-type]


@pytest.mark.parametrize("vectors", [(OF_D,), (replace(OF_C, record_count=14), OF_D)], ids=["none", "fewer"])
def test_a_vector_with_fewer_positions_than_the_one_it_replaces_fails(vectors: tuple[DeleteFile, ...]) -> None:
    found = {4: VectorFacts(C.path, 60, 14, 999), 64: VectorFacts(D.path, 60, 3, 9)}
    kept = {one.content_offset or 0: found[one.content_offset or 0] for one in vectors}
    assert f"{C.path} had 15 positions and has" in problem(record(*vectors), facts(vectors=kept))


def test_two_tasks_do_not_write_into_one_file() -> None:
    first = record(OF_C).groups[0]
    second = record(OF_D, old=EQUALITY).groups[0]
    groups = (
        replace(first, work=replace(first.work, converted=first.work.converted[:1])),
        replace(second, work=replace(second.work, converted=second.work.converted[1:])),
    )
    assert "has vectors that were not reported, at [64]" in problem(replace(record(OF_C), groups=groups))


# One for each data file, each part of a file apart from the others


A, B = live_data("a"), live_data("b")


def head(files: Sequence[DataFile], *deletes: DeleteFile) -> Head:
    live, dangling = match(files, deletes, frozenset({0}))
    return Head("uuid", 3, 7, 20, True, frozenset(), TableScan(7, 20, live, dangling), ())


def content(added: Sequence[DeleteFile] = (), removed: Sequence[DeleteFile] = ()) -> CommitContent:
    return CommitContent((), (), tuple(removed), (), tuple(added))


LIVE, NEW = vector(A), vector(A, 9, 90, "w.puffin")


@pytest.mark.parametrize("live", [[A, B], [B]], ids=["applies", "dangles"])
def test_a_commit_that_leaves_two_vectors_for_one_data_file_conflicts_and_names_both(live: list[DataFile]) -> None:
    with pytest.raises(CommitConflict, match=r"/a would have .* v\.puffin at 4 and w\.puffin at 90"):
        require_one_vector(content([NEW]), head(live, LIVE))
    with pytest.raises(CommitConflict):
        require_one_vector(content([LIVE, replace(NEW, referenced_data_file="/w/t/data/a")]), head([A, B]))


def test_a_vector_replaces_the_one_that_is_removed_by_its_part_of_the_file_alone() -> None:
    require_one_vector(content([NEW], [LIVE]), head([A, B], LIVE, vector(B, offset=60), position("p", 9)))
    require_one_vector(content([], [position("p", 9)]), head([A, B], LIVE))
    others = vector(B, offset=60)
    with pytest.raises(CommitConflict):
        require_one_vector(content([NEW], [others]), head([A, B], LIVE, others))


@pytest.mark.parametrize(
    ("added", "is_new"),
    [
        (vector(A, offset=60), True),
        (vector(A), False),
        (vector(A, path="file:v.puffin"), True),
        (vector(A, path="p"), False),
        (position("v.puffin", 9), False),
        (position("p", 9), False),
        (position("q", 9), True),
        (position(B.path, 9), False),
    ],
    ids=str,
)
def test_a_delete_is_new_unless_its_part_of_the_file_is_live(added: DeleteFile, is_new: bool) -> None:
    now = head([B], vector(B), position("p", 8))
    if is_new:
        _require_new(content([added]), now)
        return
    with pytest.raises(CommitConflict, match="is in the table already"):
        _require_new(content([added]), now)


def test_vectors_are_counted_as_such_with_the_bytes_of_their_parts() -> None:
    header = ManifestHeader(0, "[]", "{}", "0", StructType())
    entries = [added_entry(one, header, 1).data_file for one in (LIVE, vector(B, offset=60), position("p", 9))]
    counts = ChangeCounts()
    for entry in entries:
        counts.add_file(entry)
    counts.remove_file(entries[0])
    assert [entry.file_format for entry in entries] == [EntryFormat.PUFFIN, EntryFormat.PUFFIN, EntryFormat.PARQUET]
    assert counts.to_dict() == {
        "added-files-size": "180",
        "removed-files-size": "40",
        "added-position-delete-files": "1",
        "added-delete-files": "3",
        "removed-delete-files": "1",
        "added-position-deletes": "9",
        "removed-position-deletes": "3",
        "added-dvs": "2",
        "removed-dvs": "1",
    }
