"""Hive as catalog: a metastore of the tests' own behind the real client and its thrift protocol."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.table import Table

from amoro_core.errors import CommitUnknown, TableNotFound, TableRefused
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.commits import Trace
from amoro_core.model.processes import CatalogConfig
from tests.engine.oracle import assert_same_rows, live_rows
from tests.iceberg import scenarios
from tests.iceberg.metastore import Metastore, served
from tests.iceberg.rewriting import rewritten
from tests.iceberg.scenarios import TABLE, filled, staged, traced


@pytest.fixture
def metastore() -> Metastore:
    return Metastore()


@pytest.fixture
def config(metastore: Metastore, tmp_path: Path) -> Iterator[CatalogConfig]:
    with served(metastore) as uri:
        properties = {"type": "hive", "uri": uri, "warehouse": (tmp_path / "warehouse").as_uri()}
        yield CatalogConfig("cat", tuple(sorted(properties.items())))
        close_catalogs()


@pytest.fixture
def table(config: CatalogConfig) -> Table:
    return filled(HiveCatalog("cat", **dict(config.properties)))


def test_a_rewrite_lands_between_the_commits_of_others(
    config: CatalogConfig, table: Table, metastore: Metastore
) -> None:
    scenarios.assert_commit_lands(config, table)

    assert metastore.locked == []


def test_a_table_is_upgraded_and_committed_to_in_format_3(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_format_3_lands(config, table)


def test_a_column_that_is_not_handled_is_refused_by_name(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_a_variant_is_refused(config, table)


def test_a_key_of_the_metadata_that_is_not_known_is_never_lost(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_an_unknown_key_is_never_lost(config, table)


def test_a_commit_of_another_between_staging_and_sending_is_a_conflict(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_conflict_changes_nothing(config, table, lambda commit: commit())


def test_an_expiry_loses_no_tag(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_expiry_loses_no_tag(config, table)


def test_a_second_sending_finds_the_first(config: CatalogConfig, table: Table) -> None:
    scenarios.assert_sent_again_applies_once(config, table)


def test_a_table_that_another_has_locked_is_never_committed_to(
    config: CatalogConfig, table: Table, metastore: Metastore
) -> None:
    before = live_rows(table)
    found, attempt = staged(config, rewritten(table))
    component = LockComponent(level=LockLevel.TABLE, type=LockType.EXCLUSIVE, dbname="db", tablename="t")
    metastore.lock(LockRequest(component=[component]))

    # Nobody else has committed: that this sending is not under way any more can't be told from the answer.
    with pytest.raises(CommitUnknown):
        found.send(attempt.payload)

    assert traced(found, attempt) is Trace.OPEN
    assert_same_rows(before, live_rows(table))


def test_a_commit_that_was_applied_before_the_metastore_failed_is_unknown_and_found(
    config: CatalogConfig, table: Table, metastore: Metastore
) -> None:
    before = live_rows(table)
    found, attempt = staged(config, rewritten(table))
    metastore.fails_after_alter = True

    with pytest.raises(CommitUnknown):
        found.send(attempt.payload)

    assert traced(found, attempt) is Trace.LANDED
    assert_same_rows(before, live_rows(table))


def test_a_table_that_is_gone_is_not_found(config: CatalogConfig, table: Table) -> None:
    table.catalog.drop_table("db.t")

    with pytest.raises(TableNotFound):
        IcebergFormat().load(config, TABLE)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        (
            {"arctic.enabled": "true"},
            "the table is not a plain Iceberg table: it is a table of Amoro's Mixed-Hive format: arctic.enabled=true",
        ),
        (
            {"arctic.enabled": "true", "table_type": "ICEBERG"},
            "the table is not a plain Iceberg table: it is a table of Amoro's Mixed-Hive format: arctic.enabled=true",
        ),
        ({}, "cat.db.t is not an Iceberg table: Property table_type missing, could not determine type: db.t"),
        (
            {"table_type": "PAIMON"},
            "cat.db.t is not an Iceberg table: Property table_type is PAIMON, expected iceberg: db.t",
        ),
    ],
    ids=["Mixed-Hive", "Mixed-Hive beside Iceberg", "Hive", "Paimon"],
)
def test_a_hive_table_of_another_format_is_refused_by_its_parameters(
    config: CatalogConfig, table: Table, metastore: Metastore, parameters: dict[str, str], message: str
) -> None:
    found = metastore.get_table("db", "t")
    own = {key: value for key, value in found.parameters.items() if key != "table_type"}
    found.parameters = {**own, **parameters}
    metastore.create_table(found)

    with pytest.raises(TableRefused) as refused:
        IcebergFormat().load(config, TABLE)

    assert (refused.value.reason, refused.value.message) == ("format", message)


def test_locations_are_asked_for_in_batches_and_are_those_of_loaded_tables(
    config: CatalogConfig, table: Table, metastore: Metastore
) -> None:
    hive = metastore.get_table(*TABLE.in_catalog)
    hive.tableName, hive.parameters = "plain", {}
    metastore.create_table(hive)
    for number in range(400):
        one = metastore.get_table(*TABLE.in_catalog)
        one.tableName = f"t{number}"
        metastore.create_table(one)
    space = TABLE.in_catalog[0]
    names = {TABLE.in_catalog, (space, "plain"), (space, "gone"), *((space, f"t{number}") for number in range(400))}
    metastore.asked.clear()

    said = IcebergFormat().locations(config, names)

    place = IcebergFormat().load(config, TABLE).facts.metadata_location
    assert said == dict.fromkeys(names - {(space, "plain"), (space, "gone")}, place)
    assert metastore.asked == [300, 103]
