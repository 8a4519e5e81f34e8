"""Paimon tables as they are read, when their services are due, and what bad metadata leads to."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest

from amoro_core.actions.action_api import PlanningContext, Request
from amoro_core.actions.table_services import PaimonCompact, PaimonExpire
from amoro_core.errors import AmoroError, CatalogUnavailable, CheckFailed, CommitConflict, TableRefused
from amoro_core.formats.paimon import PaimonFormat, PaimonTable
from amoro_core.formats.ports import AnyTable
from amoro_core.model.group_config import Capacity
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from amoro_core.model.table_services import FileGroup
from amoro_core.model.tables import OptimizingStatus, TableIdentifier, TableState
from amoro_core.model.task_payload import PROCEDURE_PAIMON
from amoro_core.protocol import maintenance_pb2 as pb
from tests.formats.test_hudi import World

from .paimon_tables import FIELDS, NOW, File, PaimonDirectory, text_row

TABLE = TableIdentifier("lake", ("db",), "orders")
MINUTE = timedelta(minutes=1)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "lake" / "db.db" / "orders"


def catalog(place: Path) -> CatalogConfig:
    return CatalogConfig("lake", (("type", "paimon"), ("warehouse", str(place.parents[1]))))


def load(place: Path) -> PaimonTable:
    return PaimonFormat().load(catalog(place), TABLE)


def files(count: int, **values: Any) -> list[File]:
    return [File(f"data-{at}", **values) for at in range(count)]


def test_a_table_is_listed_and_read_with_partitions_files_snapshots_tags_and_consumers(place: Path) -> None:
    table = PaimonDirectory(place, keys=("id", "day"), partition_keys=("day",))
    first, second = File("a", 1, 0, 10, text_row("2026")), File("b", 1, 0, 20, text_row("2026"))
    table.commit(first, second, at=NOW - 3 * MINUTE)
    table.commit(File("c", 1, 5, 25, text_row("2026")), deleted=[first, second], kind="COMPACT", at=NOW - 2 * MINUTE)
    table.commit(File("d", 0, 0, 7, text_row("2027")), File("e", 1, 0, 8, text_row("2026")), at=NOW - MINUTE)
    (place / "snapshot" / "LATEST").write_text("1")  # a hint that lags behind
    table.write("tag/tag-v1", {"id": 2})
    table.write("consumer/consumer-etl", {"nextSnapshot": 3})
    assert PaimonFormat().list_tables(catalog(place)) == [TABLE]
    read = load(place)
    facts, contents = read.facts, read.contents
    assert (facts.format, facts.snapshot_id, facts.schema_id, facts.last_column_id) == ("paimon", 3, 0, 2)
    assert facts.metadata_location == f"{place}/snapshot/snapshot-3"
    assert contents.columns == {"id": "INT NOT NULL", "day": "STRING", "v": "BIGINT"}
    assert (contents.partition_columns, contents.key_columns) == (("day",), ("id", "day"))
    in_2026, in_2027 = (b64encode(text_row(year)).decode() for year in ("2026", "2027"))
    assert contents.groups == (
        FileGroup(in_2026, "1", (("level 0", 8), ("level 5", 25))),
        FileGroup(in_2027, "0", (("level 0", 7),)),
    )
    assert (contents.kinds, contents.partitions) == ({"level 0": (2, 15), "level 5": (1, 25)}, 2)
    assert [(one.time, one.action, one.user) for one in contents.timeline] == [
        ("2", "tag v1", ""),
        ("3", "consumer etl", ""),
        ("1", "APPEND", "writer"),
        ("2", "COMPACT", "writer"),
        ("3", "APPEND", "writer"),
    ]
    assert (contents.since_compaction, contents.pending, contents.manifest_fields) == (1, (), FIELDS)


def test_a_table_without_snapshots_is_empty_and_one_made_again_is_another_table(place: Path) -> None:
    table = PaimonDirectory(place)
    read = load(place)
    assert (read.facts.snapshot_id, read.contents.groups, read.timeline) == (None, (), ())
    table.write("schema/schema-1", {**table.schema, "id": 1, "timeMillis": 1_800_000_000_000})
    assert load(place).facts == replace(read.facts, schema_id=1, metadata_location=f"{place}/schema/schema-1")
    table.write("schema/schema-0", {**table.schema, "timeMillis": 1_900_000_000_000})
    assert load(place).facts.uuid != read.facts.uuid


def test_manifests_are_read_once_for_each_state_of_a_table(place: Path) -> None:
    table, format = PaimonDirectory(place), PaimonFormat()
    table.commit(File("a"))
    before = format.load(catalog(place), TABLE).contents
    for manifest in place.glob("manifest/*"):
        manifest.rename(manifest.with_name(f"{manifest.name}.gone"))
    assert format.load(catalog(place), TABLE).contents == before
    table.write("schema/schema-1", {**table.schema, "id": 1, "options": {}})
    with pytest.raises(AmoroError, match="does not exist"):
        assert format.load(catalog(place), TABLE).contents


def test_nested_types_are_written_as_in_sql(place: Path) -> None:
    array = {"type": "ARRAY NOT NULL", "element": "INT"}
    row = {"type": "ROW", "fields": [{"id": 1, "name": "a", "type": array}]}
    PaimonDirectory(place, keys=(), fields=[("m", {"type": "MAP", "key": "STRING", "value": row})])
    assert load(place).contents.columns["m"] == "MAP<STRING, ROW<a ARRAY<INT> NOT NULL>>"


def _cut(name: str) -> Any:
    def cut(place: Path) -> None:
        target = next(place.glob(name))
        target.write_bytes(target.read_bytes()[:-20])

    return cut


def _written(name: str, content: str) -> Any:
    def write(place: Path) -> None:
        (place / name).write_text(content)

    return write


def _without(name: str, key: str) -> Any:
    def without(place: Path) -> None:
        document = json.loads((place / name).read_text())
        del document[key]
        (place / name).write_text(json.dumps(document))

    return without


@pytest.mark.parametrize(
    ("damage", "code", "words"),
    [
        (_cut("schema/schema-0"), "AMORO-1004", "schema/schema-0 is not what Paimon writes"),
        (_without("schema/schema-0", "fields"), "AMORO-1004", "schema-0 is not what Paimon writes: KeyError('fields')"),
        (_cut("snapshot/snapshot-1"), "AMORO-1004", "snapshot/snapshot-1 is not what Paimon writes"),
        (_without("snapshot/snapshot-1", "deltaManifestList"), "AMORO-1004", "KeyError('deltaManifestList')"),
        (_written("schema/schema-0", "[" * 100_000), "AMORO-1004", "RecursionError"),
        (_written("schema/schema-0", "[]"), "AMORO-1004", "schema-0 is not what Paimon writes"),
        (lambda place: (place / "manifest/manifest-1").unlink(), "AMORO-1002", "manifest/manifest-1 does not exist"),
        (lambda place: (place / "manifest/delta-1").unlink(), "AMORO-1002", "manifest/delta-1 does not exist"),
        (_cut("manifest/manifest-1"), "AMORO-1004", "manifest/manifest-1 cannot be read as Avro"),
        (_written("manifest/delta-1", "Obj\1"), "AMORO-1004", "delta-1 cannot be read"),
    ],
)
def test_malformed_metadata_is_an_error_that_names_the_file(place: Path, damage: Any, code: str, words: str) -> None:
    PaimonDirectory(place).commit(File("a"))
    damage(place)
    with pytest.raises(AmoroError) as raised:
        assert load(place).contents
    assert (raised.value.code, words in raised.value.message) == (code, True), raised.value.message


def test_a_manifest_outside_the_table_is_not_read(place: Path) -> None:
    table = PaimonDirectory(place)
    table.commit(File("a"))
    table.write("snapshot/snapshot-1", {**_document(place, 1), "deltaManifestList": "../../../secret"})
    with pytest.raises(TableRefused, match=r"has a '\.\.' segment"):
        assert load(place).contents


def test_of_ten_thousand_snapshots_the_first_and_the_last_are_read(place: Path) -> None:
    table = PaimonDirectory(place)
    table.commit(File("a"), at=NOW - timedelta(days=1))
    document, read = _document(place, 1), [*range(1, 21), *range(9_901, 10_001)]
    for number in range(21, 9_901):
        (place / f"snapshot/snapshot-{number}").touch()  # read, it is malformed
    for number in read:
        table.write(f"snapshot/snapshot-{number}", {**document, "id": number})
    assert [one.time for one in load(place).timeline] == list(map(str, read))


def _document(place: Path, number: int) -> dict[str, Any]:
    document: dict[str, Any] = json.loads((place / f"snapshot/snapshot-{number}").read_text())
    return document


def test_a_warehouse_that_is_gone_is_no_empty_catalog(place: Path) -> None:
    with pytest.raises(CatalogUnavailable, match="does not exist"):
        PaimonFormat().list_tables(catalog(place))


# Services


def plan(
    place: Path, action: Any, requested: bool = False, after: timedelta = timedelta(), **properties: str
) -> tuple[str, pb.ProcedureWork | None]:
    """Why the service is due or not, and what Paimon is to do."""
    table = cast(AnyTable, load(place))
    own = {**table.facts.properties, **{key.replace("_", "-"): value for key, value in properties.items()}}
    given = {"table-service.local-files": "true", **own}
    context = PlanningContext(OptimizingConfig(), given, {}, Capacity(1, 1), NOW + after)
    found, made = action.plan(table, context, Request(action.name if requested else None))
    assert action.evaluate(table, given, NOW + after).is_due == (made is not None and not requested)
    return found.reason, None if made is None else pb.ProcedureWork.FromString(made.tasks[0].work.payload)


def chosen(work: pb.ProcedureWork | None) -> list[tuple[int, bool]]:
    """Bucket, and whether it is compacted fully."""
    assert work is not None
    return [(bucket, is_full) for _, bucket, is_full in json.loads(work.options["buckets"])]


def test_a_bucket_is_compacted_above_the_trigger_for_sorted_runs(place: Path) -> None:
    table = PaimonDirectory(place, {"bucket": "2", "write-only": "true"})
    table.commit(*files(5, bucket=1), File("x", bucket=0))
    assert plan(place, PaimonCompact()) == ("0 of 2 buckets are due: at most 5 sorted runs in one, due from 6", None)
    table.commit(File("old", bucket=1, level=5))
    reason, work = plan(place, PaimonCompact())
    assert reason == "1 of 2 buckets are due: at most 6 sorted runs in one, due from 6"
    assert work is not None
    assert (work.format, work.service, work.table, work.location) == ("paimon", "compact", str(TABLE), str(place))
    assert (chosen(work), work.options["mode"], set(work.manifest_fields)) == ([(1, False)], "fixed", FIELDS)


def test_level_0_is_compacted_fully_once_it_is_old(place: Path) -> None:
    table = PaimonDirectory(place, {"bucket": "3", "write-only": "true"})
    table.commit(File("a", 0), File("b", 0), File("c", 1), File("d", 2, 4), File("e", 2, 5), kind="COMPACT")
    table.commit(File("f", 1, 5))
    table.commit(File("g", 1), at=NOW + 30 * MINUTE)
    assert plan(place, PaimonCompact(), after=59 * MINUTE)[1] is None
    _, work = plan(place, PaimonCompact(), after=60 * MINUTE)
    assert chosen(work) == [(1, True), (0, True)]
    assert chosen(plan(place, PaimonCompact(), requested=True)[1]) == [(1, True), (0, True)]


def test_the_most_fragmented_buckets_are_compacted_within_the_bound_of_bytes(place: Path) -> None:
    table = PaimonDirectory(place, {"bucket": "3", "write-only": "true"})
    table.commit(*(File(f"{bucket}-{at}", bucket, size=100) for bucket in range(3) for at in range(6 + bucket)))
    assert chosen(plan(place, PaimonCompact(), **{"table-service.io-bound": "1500"})[1]) == [(2, False), (1, False)]
    assert chosen(plan(place, PaimonCompact(), **{"table-service.io-bound": "1"})[1]) == [(2, False)]


def test_tables_without_a_primary_key_are_compacted_by_small_files(place: Path) -> None:
    table = PaimonDirectory(place, {"write-only": "true", "target-file-size": "1 kb"}, keys=())
    table.commit(*files(4, size=716), File("large", size=717))
    assert plan(place, PaimonCompact()) == ("0 of 1 buckets are due: at most 4 small files in one, due from 5", None)
    assert "has enough small files" in plan(place, PaimonCompact(), requested=True)[0]
    table.commit(File("x", size=1))
    _, work = plan(place, PaimonCompact())
    assert work is not None
    assert (chosen(work), work.options["mode"]) == ([(0, False)], "unaware")


def test_snapshots_expire_by_the_tables_own_options(place: Path) -> None:
    options = {"bucket": "1", "write-only": "true", "snapshot.num-retained.min": "2", "snapshot.time-retained": "2 h"}
    table = PaimonDirectory(place, options)
    for minutes in range(20):
        table.commit(at=NOW + minutes * MINUTE)
    assert plan(place, PaimonExpire(), after=129 * MINUTE)[1] is None
    reason, work = plan(place, PaimonExpire(), after=130 * MINUTE)
    assert (reason, work and work.options["oldest"]) == (
        "10 of 10 snapshots are beyond what the table's own options keep",
        "1",
    )
    assert plan(place, PaimonExpire(), after=timedelta(days=1))[0].startswith("18 of 10 ")
    table.write("consumer/consumer-etl", {"nextSnapshot": 12})
    assert plan(place, PaimonExpire(), after=timedelta(days=1))[0].startswith("11 of 10 ")
    table.write("consumer/consumer-etl", {"nextSnapshot": 1})
    assert plan(place, PaimonExpire(), after=timedelta(days=1), requested=True)[1] is None
    (place / "consumer/consumer-etl").unlink()
    table.write("schema/schema-0", {**table.schema, "options": {**options, "snapshot.num-retained.max": "5"}})
    assert plan(place, PaimonExpire())[0].startswith("15 of 10 ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"bucket": "1"}, "REFUSED(write-only)"),
        ({"type": "object-table"}, "it has the type object-table"),
        ({"branch": "b1"}, "it has branches: b1"),
        ({"bucket": "-1"}, "bucket=-1"),
        ({"bucket": "-2"}, "bucket=-2"),
        ({"deletion-vectors.enabled": "true"}, "deletion-vectors.enabled=true"),
        ({"row-tracking.enabled": "true"}, "row-tracking.enabled=true"),
        ({"table-service.local-files": "false"}, "on local files a commit may replace another one"),
    ],
)
@pytest.mark.parametrize("action", [PaimonCompact(), PaimonExpire()], ids=lambda one: one.service)
def test_what_was_not_tried_is_refused_by_name(place: Path, action: Any, options: dict[str, str], words: str) -> None:
    given = options if options == {"bucket": "1"} else {"bucket": "1", "write-only": "true", **options}
    PaimonDirectory(place, given).commit(*files(14))
    assert plan(place, action)[1] is None
    with pytest.raises(TableRefused) as raised:
        plan(place, action, requested=True)
    assert words in f"{raised.value.message} REFUSED({raised.value.reason})"


def test_a_table_with_branches_is_refused_and_a_malformed_option_is_named(place: Path) -> None:
    table = PaimonDirectory(place)
    table.commit(*files(14))
    (place / "branch/branch-dev").mkdir(parents=True)
    table.write("branch/branch-dev/schema", {})
    with pytest.raises(TableRefused, match="it has branches: dev"):
        plan(place, PaimonCompact(), requested=True)
    table.write("schema/schema-0", {**table.schema, "options": {"num-sorted-run.compaction-trigger": "x"}})
    with pytest.raises(TableRefused, match=r"num-sorted-run\.compaction-trigger has the malformed value 'x'"):
        plan(place, PaimonCompact())


def test_a_due_compaction_is_begun_by_the_schedule_and_its_end_is_read_from_the_table(
    place: Path, tmp_path: Path
) -> None:
    services = {"table-service.enabled": "true", "table-service.local-files": "true"}
    table = PaimonDirectory(place, {"bucket": "1", "write-only": "true", **services})
    table.commit(*files(7))
    world = World(tmp_path / "home", catalog(place), PROCEDURE_PAIMON)
    [process_id] = world.look()
    work = world.task()
    assert (work.service, work.location, chosen(work)) == ("compact", str(place), [(0, False)])
    runtime = world.services.tables.find(TABLE)
    assert (runtime.status, runtime.state) == (OptimizingStatus.IDLE, TableState.DUE)  # not pending: it is not ours
    assert runtime.status_reason.endswith("; Paimon does it, on an optimizer with Spark")
    assert world.look() == []  # not twice
    world.fail("File deletion conflicts detected")  # its commit lost to another one: it is tried again
    assert world.task() == work  # with the marker by which a commit that landed is known
    table.commit(File("merged", level=5, size=6500), deleted=files(7), kind="COMPACT", user=f"{work.marker}_5c0e")
    table.commit(File("newer"))
    ended = world.done()
    assert (ended.process_id, ended.status) == (process_id, ProcessStatus.SUCCESS)
    assert ended.receipt is not None
    assert ended.receipt.words.startswith("compact: snapshot 2, by Paimon 1.2.0")
    assert {figure.name: figure.value for figure in ended.receipt.more} == {
        "level_0_files_before": 7, "level_0_files_after": 1, "level_5_files_before": 0, "level_5_files_after": 1,
        "superseded_files_before": 0, "superseded_files_after": 0, "bytes_before": 7000, "bytes_after": 7500,
    }  # fmt: skip
    world.store.close()


def test_the_table_shows_what_was_done(place: Path) -> None:
    table = PaimonDirectory(place)
    for _ in range(8):
        table.commit(*files(1), at=NOW - timedelta(days=1))
    work = pb.ProcedureWork(marker="marker", options={"oldest": "1"})
    read, done, nothing = cast(AnyTable, load(place)), pb.ProcedureOutput(), pb.ProcedureOutput(nothing_to_do=True)
    with pytest.raises(CheckFailed, match=r"no snapshot of lake\.db\.orders is of marker"):
        PaimonCompact().outcome(read, work, done, 8)
    with pytest.raises(CommitConflict, match="nothing to compact"):
        PaimonCompact().outcome(read, work, nothing, 8)
    with pytest.raises(CommitConflict, match="no snapshot to expire"):
        PaimonExpire().outcome(read, work, done, 8)
    table.commit(kind="COMPACT", user="marker_5c0e")
    table.commit()
    (place / "snapshot/snapshot-1").unlink()
    read = cast(AnyTable, load(place))
    for output in (done, nothing):  # as of an attempt after that of a lost driver, which had committed
        assert PaimonCompact().outcome(read, work, output, 8) == "compact: snapshot 9"
    assert PaimonExpire().outcome(read, work, done, 8) == "expire: snapshots 1 to 1"
