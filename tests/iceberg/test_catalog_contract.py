"""One contract of all catalogs that commits go through: SQL, REST, and Hive and Glue behind their real clients."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
from hive_metastore.ttypes import LockComponent, LockLevel, LockRequest, LockType, UnlockRequest
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.glue import GlueCatalog
from pyiceberg.catalog.hive import HiveCatalog
from pyiceberg.table import Table

from amoro_core.errors import CommitConflict, CommitRefused, CommitUnknown, TableNotFound, TableRefused
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.ports import Role, with_roles
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.commits import Trace
from amoro_core.model.processes import CatalogConfig
from tests.engine.oracle import DATA, assert_same_rows, live_files, live_rows, live_rows_with_positions
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, create_tag, make_catalog, upsert
from tests.faults.rest import RestServer
from tests.iceberg.catalog_services import Glue, Metastore, served, served_glue
from tests.iceberg.rewriting import loaded, rewritten
from tests.iceberg.scenarios import TABLE, change_metadata, filled, rows, staged, traced
from tests.tiers import sample


@dataclass
class Lake:
    """A catalog as we are given it, and a table as another writer has it."""

    config: CatalogConfig
    table: Table


@pytest.fixture
def metastore() -> Metastore:
    return Metastore()


@pytest.fixture
def glue() -> Glue:
    return Glue()


@pytest.fixture
def lake(request: pytest.FixtureRequest, tmp_path: Path, metastore: Metastore, glue: Glue) -> Iterator[Lake]:
    """A catalog of the kind, and of REST a server that gets the updates as they are and writes the metadata."""
    place, kind = (tmp_path / "warehouse").as_uri(), request.param
    with ExitStack() as stack:
        catalog: Catalog
        if kind == "hive":
            given = {"type": "hive", "uri": stack.enter_context(served(metastore)), "warehouse": place}
            catalog = HiveCatalog("cat", **given)
        elif kind == "glue":
            given = {**stack.enter_context(served_glue(glue)), "warehouse": place}
            catalog = GlueCatalog("cat", **{**given, "glue.max-retries": 0})
            stack.callback(catalog.glue.close)
        else:
            catalog = make_catalog(tmp_path)
            stack.callback(catalog.close)
            given = {"type": "sql", **catalog.properties}
            if kind == "rest":
                uri = stack.enter_context(RestServer(catalog)).uri
                given = {"type": "rest", "uri": uri, "warehouse": catalog.properties["warehouse"]}
        yield Lake(CatalogConfig("cat", tuple(sorted(given.items()))), filled(catalog))
        close_catalogs()
    assert kind != "hive" or metastore.locked == []


def of(*kinds: str, every: int = 1) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("lake", sample(kinds, every=every), indirect=True)


of_all = of("hive", "sql", "rest", "glue", every=2)
#: The metadata file is ours to write and read in these alone.
of_ours = of("hive", "sql", "glue", every=3)


def assert_commit_lands(lake: Lake) -> None:
    """A rewrite is seen by the other writer, who goes on, and by none of our rows changed."""
    tables = IcebergFormat()
    tables.check(lake.config)
    assert tables.commits_refused(lake.config) is None
    assert tables.list_tables(lake.config) == [TABLE]
    before, plan = live_rows(lake.table), rewritten(lake.table)
    append(lake.table, rows(5))
    upsert(lake.table, rows(3), ["x"])
    between = live_rows(lake.table)
    found, attempt = staged(lake.config, plan)
    count = len(loaded(lake.table).metadata.snapshots)
    assert traced(found, attempt) is Trace.OPEN

    for _ in range(2):  # the second one finds the first
        found.send(attempt.payload)

    assert traced(found, attempt) is Trace.LANDED
    assert loaded(lake.table).metadata.current_snapshot_id == attempt.snapshot_id
    assert len(loaded(lake.table).metadata.snapshots) == count + 1
    assert_same_rows(between, live_rows(lake.table))
    assert before != between
    assert len(live_files(lake.table)) == 4  # the rewritten one, two new ones and the delete among them
    append(lake.table, rows(6))
    assert live_rows(lake.table).total() == between.total() + 1


@of_all
def test_a_rewrite_lands_between_the_commits_of_others(lake: Lake) -> None:
    assert_commit_lands(lake)


@of_all
def test_a_table_is_upgraded_and_committed_to_in_format_3(lake: Lake) -> None:
    """The upgrade keeps what is there, and the commits after it give row ids to every file, each once."""
    before, metadata = live_rows(lake.table), loaded(lake.table).metadata
    found = IcebergFormat().load(lake.config, TABLE)
    found.send(found.stage_upgrade())
    after = loaded(lake.table).metadata
    assert (after.format_version, after.next_row_id, after.snapshots) == (3, 0, metadata.snapshots)
    assert_same_rows(before, live_rows(lake.table))

    append(lake.table, rows(0))  # gives ids to the files of before
    assert_commit_lands(lake)

    files = [file for file in live_files(lake.table) if file.content == DATA]
    firsts = [(file.first_row_id, file.record_count) for file in files]
    ids = [one for first, count in firsts if first is not None for one in range(first, first + count)]
    assert len({*ids}) == len(ids) == sum(count for _, count in firsts)
    assert {*ids} <= set(range(loaded(lake.table).metadata.next_row_id or 0))


@of_ours
def test_a_key_of_the_metadata_that_is_not_known_is_never_lost(lake: Lake) -> None:
    """A key that comes between staging and sending ends the commit; the table is refused for it from then on."""
    path = Path(local_path(loaded(lake.table).metadata_location))
    found, attempt = staged(lake.config, rewritten(lake.table))
    change_metadata(lake.table, lambda metadata: metadata.update({"of-tomorrow": {"a": 1}}))
    before = path.read_bytes()
    said = "the metadata file has the key of-tomorrow, which would be lost"
    with pytest.raises(CommitRefused, match=said):
        found.send(attempt.payload)
    with pytest.raises(TableRefused, match=said) as refused:
        IcebergFormat().load(lake.config, TABLE)
    assert refused.value.reason == "metadata"
    assert (Path(local_path(loaded(lake.table).metadata_location)), path.read_bytes()) == (path, before)


def assert_conflict_changes_nothing(lake: Lake, arrange: Callable[[Callable[[], object]], object]) -> None:
    """Another writer's commit, arranged to come between our staging and the service's decision, wins."""
    found, attempt = staged(lake.config, rewritten(lake.table))
    arrange(lambda: append(lake.table, rows(7)))

    with pytest.raises(CommitConflict):
        found.send(attempt.payload)

    assert traced(found, attempt) is Trace.REFUTED
    assert sorted(one.record["x"] for one in live_rows_with_positions(lake.table)) == [1, 2, 3, 7]


@of_all
def test_a_commit_of_another_between_staging_and_sending_is_a_conflict(lake: Lake) -> None:
    assert_conflict_changes_nothing(lake, lambda commit: commit())


@of_ours
def test_an_expiry_loses_no_tag(lake: Lake) -> None:
    """A tag that another writer makes after validation keeps its snapshot; the next attempt removes the others."""
    found = with_roles(IcebergFormat().load(lake.config, TABLE), (Role.EXPIRE, Role.COMMIT), "expiry")
    first, second, third, head = (one.snapshot_id for one in lake.table.metadata.snapshots)
    assert len(found.history(anew=True).snapshots) == 4
    payload, evidence = found.stage_expiry({first, second}, (), clean=False)
    create_tag(lake.table, "mine", second)

    with pytest.raises(CommitConflict):
        found.send(payload)

    assert found.trace(evidence) is Trace.REFUTED
    assert {ref.name for ref in found.history(anew=True).refs} == {"main", "mine"}
    payload, evidence = found.stage_expiry({first, third}, (), clean=False)
    found.send(payload)
    found.send(payload)
    assert found.trace(evidence) is Trace.LANDED
    lake.table.refresh()
    parents = {one.snapshot_id: one.parent_snapshot_id for one in lake.table.metadata.snapshots}
    assert parents == {second: first, head: third}
    assert sorted(one.record["x"] for one in live_rows_with_positions(lake.table)) == [1, 2, 3]


@of_all
def test_a_table_that_is_gone_is_not_found(lake: Lake) -> None:
    lake.table.catalog.drop_table("db.t")

    with pytest.raises(TableNotFound):
        IcebergFormat().load(lake.config, TABLE)


# Hive


@of("hive")
def test_a_table_that_another_has_locked_is_never_committed_to(lake: Lake, metastore: Metastore) -> None:
    before = live_rows(lake.table)
    found, attempt = staged(lake.config, rewritten(lake.table))
    component = LockComponent(level=LockLevel.TABLE, type=LockType.EXCLUSIVE, dbname="db", tablename="t")
    theirs = metastore.lock(LockRequest(component=[component]))

    # Nobody else has committed: that this sending is not under way any more can't be told from the answer.
    with pytest.raises(CommitUnknown):
        found.send(attempt.payload)

    metastore.unlock(UnlockRequest(theirs.lockid))
    assert traced(found, attempt) is Trace.OPEN
    assert_same_rows(before, live_rows(lake.table))


@of("hive")
def test_a_commit_that_was_applied_before_the_metastore_failed_is_unknown_and_found(
    lake: Lake, metastore: Metastore
) -> None:
    before = live_rows(lake.table)
    found, attempt = staged(lake.config, rewritten(lake.table))
    metastore.fails_after_alter = True

    with pytest.raises(CommitUnknown):
        found.send(attempt.payload)

    assert traced(found, attempt) is Trace.LANDED
    assert_same_rows(before, live_rows(lake.table))


MIXED = "the table is not a plain Iceberg table: it is a table of Amoro's Mixed-Hive format: arctic.enabled=true"


@of("hive")
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"arctic.enabled": "true"}, MIXED),
        ({"arctic.enabled": "true", "table_type": "ICEBERG"}, MIXED),
        ({}, "cat.db.t is not an Iceberg table: Property table_type missing, could not determine type: db.t"),
        ({"table_type": "PAIMON"}, "cat.db.t is not an Iceberg table: Property table_type is PAIMON, expected"),
    ],
    ids=["Mixed-Hive", "Mixed-Hive beside Iceberg", "Hive", "Paimon"],
)
def test_a_hive_table_of_another_format_is_refused_by_its_parameters(
    lake: Lake, metastore: Metastore, parameters: dict[str, str], message: str
) -> None:
    found = metastore.get_table("db", "t")
    own = {key: value for key, value in found.parameters.items() if key != "table_type"}
    found.parameters = {**own, **parameters}
    metastore.create_table(found)

    with pytest.raises(TableRefused) as refused:
        IcebergFormat().load(lake.config, TABLE)

    assert (refused.value.reason, refused.value.message.startswith(message)) == ("format", True)


@of("hive")
def test_locations_are_asked_for_in_batches_and_are_those_of_loaded_tables(lake: Lake, metastore: Metastore) -> None:
    plain = metastore.get_table(*TABLE.in_catalog)
    plain.tableName, plain.parameters = "plain", {}
    metastore.create_table(plain)
    for number in range(400):
        one = metastore.get_table(*TABLE.in_catalog)
        one.tableName = f"t{number}"
        metastore.create_table(one)
    space = TABLE.in_catalog[0]
    names = {TABLE.in_catalog, (space, "plain"), (space, "gone"), *((space, f"t{number}") for number in range(400))}
    metastore.asked.clear()

    said = IcebergFormat().locations(lake.config, names)

    place = IcebergFormat().load(lake.config, TABLE).facts.metadata_location
    assert said == dict.fromkeys(names - {(space, "plain"), (space, "gone")}, place)
    assert metastore.asked == [300, 103]


# Glue


@of("glue")
def test_a_commit_of_another_that_glue_alone_can_see_is_a_conflict(lake: Lake, glue: Glue) -> None:
    def just_before_the_update(commit: Callable[[], None]) -> None:
        glue.before_update = commit
        glue.updates.clear()

    assert_conflict_changes_nothing(lake, just_before_the_update)

    assert len(glue.updates) == 2
    assert glue.updates[0] == glue.updates[1]


@of("glue")
def test_a_commit_that_was_applied_and_answered_with_an_error_is_found(lake: Lake, glue: Glue) -> None:
    before = live_rows(lake.table)
    found, attempt = staged(lake.config, rewritten(lake.table))
    glue.updates.clear()
    glue.answers.append(500)

    found.send(attempt.payload)  # the client asks again by itself and is told of a newer version, which is our own

    assert traced(found, attempt) is Trace.LANDED
    assert len(glue.updates) == 2
    assert_same_rows(before, live_rows(lake.table))


@of("glue")
def test_locations_of_whole_databases_are_those_of_loaded_tables(lake: Lake) -> None:
    catalog = GlueCatalog("cat", **{**dict(lake.config.properties), "glue.max-retries": 0})
    space, name = TABLE.in_catalog
    place = lake.table.metadata_location
    for number in range(3):
        catalog.register_table((space, f"t{number}"), place)
    catalog.glue.create_table(DatabaseName=space, TableInput={"Name": "plain", "Parameters": {}})
    catalog.glue.close()

    said = IcebergFormat().locations(lake.config, {(space, name), ("nowhere", "t")})

    assert said == dict.fromkeys([(space, name), *((space, f"t{number}") for number in range(3))], place)
    assert IcebergFormat().load(lake.config, TABLE).facts.metadata_location == place
