"""Two formats in one catalog, on real tables: a SQL catalog of pyiceberg's whose warehouse also has a journal.

Each table is listed, planned, optimized and cancelled as its own format; nothing is decided for the catalog as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from amoro_core.errors import TableRefused
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType, TableIdentifier
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.extension.conftest import LARGE, TABLE, World, make_journal

EVENTS = TableIdentifier("lake", ("db",), "events")


class Lake(World):
    """The world with a SQL catalog, in which an Iceberg table stands beside the journal."""

    def __init__(self, home: Path, formats: str) -> None:
        uri = f"sqlite:///{home}/catalog.db"
        super().__init__(home, {"type": "sql", "uri": uri, "table-formats": formats})
        self.catalog = SqlCatalog("lake", uri=uri, warehouse=str(home / "lake"))
        self.events: Table = writer.make_table(self.catalog, "db.events", SCHEMA)

    def insert(self, *ids: int) -> None:
        """Another engine appends the rows to the Iceberg table, a file for each."""
        for one in ids:
            writer.append(self.events, [row(one)])

    def table_id(self, identifier: TableIdentifier) -> int:
        return self.services.tables.ensure(identifier).table_id

    def optimize(self) -> str:
        """Begin to optimize the Iceberg table; the id of the process."""
        begun = self.services.planning.begin(
            self.table_id(EVENTS), trigger="request", requested=OptimizingType.FULL, force=True
        )
        assert begun.process_id is not None
        return begun.process_id

    def tally(self) -> str:
        """Begin to count the files of the journal; the id of the process."""
        return self.services.maintaining.begin(self.table_id(TABLE), "tally", trigger="request").process_id

    def status(self, process_id: str) -> ProcessStatus | str:
        return self.services.optimizing.find_process(process_id).process.status


@pytest.fixture(params=["iceberg,journal", "journal,iceberg"])
def lake(request: pytest.FixtureRequest, tmp_path: Path, plugged_in: None) -> Iterator[Lake]:
    made = Lake(tmp_path / "home", request.param)
    yield made
    made.store.close()
    close_catalogs()
    made.catalog.close()


def test_both_are_planned_and_optimized_at_the_same_time(lake: Lake) -> None:
    lake.insert(1, 2, 3)
    lake.append(a=LARGE, b=LARGE)
    before = oracle.live_rows(lake.events)
    [counting] = lake.look()  # the journal is due by itself
    rewriting = lake.optimize()
    running = {one.process_id: (one.type, one.lane) for one in lake.processes()}
    assert running == {counting: ("tally", "metadata"), rewriting: ("full", "files")}
    lake.work()
    assert (lake.status(counting), lake.status(rewriting)) == (ProcessStatus.SUCCESS, ProcessStatus.SUCCESS)
    assert lake.tallies() == [{"a": 20, "b": 20}]
    lake.events.refresh()
    assert len(oracle.live_files(lake.events)) == 1
    oracle.assert_same_rows(before, oracle.live_rows(lake.events))


def test_what_one_format_lacks_is_refused_for_its_table_alone(lake: Lake) -> None:
    lake.insert(1, 2)
    lake.append(a=LARGE)
    lake.look()
    with pytest.raises(
        TableRefused, match=r"db\.log has the format journal, which lacks what full needs: read, rewrite"
    ):
        lake.services.planning.begin(lake.table_id(TABLE), trigger="request", requested=OptimizingType.FULL)
    with pytest.raises(TableRefused, match=r"db\.events is no journal"):
        lake.services.maintaining.begin(lake.table_id(EVENTS), "tally", trigger="request")
    lake.optimize()
    lake.work()
    assert {one.type: one.status for one in lake.processes()} == dict.fromkeys(("full", "tally"), ProcessStatus.SUCCESS)


def test_a_table_keeps_its_format_when_the_other_one_gets_a_table_of_its_name(lake: Lake) -> None:
    lake.insert(1, 2)
    lake.append(a=LARGE)
    lake.look()
    lake.work()
    writer.append(writer.make_table(lake.catalog, "db.log", SCHEMA), [row(1)])
    make_journal(lake.home / "lake" / "db" / "events")
    lake.append(b=LARGE)
    again = [lake.optimize(), lake.tally()]
    lake.work()
    assert [lake.status(process_id) for process_id in again] == [ProcessStatus.SUCCESS] * 2
    formats = [lake.services.tables.find(identifier).format for identifier in (EVENTS, TABLE)]
    assert formats == ["iceberg", "journal"]
    assert lake.tallies() == [{"a": 20}, {"b": 20}]
