"""A state that is only read: as it stands, by whoever wrote it, and as nothing where there is none."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from threading import Thread

import pytest

from amoro_core.errors import StoreFailed
from amoro_core.model.processes import CatalogConfig
from amoro_core.store import catalogs, groups
from amoro_core.store.connection import Connection
from amoro_core.store.database import Store
from amoro_core.store.migrations import MIGRATIONS, applied, migrate
from amoro_core.store.reading import ReadingStore

CATALOG = CatalogConfig("sales", (("type", "sql"),))


@contextmanager
def reading(path: Path) -> Iterator[ReadingStore]:
    with closing(ReadingStore.open(path)) as store:
        yield store


def contents(directory: Path) -> dict[str, bytes]:
    """Every file but the index of the write-ahead log, which each reader keeps, and an empty log."""
    found = {file.name: file.read_bytes() for file in directory.iterdir() if not file.name.endswith("-shm")}
    return {name: content for name, content in found.items() if content or not name.endswith("-wal")}


def test_what_a_coordinator_writes_is_read_beside_it_and_nothing_of_it_is_changed(store: Store, path: Path) -> None:
    with reading(path) as reader:
        assert reader.read(catalogs.list_catalogs) == []
        store.write(lambda db: catalogs.add(db, CATALOG))
        before = contents(path.parent)
        assert reader.read(catalogs.list_catalogs) == [CATALOG]
    assert contents(path.parent) == before
    store.write(lambda db: catalogs.remove(db, "sales"))  # it was not fenced off


def test_a_reader_does_not_write(store: Store, path: Path) -> None:
    with reading(path) as reader:
        with pytest.raises(StoreFailed, match="only reads"):
            reader.write(lambda db: catalogs.add(db, CATALOG))
        with pytest.raises(StoreFailed, match="readonly"):
            reader.read(lambda db: catalogs.add(db, CATALOG))
    assert store.read(catalogs.list_catalogs) == []


def test_where_there_is_no_database_the_state_is_empty_and_none_is_made(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with reading(home / "amoro.db") as reader:
        assert [group.name for group in reader.read(groups.list_groups)] == ["default"]
        assert reader.check() == []
        with pytest.raises(StoreFailed, match="readonly"):
            reader.read(lambda db: catalogs.add(db, CATALOG))
        with pytest.raises(StoreFailed, match="no state database"):
            reader.backup(tmp_path / "copy.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("known", range(1, len(MIGRATIONS)))
def test_what_an_earlier_version_has_written_is_read_from_a_migrated_copy(path: Path, known: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        old = Connection(connection)
        migrate(old, MIGRATIONS[:known])
        old.execute("INSERT INTO catalog_metadata VALUES ('sales', 'amoro', '{\"type\":\"sql\"}', '[]')") if (
            known < 7
        ) else catalogs.add(old, CATALOG)
    before = contents(path.parent)
    with reading(path) as reader:
        found: list[list[CatalogConfig]] = []
        threads = [Thread(target=lambda: found.append(reader.read(catalogs.list_catalogs))) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [[CATALOG]] * 3
        assert reader.read(applied) == len(MIGRATIONS)
    assert contents(path.parent) == before


def test_what_a_newer_version_has_written_is_refused(path: Path) -> None:
    with Store.open(path) as store:
        store.write(
            lambda db: db.execute(
                f"INSERT INTO schema_migration (number, name) VALUES ({len(MIGRATIONS) + 1}, 'to_come')"
            )
        )
    with pytest.raises(StoreFailed, match="a newer version has written it"):
        ReadingStore.open(path)


def test_what_is_no_database_is_said(path: Path) -> None:
    path.write_bytes(b"not a database, and long enough to be sure of that: " * 20)
    with pytest.raises(StoreFailed, match="cannot be read"):
        ReadingStore.open(path)


def test_a_file_that_was_made_and_not_filled_yet_is_an_empty_state(path: Path) -> None:
    path.touch()
    with reading(path) as reader:
        assert reader.read(catalogs.list_catalogs) == []
    assert path.read_bytes() == b""
