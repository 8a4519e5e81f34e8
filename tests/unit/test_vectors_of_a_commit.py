"""What a commit may do with deletion vectors: one for each data file, each part of a file apart from the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from pyiceberg.manifest import FileFormat as EntryFormat
from pyiceberg.types import StructType

from amoro_core.errors import CommitConflict
from amoro_core.iceberg.counting import ChangeCounts
from amoro_core.iceberg.manifest_writing import added_entry
from amoro_core.iceberg.manifests import ManifestHeader
from amoro_core.iceberg.staging import _require_new, require_one_vector
from amoro_core.live.matching import match
from amoro_core.model.commits import CommitContent, Head
from amoro_core.model.files import DataFile, DeleteFile, FileFormat, TableScan
from tests.unit.test_validating import data, position

A, B = data("a"), data("b")


def vector(names: DataFile, path: str = "v.puffin", offset: int = 4, sequence: int = 8) -> DeleteFile:
    plain = position(path, sequence, names=names)
    return replace(plain, file_format=FileFormat.PUFFIN, content_offset=offset, content_size_bytes=40)


def head(files: Sequence[DataFile], *deletes: DeleteFile) -> Head:
    live, dangling = match(files, deletes, frozenset({0}))
    return Head("uuid", 3, 7, 20, True, frozenset(), TableScan(7, 20, live, dangling), ())


def content(added: Sequence[DeleteFile] = (), removed: Sequence[DeleteFile] = ()) -> CommitContent:
    return CommitContent((), (), tuple(removed), (), tuple(added))


OLD, NEW = vector(A), vector(A, "w.puffin", 90, 9)


@pytest.mark.parametrize("live", [[A, B], [B]], ids=["applies", "dangles"])
def test_a_commit_that_leaves_two_vectors_for_one_data_file_conflicts_and_names_both(live: list[DataFile]) -> None:
    with pytest.raises(CommitConflict, match=r"/a would have .* v\.puffin at 4 and w\.puffin at 90"):
        require_one_vector(content([NEW]), head(live, OLD))
    with pytest.raises(CommitConflict):
        require_one_vector(content([OLD, replace(NEW, referenced_data_file="/w/t/data/a")]), head([A, B]))


def test_a_vector_that_replaces_another_is_the_only_one() -> None:
    require_one_vector(content([NEW], [OLD]), head([A, B], OLD, vector(B, offset=60), position("p", 9)))
    require_one_vector(content([], [position("p", 9)]), head([A, B], OLD))


def test_a_vector_is_removed_by_its_part_of_the_file_alone() -> None:
    others = vector(B, offset=60)
    with pytest.raises(CommitConflict):
        require_one_vector(content([NEW], [others]), head([A, B], OLD, others))


@pytest.mark.parametrize(
    ("added", "is_new"),
    [
        (vector(A, "v.puffin", 60), True),
        (vector(A, "v.puffin", 4), False),
        (vector(A, "file:v.puffin", 4), True),
        (vector(A, "p", 4), False),
        (position("v.puffin", 9), False),
        (position("p", 9), False),
        (position("q", 9), True),
        (position(B.path, 9), False),
    ],
    ids=str,
)
def test_a_delete_is_new_unless_its_part_of_the_file_is_live(added: DeleteFile, is_new: bool) -> None:
    now = head([B], vector(B, "v.puffin", 4), position("p", 8))
    if is_new:
        _require_new(content([added]), now)
        return
    with pytest.raises(CommitConflict, match="is in the table already"):
        _require_new(content([added]), now)


def test_vectors_are_counted_as_such_with_the_bytes_of_their_parts() -> None:
    header = ManifestHeader(0, "[]", "{}", "0", StructType())
    entries = [added_entry(one, header, 1).data_file for one in (OLD, vector(B, offset=60), position("p", 9))]
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
