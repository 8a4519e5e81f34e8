"""Commits through the port over a catalog that some service holds; `table` is another writer's, `config` ours."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import LongType, NestedField, StringType

from amoro_core.errors import CommitConflict, CommitRefused, TableRefused
from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.formats.port import AnyTable, Role, with_roles
from amoro_core.model.commits import PlanRecord, SnapshotAdded, StagedCommit, Trace
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from amoro_core.validating import validate
from amoro_core.validating.sight import look
from tests.engine.oracle import DATA, assert_same_rows, live_files, live_rows, live_rows_with_positions
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, create_tag, delete_where, make_table, upsert
from tests.iceberg.rewriting import loaded, rewritten

SCHEMA = Schema(NestedField(1, "x", LongType(), required=False), NestedField(2, "region", StringType(), required=False))
TABLE = TableIdentifier("cat", ("db",), "t")


def rows(*values: int) -> list[dict[str, object]]:
    return [{"x": value, "region": "n"} for value in values]


def filled(catalog: Catalog) -> Table:
    """The table with small files and deletes of both kinds."""
    table = make_table(catalog, "db.t", SCHEMA)
    append(table, rows(1, 2))
    append(table, rows(3, 4))
    upsert(table, rows(1), ["x"])
    delete_where(table, lambda row: row["x"] == 4)
    return table


def staged(config: CatalogConfig, plan: PlanRecord) -> tuple[AnyTable, StagedCommit]:
    """The rewrite validated and staged through the port."""
    found = IcebergFormat().load(config, TABLE)
    head = found.head(plan.snapshot_id)
    content = validate(look(plan, head)).content
    assert content is not None
    return found, found.stage(head, content, {"amoro.process-id": plan.process_id})


def traced(found: AnyTable, attempt: StagedCommit) -> Trace:
    return found.trace(SnapshotAdded(attempt.snapshot_id, attempt.parent_snapshot_id, attempt.sequence_number))


def assert_commit_lands(config: CatalogConfig, table: Table) -> None:
    """A rewrite is seen by the other writer, who goes on, and by none of our rows changed."""
    tables = IcebergFormat()
    tables.check(config)
    assert tables.commits_refused(config) is None
    assert tables.list_tables(config) == [TABLE]
    before, plan = live_rows(table), rewritten(table)
    append(table, rows(5))
    upsert(table, rows(3), ["x"])
    between = live_rows(table)
    found, attempt = staged(config, plan)
    assert traced(found, attempt) is Trace.OPEN

    found.send(attempt.payload)

    assert traced(found, attempt) is Trace.LANDED
    assert loaded(table).metadata.current_snapshot_id == attempt.snapshot_id
    assert_same_rows(between, live_rows(table))
    assert before != between
    assert len(live_files(table)) == 4  # the rewritten one, two new ones and the delete among them
    append(table, rows(6))
    assert live_rows(table).total() == between.total() + 1


def assert_format_3_lands(config: CatalogConfig, table: Table) -> None:
    """The upgrade keeps what is there, and the commits after it give row ids to every file, each once."""
    before, metadata = live_rows(table), loaded(table).metadata
    found = IcebergFormat().load(config, TABLE)
    found.send(found.stage_upgrade())
    after = loaded(table).metadata
    assert (after.format_version, after.next_row_id, after.snapshots) == (3, 0, metadata.snapshots)
    assert_same_rows(before, live_rows(table))

    append(table, rows(0))  # gives ids to the files of before
    assert_commit_lands(config, table)

    ids = assert_ids_apart(table)
    assert ids <= set(range(loaded(table).metadata.next_row_id or 0))


def assert_a_variant_is_refused(config: CatalogConfig, table: Table) -> None:
    """Metadata that pyiceberg can't make a model of are refused by the column."""
    path = Path(local_path(table.refresh().metadata_location))
    metadata = json.loads(path.read_text())
    for schema in metadata["schemas"]:
        schema["fields"].append({"id": 99, "name": "v", "required": False, "type": "variant"})
    path.write_text(json.dumps(metadata))
    with pytest.raises(TableRefused, match="column v has the type variant, which is not handled") as refused:
        IcebergFormat().load(config, TABLE)
    assert refused.value.reason == "type"


