"""Names that a shell completes, read from a state directory that may be in use."""

from pathlib import Path

from amoro_cli.launcher import Kind
from amoro_core.model.processes import CatalogConfig, ResourceGroup
from amoro_core.model.tables import parse_table
from amoro_core.store import catalogs, groups, processes, tables
from amoro_core.store.database import Store
from amoro_core.store.naming import names_in

from .builders import process, runtime


def test_names_of_every_kind_are_read_beside_the_store(tmp_path: Path) -> None:
    with Store.open(tmp_path / "amoro.db") as store:
        for name in ("cat.db.t", "cat.a.b.`odd name`"):
            made = store.write(lambda db, name=name: tables.add(db, runtime(identifier=parse_table(name))))
        store.write(lambda db: processes.add(db, process(made)))
        store.write(lambda db: catalogs.add(db, CatalogConfig("lake", ())))
        store.write(lambda db: groups.add(db, ResourceGroup("nightly")))
        assert names_in(tmp_path, Kind.TABLE) == ["cat.a.b.`odd name`", "cat.db.t"]
        assert names_in(tmp_path, Kind.CATALOG) == ["cat", "lake"]
        assert "nightly" in names_in(tmp_path, Kind.GROUP)
        assert names_in(tmp_path, Kind.PROCESS) == [process(made).process_id]
        assert names_in(tmp_path, Kind.OPTIMIZER) == []


def test_where_there_is_no_state_or_a_broken_one_there_are_no_names(tmp_path: Path) -> None:
    assert names_in(tmp_path / "none", Kind.TABLE) == []
    (tmp_path / "amoro.db").write_bytes(b"no database at all" * 100)
    assert names_in(tmp_path, Kind.TABLE) == []
