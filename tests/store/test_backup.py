"""Copies of the state database, and its check."""

import sqlite3
from pathlib import Path

import pytest

from amoro_core.errors import AlreadyExists, InvalidArgument, StoreFailed
from amoro_core.model.processes import ResourceGroup
from amoro_core.services.state import StateService
from amoro_core.store import groups
from amoro_core.store.database import Store


def test_a_backup_is_a_whole_private_copy_that_opens_as_a_state(store: Store, tmp_path: Path) -> None:
    store.write(lambda db: groups.add(db, ResourceGroup("nightly")))
    target = tmp_path / "copy.db"
    assert StateService(store).backup(str(target)) == target.stat().st_size
    assert target.stat().st_mode & 0o777 == 0o600
    store.write(lambda db: groups.add(db, ResourceGroup("later")))
    assert [path.name for path in tmp_path.iterdir() if "copy" in path.name] == ["copy.db"]
    with Store.open(target) as copy:
        assert [group.name for group in copy.read(groups.list_groups)] == ["default", "nightly"]
        assert copy.check() == []


def test_a_backup_never_replaces_a_file(store: Store, tmp_path: Path) -> None:
    target = tmp_path / "copy.db"
    target.write_text("precious")
    with pytest.raises(AlreadyExists, match="exists already; a backup never replaces a file"):
        store.backup(target)
    assert target.read_text() == "precious"


def test_a_place_that_can_not_be_written_is_named_and_nothing_is_left(store: Store, tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="can't be written: No such file or directory"):
        store.backup(tmp_path / "nowhere" / "copy.db")
    with pytest.raises(InvalidArgument, match="is not an absolute path"):
        StateService(store).backup("copy.db")


def test_a_check_names_references_that_lead_nowhere(store: Store, path: Path) -> None:
    assert store.check() == []
    with sqlite3.connect(path) as other:
        other.execute("INSERT INTO optimizer VALUES ('o', 'h', 'gone', 1, 1, '{}', 1, 0, '[]', 0)")
    assert StateService(store).check() == ["row 1 of optimizer refers to a row of resource_group that does not exist"]