def assert_an_unknown_key_is_never_lost(config: CatalogConfig, table: Table) -> None:
    """A key that comes between staging and sending ends the commit; the table is refused for it from then on."""
    path = Path(local_path(loaded(table).metadata_location))
    found, attempt = staged(config, rewritten(table))
    path.write_text(json.dumps({**json.loads(path.read_text()), "of-tomorrow": {"a": 1}}))
    before = path.read_bytes()
    said = "the metadata file has the key of-tomorrow, which would be lost"
    with pytest.raises(CommitRefused, match=said):
        found.send(attempt.payload)
    with pytest.raises(TableRefused, match=said) as refused:
        IcebergFormat().load(config, TABLE)
    assert refused.value.reason == "metadata"
    assert (Path(local_path(loaded(table).metadata_location)), path.read_bytes()) == (path, before)


def assert_ids_apart(table: Table) -> set[int]:
    """The ids of the rows of all live data files, none of two rows."""
    files = [file for file in live_files(table) if file.content == DATA]
    firsts = [(file.first_row_id, file.record_count) for file in files]
    ids = [one for first, count in firsts if first is not None for one in range(first, first + count)]
    assert len(ids) == sum(count for _, count in firsts)
    assert len(set(ids)) == len(ids)
    return set(ids)


def assert_conflict_changes_nothing(
    config: CatalogConfig, table: Table, arrange: Callable[[Callable[[], None]], None]
) -> None:
    """Another writer's commit, arranged to come between our staging and the service's decision, wins."""
    found, attempt = staged(config, rewritten(table))
    arrange(lambda: _append_seven(table))

    with pytest.raises(CommitConflict):
        found.send(attempt.payload)

    assert traced(found, attempt) is Trace.REFUTED
    assert sorted(one.record["x"] for one in live_rows_with_positions(table)) == [1, 2, 3, 7]


def assert_expiry_loses_no_tag(config: CatalogConfig, table: Table) -> None:
    """A tag that another writer makes after validation keeps its snapshot; the next attempt removes the others."""
    found = with_roles(IcebergFormat().load(config, TABLE), (Role.EXPIRE, Role.COMMIT), "expiry")
    first, second, third, head = (one.snapshot_id for one in table.metadata.snapshots)
    assert len(found.history(anew=True).snapshots) == 4
    payload, evidence = found.stage_expiry({first, second}, (), clean=False)
    create_tag(table, "mine", second)

    with pytest.raises(CommitConflict):
        found.send(payload)

    assert found.trace(evidence) is Trace.REFUTED
    assert {ref.name for ref in found.history(anew=True).refs} == {"main", "mine"}
    payload, evidence = found.stage_expiry({first, third}, (), clean=False)
    found.send(payload)
    found.send(payload)
    assert found.trace(evidence) is Trace.LANDED
    table.refresh()
    parents = {one.snapshot_id: one.parent_snapshot_id for one in table.metadata.snapshots}
    assert parents == {second: first, head: third}
    assert sorted(one.record["x"] for one in live_rows_with_positions(table)) == [1, 2, 3]


def _append_seven(table: Table) -> None:
    append(table, rows(7))


def assert_sent_again_applies_once(config: CatalogConfig, table: Table) -> None:
    """A second sending of the same bytes finds the first."""
    before = live_rows(table)
    found, attempt = staged(config, rewritten(table))
    found.send(attempt.payload)
    count = len(loaded(table).metadata.snapshots)

    found.send(attempt.payload)

    assert len(loaded(table).metadata.snapshots) == count
    assert_same_rows(before, live_rows(table))
