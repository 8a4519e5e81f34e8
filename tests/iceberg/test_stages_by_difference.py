"""A commit reads and writes the manifests that hold what it removes, and carries the others over as they are."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.manifest import ManifestContent
from pyiceberg.table import Table

from amoro_core.errors import CommitConflict
from amoro_core.iceberg.commit import committing, rewrite_files
from amoro_core.iceberg.manifest.reading import read_list
from amoro_core.model.commits import CommitContent, Head
from amoro_core.scan.live_files import LiveFiles, ManifestIndex
from amoro_core.validation import validate
from amoro_core.validation.view import build_view
from tests.engine import writer
from tests.engine.oracle import assert_same_rows, live_rows
from tests.iceberg.looking import Reader
from tests.iceberg.rewriting import head_of, loaded, rewritten
from tests.iceberg.scenarios import SCHEMA, rows


@pytest.fixture
def table(tmp_path: Path) -> Table:
    made = writer.make_table(writer.make_catalog(tmp_path), "db.t", SCHEMA)
    for number in range(5):
        writer.append(made, rows(2 * number, 2 * number + 1))
    writer.delete_where(made, lambda row: row["x"] == 1, per_file=True)
    writer.delete_where(made, lambda row: row["x"] == 9, per_file=True)
    return made


def change(table: Table) -> tuple[Head, CommitContent]:
    """The rewrite of the first two files, and the head after another's commit."""
    oldest = sorted(writer_files(table))[:2]
    record = rewritten(table, only=[path for _, path in oldest])
    writer.append(table, rows(100))
    head = head_of(table, record.snapshot_id)
    content = validate(build_view(record, head)).content
    assert content is not None
    return head, content


def writer_files(table: Table) -> list[tuple[int, str]]:
    head = head_of(table, table.refresh().metadata.current_snapshot_id or 0)
    return [(file.data.sequence_number, file.data.path) for file in head.scan.files]


def manifests(table: Table) -> dict[str, int]:
    snapshot = loaded(table).current_snapshot()
    assert snapshot is not None
    return {one.manifest_path: one.manifest_length for one in read_list(table.io, snapshot.manifest_list)}


def test_only_manifests_with_removed_files_are_read_and_written_anew(table: Table) -> None:
    before, reader = live_rows(table).total() + 1, Reader()
    head, content = change(table)
    carried = manifests(table)
    attempt = rewrite_files.stage(loaded(table), head, content, {}, read=reader, merge=False)
    assert (len(content.removed_data), len(content.removed_deletes)) == (2, 1)
    assert sorted(reader.read) == [ManifestContent.DATA] * 2 + [ManifestContent.DELETES]
    expected = live_rows(table)
    committing.send(table.catalog, loaded(table), attempt.payload)
    kept = manifests(table).items() & carried.items()
    assert len(kept) == len(carried) - 3
    assert_same_rows(expected, live_rows(table))
    assert live_rows(table).total() == before


@pytest.mark.parametrize("wrong", ["another data manifest", "another delete manifest", "none"])
def test_a_head_that_is_wrong_about_manifests_conflicts(table: Table, wrong: str) -> None:
    head, content = change(table)
    live = LiveFiles.of(head.scan.files)
    assert live.homes is not None
    parts, deletes = live.homes.parts, live.homes.deletes
    if wrong == "another data manifest":
        live.homes = ManifestIndex(parts[::-1], deletes)
    elif wrong == "another delete manifest":
        paths = list(deletes.values())
        live.homes = ManifestIndex(parts, dict(zip(deletes, reversed(paths), strict=True)))
    else:
        live.homes = ManifestIndex(("",) * len(parts), {})
    before = sorted(Path(table.location().removeprefix("file://")).rglob("*"))
    with pytest.raises(CommitConflict, match="is live 0 times on the head"):
        rewrite_files.stage(loaded(table), head, content, {})
    assert sorted(Path(table.location().removeprefix("file://")).rglob("*")) == before


def test_a_new_file_that_is_live_in_a_manifest_which_is_not_read_conflicts(table: Table) -> None:
    head, content = change(table)
    removed = {file.path for file in content.removed_data}
    other = next(file.data for file in head.scan.files if file.data.path not in removed)
    for path in (other.path, f"file:{other.path.removeprefix('file://')}"):
        again = replace(content, added_data=(replace(content.added_data[0], path=path),))
        with pytest.raises(CommitConflict, match="is in the table already"):
            rewrite_files.stage(loaded(table), head, again, {})
