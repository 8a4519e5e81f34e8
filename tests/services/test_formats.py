"""Tables of formats that lack something, and tables whose format changes."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from amoro_core.errors import TableRefused
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.formats.port import Role
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableFacts, parse_table
from amoro_core.services.inspecting import InspectionService
from amoro_core.store import tables
from amoro_core.transactions.listing import begin_anew
from tests.engine import writer
from tests.engine.aging import wait_for_one_day
from tests.engine.builders import SCHEMA, row
from tests.services.world import World

TABLE = parse_table("cat.db.t")
TAGGED = {"tag.auto-create.enabled": "true", "tag.auto-create.trigger.max-delay.minutes": "0"}


@pytest.fixture
def table_id(world: World) -> int:
    table = writer.make_table(world.catalog, "db.t", SCHEMA)
    for number in range(4):
        writer.append(table, [row(number)])
    return world.table().table_id


def as_format(world: World, name: str) -> None:
    """Let the tables of Iceberg be those of another format."""
    facts = IcebergTable.facts.fget
    renamed: Any = property(lambda table: replace(facts(table), format=name))
    world.iceberg.table(facts=renamed)


def test_a_look_at_a_table_keeps_its_format(world: World, table_id: int) -> None:
    assert world.table().format == ""
    world.tables.refresh(table_id)
    assert world.table().format == "iceberg"


def test_a_table_that_turns_up_in_another_format_is_refused_by_name_and_keeps_its_own(
    world: World, table_id: int
) -> None:
    world.tables.refresh(table_id)
    as_format(world, "paimon")
    found = world.tables.refresh(table_id)
    assert found is not None
    assert (found.status, found.refusal, found.format) == (OptimizingStatus.REFUSED, "another-format", "iceberg")


def test_a_table_that_is_not_listed_and_has_another_format_is_not_disposed(world: World, table_id: int) -> None:
    world.tables.refresh(table_id)
    as_format(world, "paimon")
    world.iceberg.catalog(list_tables=lambda self, catalog: [])
    assert world.discovery.explore("cat").disposed == ()
    assert world.store.read(lambda db: tables.find(db, TABLE)) is not None


def test_another_table_of_the_name_has_its_own_format(world: World, table_id: int) -> None:
    world.tables.refresh(table_id)
    world.catalog.drop_table("db.t")
    writer.append(writer.make_table(world.catalog, "db.t", SCHEMA), [row(1)])
    as_format(world, "paimon")
    found = world.tables.refresh(table_id)
    assert found is not None
    assert (found.status is not OptimizingStatus.REFUSED, found.format) == (True, "paimon")


def test_another_table_of_the_name_has_its_own_format_also_after_a_death_in_between(
    world: World, table_id: int
) -> None:
    world.tables.refresh(table_id)
    world.catalog.drop_table("db.t")
    made = writer.make_table(world.catalog, "db.t", SCHEMA)
    as_format(world, "paimon")
    world.store.write(lambda db: begin_anew(db, table_id, str(made.metadata.table_uuid), world.now))
    world.restart()
    found = world.tables.refresh(table_id)
    assert found is not None
    assert (found.status is not OptimizingStatus.REFUSED, found.format) == (True, "paimon")


@pytest.mark.parametrize("lacking", [Role.REWRITE, Role.COMMIT])
def test_a_format_that_lacks_a_role_is_refused_for_optimizing_and_shown_all_the_same(
    world: World, table_id: int, lacking: Role
) -> None:
    world.iceberg.table(roles=frozenset(Role) - {lacking})
    found = world.tables.refresh(table_id)
    assert found is not None
    assert (found.status, found.refusal) == (OptimizingStatus.REFUSED, "format")
    assert f"format iceberg, which lacks what optimizing needs: {lacking} (" in found.status_reason
    with pytest.raises(TableRefused, match=f"needs: {lacking}"):
        world.begin()
    inspection = InspectionService(world.store, world.tables_of, lambda: world.now)
    assert inspection.health(TABLE).summary.data_files == 4


def test_an_action_whose_role_a_format_lacks_is_refused_by_name_and_optimizing_goes_on(world: World) -> None:
    wait_for_one_day()
    table = writer.make_table(world.catalog, "db.t", SCHEMA, properties=TAGGED)
    for number in range(4):
        writer.append(table, [row(number)])
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    table_id = world.table().table_id
    world.tables.refresh(table_id)
    assert world.maintaining.list_due() == [(table_id, "auto-create-tags", "cat")]
    world.iceberg.table(roles=frozenset(Role) - {Role.MAINTAIN})
    found = world.tables.refresh(table_id)
    assert found is not None
    assert (found.status is OptimizingStatus.REFUSED, world.maintaining.list_due()) == (False, [])
    with pytest.raises(TableRefused, match="format iceberg, which lacks what auto-create-tags needs: maintain"):
        world.maintaining.begin(table_id, "auto-create-tags", trigger="request")
    assert world.optimize(OptimizingType.FULL) is ProcessStatus.SUCCESS


def test_a_table_that_nobody_can_read_is_not_looked_into(world: World, table_id: int) -> None:
    world.iceberg.table(roles=frozenset({Role.COMMIT}))
    with pytest.raises(TableRefused, match="lacks what reading it needs: read"):
        InspectionService(world.store, world.tables_of, lambda: world.now).health(TABLE)


def test_a_process_whose_table_turns_up_in_another_format_is_not_committed(
    world: World, process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.tables.refresh(world.table().table_id)
    facts: TableFacts = world.tables_of.open(TABLE).facts
    as_format(world, "paimon")
    assert world.committing.commit(process) is ProcessStatus.FAILED
    assert "is known as a table of the format iceberg" in world.optimizing.find_process(process).process.failure
    monkeypatch.undo()
    assert world.tables_of.open(TABLE).facts == facts
