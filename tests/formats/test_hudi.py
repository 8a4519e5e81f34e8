"""Hudi tables, read without a JVM, and when their services are due; what Hudi itself does is told by hand."""

from __future__ import annotations

import json
import sys
import tracemalloc
import zlib
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path
from typing import Any, cast

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hive_metastore.ttypes import Database, StorageDescriptor, Table

from amoro_cli.views.tables import table_detail
from amoro_core.actions.table_services import HudiClean, HudiCompact
from amoro_core.admin import tables as admin_tables
from amoro_core.bootstrap.composition import CoordinatorHooks, Dependencies, Services, installed
from amoro_core.errors import (
    AmoroError,
    CatalogMisconfigured,
    CatalogUnavailable,
    CheckFailed,
    CommitConflict,
    TableNotFound,
    TableRefused,
)
from amoro_core.formats.hudi import HudiFormat, HudiTable
from amoro_core.formats.ports import AnyTable
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.maintenance.table_services import ServiceConfig
from amoro_core.model.processes import CatalogConfig, OptimizingProcess, ProcessStatus, ResourceGroup
from amoro_core.model.properties import properties_of
from amoro_core.model.table_services import COMPLETED, INFLIGHT, REQUESTED, TimelineEntry
from amoro_core.model.tables import OptimizingStatus, TableIdentifier, TableState
from amoro_core.model.task_payload import PROCEDURE_HUDI, TAKE_OVER, WorkResult
from amoro_core.protocol import admin_pb2 as admin_pb
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_core.services.maintenance import ActionStatus
from amoro_core.store import groups
from amoro_core.transactions.task_reports import Failure
from tests.iceberg.catalog_services import Metastore, served
from tests.services.world import SETTINGS
from tests.store.builders import open_store

LOCK = "hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
SCHEMA = {
    "type": "record",
    "name": "t",
    "fields": [
        {"name": "_hoodie_commit_time", "type": ["null", "string"]},
        {"name": "id", "type": "long"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": ["null", {"type": "fixed", "size": 7, "name": "p", "logicalType": "decimal",
                                            "precision": 15, "scale": 2}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip


def time_of(number: int, later_ms: int = 0) -> str:
    """When an instant was requested, or completed so much later."""
    return f"20261130070{number:03}{later_ms:03}"


def avro(fields: dict[str, object], content: dict[str, object]) -> bytes:
    """A container with one record."""
    written = BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    fastavro.writer(written, schema, [content])
    return written.getvalue()


class HudiTableOnDisk:
    """A table of one or two file groups, as Hudi 0.x (version 6) and 1.x (version 8) lay it out, to which instants and
    files are added by hand.
    """

    def __init__(self, place: Path, version: int = 8, kind: str = "MERGE_ON_READ") -> None:
        self.place, self.version = place, version
        self.timeline = place / ".hoodie" / ("timeline" if version > 6 else "")
        self.timeline.mkdir(parents=True)
        self.properties = {
            "hoodie.table.name": place.name,
            "hoodie.database.name": "db",
            "hoodie.table.type": kind,
            "hoodie.table.version": str(version),
            "hoodie.timeline.layout.version": "2" if version > 6 else "1",
            "hoodie.table.partition.fields": "day:SIMPLE",
            "hoodie.table.checksum": str(zlib.crc32(f"db.{place.name}".encode())),
            "hoodie.table.create.schema": json.dumps(SCHEMA),
        }
        self.write_properties()

    def write_properties(self) -> None:
        """As Java's Properties.store does."""
        lines = [f"{key}={value}".replace(":", "\\:") for key, value in self.properties.items()]
        (self.place / ".hoodie/hoodie.properties").write_text("\n".join(["#Updated", "!by hand", *lines, ""]))

    def set(self, *lines: str) -> None:
        """Lines that somebody adds to the properties."""
        with (self.place / ".hoodie/hoodie.properties").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def instant(self, number: int, action: str, state: str = "completed", content: bytes = b"") -> str:
        """The files of an instant up to that state; its time."""
        time = time_of(number)
        requested = {"commit": "compaction"}.get(action, action) if self._is_mor else action
        requested = "clustering" if action == "replacecommit" and self.version > 6 and not content else requested
        states = ("requested", "inflight", "completed")
        for one in states[: states.index(state) + 1]:
            name = f"{time}.{requested}.{one}"
            if one == "completed":
                name = f"{time}_{time_of(number, 500)}.{action}" if self.version > 6 else f"{time}.{action}"
            (self.timeline / name).write_bytes(content if one == state else b"")
        return time

    @property
    def _is_mor(self) -> bool:
        return self.properties["hoodie.table.type"] == "MERGE_ON_READ"

    def base(self, number: int, group: str = "g0", day: str = "day=1", size: int = 1000) -> None:
        """A base file of that instant."""
        self._write(day, f"{group}-0_0-1-1_{time_of(number)}.parquet", size)

    def log(self, number: int, group: str = "g0", day: str = "day=1", base: int = 1, size: int = 10) -> None:
        """A log file of that instant, on a base file."""
        named = number if self.version > 6 else base
        self._write(day, f".{group}-0_{time_of(named)}.log.{number}_0-1-1", size)

    def _write(self, day: str, name: str, size: int) -> None:
        (self.place / day).mkdir(exist_ok=True)
        (self.place / day / name).write_bytes(b"x" * size)

    def upserts(self, *numbers: int) -> None:
        """Delta commits: the first makes a base file, the others log files on it."""
        for number in numbers:
            self.instant(number, "deltacommit")
            (self.base if number == 1 else self.log)(number)

    def commit_rows(self, number: int, group: str, ids: list[int], operation: str, replaced: str = "") -> None:
        """A commit of a base file with rows, which replaces a file group; of an unpartitioned table of version 6."""
        at, count = time_of(number), len(ids)
        own = {
            "commit_time": [at],
            "commit_seqno": ["0"],
            "record_key": [""],
            "partition_path": [""],
            "file_name": [""],
        }
        rows = {f"_hoodie_{name}": value * count for name, value in own.items()} | {"id": ids}
        name = f"{group}-0_0-1-1_{at}.parquet"
        pq.write_table(pa.table(rows), self.place / name)
        stats = [{"fileId": f"{group}-0", "path": name, "partitionPath": "", "numWrites": count}]
        metadata = {"partitionToWriteStats": {"": stats}, "extraMetadata": {}, "operationType": operation}
        if replaced:
            metadata["partitionToReplaceFileIds"] = {"": [f"{replaced}-0"]}
        action = "replacecommit" if replaced else "commit"
        self.instant(number, action, content=json.dumps(metadata).encode())


TABLE = TableIdentifier("lake", ("db",), "t")
ON = "table-service.enabled=true"


def catalog(warehouse: Path, **more: str) -> CatalogConfig:
    return CatalogConfig("lake", tuple({"type": "hudi", "warehouse": str(warehouse), **more}.items()))


def load(place: Path, identifier: TableIdentifier = TABLE) -> HudiTable:
    return HudiFormat().load(catalog(place), identifier)


@pytest.mark.parametrize("version", [6, 8])
def test_slices_and_plans_of_each_layout_are_read_without_a_jvm(tmp_path: Path, version: int) -> None:
    made = HudiTableOnDisk(tmp_path / "db" / "t", version)
    made.upserts(1, 2, 3)
    made.base(1, "g1", "day=2", size=500)
    made.instant(4, "commit")  # a compaction of g0
    made.base(4)
    made.instant(5, "deltacommit")
    made.log(5, base=4, size=70)
    made.instant(6, "compaction", REQUESTED)
    made.instant(7, "deltacommit", INFLIGHT)
    made.base(7, "g9")  # not committed
    plan = avro({"operationType": ["null", "string"]}, {"operationType": "CLUSTER"})
    made.instant(8, "replacecommit" if version == 6 else "clustering", REQUESTED, plan)
    replaced: dict[str, Any] = {"partitionToReplaceFileIds": {"day=3": ["g2-0"]}, "extraMetadata": {}}
    fields = {"partitionToReplaceFileIds": {"type": "map", "values": {"type": "array", "items": "string"}}}
    content = json.dumps(replaced).encode() if version == 6 else avro(fields, replaced)
    made.instant(9, "replacecommit", content=content)
    made.base(1, "g2", "day=3", size=300)
    contents = load(tmp_path).contents
    assert contents.kinds == {"base": (2, 1500), "log": (1, 70)}
    assert (contents.superseded_files, contents.superseded_bytes) == (4, 1000 + 10 + 10 + 300)
    assert (contents.partitions, contents.partition_columns, contents.since_compaction) == (2, ("day",), 1)
    assert [(one.action, one.state) for one in contents.pending] == [
        ("compaction", REQUESTED),
        ("deltacommit", INFLIGHT),
        ("clustering", REQUESTED),
    ]
    assert contents.columns == {"id": "long", "day": "date", "price": "decimal(15, 2)", "tags": "array of string"}
    done = "" if version == 6 else "20261130070001500"
    assert contents.timeline[0] == TimelineEntry("20261130070001000", "deltacommit", COMPLETED, done)
    facts = load(tmp_path).facts
    assert (facts.format, facts.format_version, facts.location) == ("hudi", version, str(tmp_path / "db" / "t"))
    assert facts.snapshot_id == int("20261130070009000" if version == 6 else "20261130070009500")
    assert facts.uuid == load(tmp_path).facts.uuid


def test_directories_are_tables_by_their_mark_as_spark_names_them(tmp_path: Path) -> None:
    for place in ("bare", "sales.db/orders", "a.db/b/deep", "day=1/hidden", "_tmp/gone"):
        HudiTableOnDisk(tmp_path / place)
    (tmp_path / "plain" / "files").mkdir(parents=True)
    (tmp_path / "plain" / "elsewhere").symlink_to("/usr")
    found = HudiFormat().list_tables(catalog(tmp_path))
    assert [str(one) for one in found] == ["lake.`a.db`.b.deep", "lake.default.bare", "lake.sales.orders"]
    assert [load(tmp_path, one).facts.location for one in found] == [
        str(tmp_path / place) for place in ("a.db/b/deep", "bare", "sales.db/orders")
    ]
    assert HudiFormat().list_tables(catalog(tmp_path, **{"table-filter": "ord.*"})) == [found[2]]
    with pytest.raises(TableNotFound, match=r"no directory of that name has \.hoodie/hoodie\.properties"):
        load(tmp_path, TableIdentifier("lake", ("plain",), "files"))


def test_while_a_writer_replaces_the_properties_their_backup_is_read(tmp_path: Path) -> None:
    made = HudiTableOnDisk(tmp_path / "db" / "t")
    properties = made.place / ".hoodie/hoodie.properties"
    (made.place / ".hoodie/hoodie.properties.backup").write_bytes(properties.read_bytes())
    properties.write_text(properties.read_text()[:60])
    assert load(tmp_path).facts.format_version == 8
    properties.unlink()
    assert HudiFormat().list_tables(catalog(tmp_path)) == [TABLE]
    assert load(tmp_path).facts.format_version == 8


def _truncate(made: HudiTableOnDisk) -> None:
    properties = made.place / ".hoodie/hoodie.properties"
    properties.write_text(properties.read_text()[:33])


def _with(name: str, value: str) -> Any:
    def change(made: HudiTableOnDisk) -> None:
        made.properties[f"hoodie.table.{name}"] = value
        made.write_properties()

    return change


def _read_all(place: Path) -> None:
    """Whatever refuses a table: loading it, what it uses, or what it consists of."""
    table = load(place)
    table.refuse_unsupported()
    assert table.contents


@pytest.mark.parametrize(
    ("damage", "reason", "words"),
    [
        (_truncate, "metadata", r"hoodie\.properties is malformed or truncated: the line '.*' is no property"),
        (lambda made: made.properties.clear() or made.write_properties(), "metadata", "hoodie.table.name is missing"),
        (_with("name", "other"), "metadata", r"hoodie\.table\.checksum is \d+, and not that of 'other'"),
        (_with("version", "eight"), "metadata", "the versions are eight and 2"),
        (_with("version", "5"), "format-version", "Hudi tables of version 5 are not supported, but 6, 8, 9"),
        (_with("create.schema", "{"), "metadata", "the schema can't be read"),
        (
            lambda made: (made.timeline / "20261130070001000.deltacommit.done").touch(),
            "metadata",
            r"20261130070001000\.deltacommit\.done is no instant",
        ),
        (lambda made: (made.timeline / "2026113.commit").touch(), "metadata", r"2026113\.commit is no instant"),
        (lambda made: made.instant(1, "deltacommit", content=b"Obj\x01{"), "metadata", r"_\d+\.deltacommit can't be"),
    ],
)
def test_damage_is_refused_by_the_file_with_the_way_out(tmp_path: Path, damage: Any, reason: str, words: str) -> None:
    made = HudiTableOnDisk(tmp_path / "db" / "t")
    damage(made)
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(TableRefused, match=words) as refused:
        _read_all(tmp_path)
    assert (refused.value.reason, bool(refused.value.hint)) == (reason, True)
    assert before == {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    ("warehouse", "error", "words"),
    [
        ("{}/gone", CatalogUnavailable, r"catalog lake: the warehouse .*/gone does not exist"),
        ("", CatalogMisconfigured, "catalog lake: warehouse is missing"),
        ("ftp://host/lake", CatalogMisconfigured, "'ftp://host/lake' is no location: the storage 'ftp'"),
    ],
)
def test_a_warehouse_that_is_gone_or_no_location_is_named(
    tmp_path: Path, warehouse: str, error: type[AmoroError], words: str
) -> None:
    broken = CatalogConfig("lake", (("type", "hudi"), ("warehouse", warehouse.format(tmp_path))))
    for ask in (HudiFormat().check, HudiFormat().list_tables, lambda given: HudiFormat().load(given, TABLE)):
        with pytest.raises(error, match=words) as refused:
            ask(broken)
        assert "warehouse=" in refused.value.hint


def test_ten_thousand_instants_take_100_mb_at_most(tmp_path: Path) -> None:
    made = HudiTableOnDisk(tmp_path / "db" / "t")
    for number in range(10_000):
        at = f"202611{10 + number // 1000}07{number % 1000:03}0000"[:17].ljust(17, "0")
        for name in (f"{at}.deltacommit.requested", f"{at}.deltacommit.inflight", f"{at}_{at}.deltacommit"):
            (made.timeline / name).touch()
    tracemalloc.start()
    assert len(load(tmp_path).timeline) == 10_000
    assert tracemalloc.get_traced_memory()[1] <= 100_000_000
    tracemalloc.stop()


def test_hudi_tables_of_a_hive_metastore_are_found_by_their_parameters(tmp_path: Path) -> None:
    made = HudiTableOnDisk(tmp_path / "anywhere")
    hive = Metastore()
    hive.create_database(Database("db"))
    for name, parameters in (("t", {"spark.sql.sources.provider": "hudi", ON.split("=")[0]: "true"}), ("other", {})):
        place = StorageDescriptor(location=made.place.as_uri())
        hive.create_table(Table(dbName="db", tableName=name, sd=place, parameters=parameters))
    with served(hive) as uri:
        config = CatalogConfig(
            "lake", (("type", "hive"), ("uri", uri), ("table-formats", "iceberg,hudi")), (str(tmp_path),)
        )
        form = HudiFormat()
        form.check(config)
        assert form.list_tables(config) == [TABLE]
        facts = form.load(config, TABLE).facts
        assert (facts.location, facts.properties["table-service.enabled"]) == (str(made.place), "true")
        with pytest.raises(TableRefused, match=r"lake\.db\.other is not a Hudi table") as refused:
            form.load(config, TableIdentifier("lake", ("db",), "other"))
        assert refused.value.reason == "format"
        with pytest.raises(TableNotFound):
            form.load(config, TableIdentifier("lake", ("db",), "nothing"))
        close_catalogs()


class World:
    """A coordinator's services with a lake of Hudi's or other tables, and an optimizer that has the kind."""

    def __init__(self, home: Path, config: CatalogConfig | None = None, kind: str = PROCEDURE_HUDI) -> None:
        self.now = datetime(2026, 12, 1, tzinfo=UTC)
        self.made = HudiTableOnDisk(home / "lake" / "db" / "t")
        self.store = open_store(home / "amoro.db")
        self.store.write(lambda db: groups.add(db, ResourceGroup("default")))
        around = CoordinatorHooks(lambda: "a:1", lambda: "a:1")
        found = installed(home, [config or catalog(home / "lake")])
        parts = Dependencies(
            found.formats, found.containers, found.policies, found.catalogs, found.actions, clock=lambda: self.now
        )
        self.services = Services(self.store, home, SETTINGS, {}, around, parts)
        self.optimizer_id = self.services.optimizers.register(
            group="default",
            threads=1,
            memory_bytes=1,
            labels={},
            heartbeat_interval=timedelta(seconds=10),
            kinds=(kind,),
        ).optimizer.optimizer_id

    def look(self) -> list[str]:
        """Look at the lake and begin what is due; the ids of the processes."""
        self.now += timedelta(hours=12)
        self.services.discovery.explore("lake")
        for table_id, _ in self.services.tables.list_due():
            self.services.tables.refresh(table_id)
        before = {one.process_id for one in self.processes()}
        for table in {table for table, _, _ in self.services.maintaining.list_due()}:
            self.services.maintaining.begin_due(table)
        return [one.process_id for one in self.processes() if one.process_id not in before]

    def processes(self) -> list[OptimizingProcess]:
        return [view.process for view in self.services.optimizing.list_processes(None, None, 100)]

    def task(self) -> pb.ProcedureWork:
        """The work that the optimizer is handed now."""
        [self.handed] = self.services.optimizing.poll(self.optimizer_id, "default", [1])
        self.services.optimizing.ack(self.optimizer_id, [self.handed.attempt])
        return pb.ProcedureWork.FromString(self.handed.work.payload)

    def done(self, **output: Any) -> OptimizingProcess:
        """The optimizer says that it is done; the process after the coordinator's look at the table."""
        told = pb.ProcedureOutput(engine_version="1.2.0", duration_ms=1500, **output).SerializeToString()
        self.services.optimizing.complete(
            self.optimizer_id, self.handed.attempt, WorkResult(self.handed.work.kind, told)
        )
        process_id = self.handed.attempt.task_id.process_id
        self.services.committing.commit(process_id)
        return self.services.optimizing.find_process(process_id).process

    def fail(self, why: str) -> None:
        """The optimizer says that the task has failed."""
        self.services.optimizing.complete(self.optimizer_id, self.handed.attempt, Failure("AMORO-6000", why))

    def request(self, action: str) -> str:
        table_id = self.services.tables.ensure(TABLE).table_id
        return self.services.maintaining.begin(table_id, action, trigger="request").process_id

    def action(self, name: str = "hudi-compact") -> ActionStatus:
        found = self.services.maintaining.list_actions(self.services.tables.find(TABLE))
        assert [one.record.action for one in found] == ["hudi-compact", "hudi-cluster", "hudi-clean"]
        return next(one for one in found if one.record.action == name)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.store.close()


def test_an_observed_table_says_what_is_due_and_nothing_is_begun(world: World) -> None:
    world.made.upserts(*range(1, 8))
    assert world.look() == []
    runtime = world.services.tables.find(TABLE)
    assert (runtime.status, runtime.state, runtime.format) == (OptimizingStatus.IDLE, TableState.HEALTHY, "hudi")
    why = "hudi-compact is not due: 6 of 5 delta commits since the last compaction; nothing is scheduled on lake.db.t"
    assert runtime.status_reason.startswith(why)
    assert (runtime.summary.data_files, runtime.summary.data_bytes) == (7, 1060)
    consent = world.action().consent
    assert consent.reason.startswith(
        "6 of 5 delta commits since the last compaction; nothing is scheduled on lake.db.t"
    )
    assert consent.reason.endswith("; observed only: it was never enabled")
    world.made.set(LOCK)
    assert world.look() == []
    runtime = world.services.tables.find(TABLE)
    due = "hudi-compact is due: 6 of 5 delta commits since the last compaction; observed only: it was never enabled"
    assert (runtime.state, runtime.status_reason) == (TableState.OBSERVED, due)
    with pytest.raises(TableRefused, match="has the format hudi, which lacks what optimizing needs"):
        world.services.planning.begin(runtime.table_id, trigger="request")
    world.services.tables.set_enabled(TABLE, True)
    preview = world.services.tables.preview(TABLE, None, False)
    words = f"nothing to do by optimizing; {due.partition('; observed')[0]}"
    assert (preview.plan, preview.evaluation.reason) == (None, words)
    assert len(world.look()) == 1
    assert [one.type for one in world.processes()] == ["hudi-compact"]
    world.made.set(ON.replace("true", "false"))
    with pytest.raises(TableRefused, match=r"by the table's property table-service\.enabled=false") as off:
        world.services.tables.set_enabled(TABLE, True)
    assert off.value.hint == "Switch it on with: its engine, which removes that property"


def test_a_writers_plan_is_executed_without_a_lock_and_its_completion_read_from_the_timeline(world: World) -> None:
    world.made.set(ON)
    world.made.upserts(1, 2, 3)
    instant = world.made.instant(4, "compaction", REQUESTED)
    [process_id] = world.look()
    work = world.task()
    assert (work.format, work.service, work.instant, dict(work.options)) == ("hudi", "compact", instant, {})
    assert (work.table, work.location) == (str(TABLE), str(world.made.place))
    assert world.look() == []  # not twice
    world.made.instant(4, "commit")
    world.made.base(4)
    ended = world.done(instant=instant)
    assert (ended.process_id, ended.status) == (process_id, ProcessStatus.SUCCESS)
    receipt = ended.receipt
    assert receipt is not None
    assert receipt.words == f"compact: instant {instant} completed, by Hudi 1.2.0; rows were not compared"
    assert {figure.name: figure.value for figure in receipt.more} == {
        "base_files_before": 1, "base_files_after": 1, "log_files_before": 2, "log_files_after": 0,
        "superseded_files_before": 0, "superseded_files_after": 3, "bytes_before": 1020, "bytes_after": 1000,
    }  # fmt: skip
    assert receipt.duration_ms == 1500
    assert world.look() == []
    assert world.services.tables.find(TABLE).summary.data_files == 1


def test_a_plan_that_others_have_begun_is_left_to_them_unless_somebody_asks(world: World) -> None:
    world.made.set(ON, LOCK)
    world.made.upserts(*range(1, 8))
    instant = world.made.instant(8, "compaction", INFLIGHT)
    assert world.look() == []
    assert world.action().record.reason.startswith(f"compaction {instant} was begun and is not completed; if nobody")
    world.request("hudi-compact")
    work = world.task()
    assert (work.instant, work.options[TAKE_OVER]) == (instant, "true")
    failed = world.done(instant=instant)
    assert (failed.status, failed.failure_code) == (ProcessStatus.FAILED, "AMORO-1005")
    assert f"instant {instant} of lake.db.t is inflight, and not completed as the optimizer says" in failed.failure


def test_a_plan_of_ours_needs_the_writers_lock_and_has_the_tables_bounds(world: World) -> None:
    world.made.set(ON, "table-service.io-bound=64MB", "table-service.cluster.columns=id, day")
    world.made.upserts(*range(1, 15))
    before = sorted(path.name for path in world.made.timeline.iterdir())
    for action in ("hudi-compact", "hudi-cluster"):
        with pytest.raises(TableRefused, match=r"hoodie\.write\.lock\.provider is not set") as refused:
            world.request(action)
        assert refused.value.reason == "lock"
    world.made.instant(21, "clean", REQUESTED)
    world.look()
    reason = "clean 20261130070021000 is scheduled and not begun; nothing is scheduled on lake.db.t"
    assert world.action("hudi-clean").record.reason.startswith(reason)
    for file in world.made.timeline.glob("*.clean.*"):
        file.unlink()
    world.made.set(LOCK.replace("FileSystemBased", "InProcess"))
    with pytest.raises(TableRefused, match="which excludes nobody outside of its process"):
        world.request("hudi-compact")
    world.made.set("hoodie.write.lock.provider=evil.Provider")
    with pytest.raises(TableRefused, match=r"'evil\.Provider', which is none of Hudi's own"):
        world.request("hudi-compact")
    assert sorted(path.name for path in world.made.timeline.iterdir()) == before
    world.made.set(LOCK, "hoodie.write.lock.filesystem.path=/locks", "hoodie.write.concurrency.mode=occ")
    locking = {
        LOCK.partition("=")[0]: LOCK.partition("=")[2],
        "hoodie.write.lock.filesystem.path": "/locks",
        "hoodie.write.concurrency.mode": "occ",
    }
    assert world.look()
    work = world.task()
    options = {"hoodie.compaction.target.io": "64", "hoodie.compact.inline.max.delta.commits": "1", **locking}
    assert (work.service, work.instant, dict(work.options)) == ("compact", "", options)
    fruitless = world.done(nothing_to_do=True)
    assert (fruitless.status, fruitless.failure_code) == (ProcessStatus.FAILED, "AMORO-5001")
    assert "Hudi made no plan for compact, and gives no reason" in fruitless.failure
    world.made.set("table-service.compact.delta-commits=50")
    world.request("hudi-cluster")
    assert dict(world.task().options) == {
        "hoodie.clustering.plan.strategy.sort.columns": "id,day",
        "hoodie.clustering.plan.strategy.max.num.groups": "4",
        "hoodie.clustering.plan.strategy.max.bytes.per.group": str(16 * 1024 * 1024),
        **locking,
    }
    instant = world.made.instant(20, "replacecommit")
    assert world.done(instant=instant).status is ProcessStatus.SUCCESS
    world.look()
    reason = "15 commits since the last cleaning, of which 10 stay readable; no file is superseded"
    assert world.action("hudi-clean").record.reason == reason
    asked = world.services.maintaining.begin(
        world.services.tables.ensure(TABLE).table_id, "hudi-clean", trigger="request"
    )
    assert (asked.process_id, asked.reason) == ("", reason)


@pytest.mark.parametrize(
    ("action", "completed", "operation"),
    [
        ("hudi-compact", "commit", "COMPACT"),
        ("hudi-cluster", "replacecommit", "CLUSTER"),
        ("hudi-cluster", "replacecommit", "INSERT_OVERWRITE"),
    ],
)
def test_what_a_lost_driver_has_completed_is_done_although_hudi_makes_no_plan_again(
    world: World, action: str, completed: str, operation: str
) -> None:
    world.made.set(ON, LOCK, "table-service.cluster.columns=id")
    world.made.upserts(*range(1, 8))
    before = {"operationType": operation, "extraMetadata": {}}
    world.made.instant(8, completed, content=json.dumps(before).encode())
    world.made.upserts(*range(9, 15))
    world.request(action)
    world.task()
    assert world.done(nothing_to_do=True).status is ProcessStatus.FAILED
    world.request(action)
    world.task()
    instant = world.made.instant(15, completed, content=json.dumps(before).encode())
    ended = world.done(nothing_to_do=True)
    if operation == "INSERT_OVERWRITE":
        assert ended.status is ProcessStatus.FAILED
        assert ended.failure.endswith("Hudi made no plan for cluster, and gives no reason")
        return
    assert ended.receipt is not None
    assert ended.receipt.words.startswith(f"{action.removeprefix('hudi-')}: instant {instant} completed, by Hudi 1.2.0")


def test_a_clean_since_the_plan_is_done_and_an_earlier_one_is_not(world: World) -> None:
    world.made.upserts(1, 2)
    cleaned = world.made.instant(3, "clean")
    table = cast(AnyTable, load(world.made.place.parents[1], TABLE))
    given = table, pb.ProcedureWork(), pb.ProcedureOutput(nothing_to_do=True)
    assert HudiClean().outcome(*given, int(cleaned) - 1) == f"clean: instant {cleaned} completed"
    with pytest.raises(CommitConflict, match="Hudi made no plan for clean"):
        HudiClean().outcome(*given, int(cleaned))


def test_an_instant_that_has_left_the_timeline_was_completed(world: World) -> None:
    world.made.set(ON)
    world.made.upserts(1, 2)
    instant = world.made.instant(3, "compaction", REQUESTED)
    world.look()
    world.task()
    for file in world.made.timeline.iterdir():
        file.unlink()
    world.made.instant(9, "deltacommit")
    assert world.done(instant=instant).status is ProcessStatus.SUCCESS
    for place, newer in ((TABLE, "20261130070010000"), (TableIdentifier("lake", ("db",), "none"), instant)):
        if place != TABLE:  # of a table without any instant nothing was completed
            HudiTableOnDisk(world.made.place.with_name(place.name))
        table = cast(AnyTable, load(world.made.place.parents[1], place))
        with pytest.raises(CheckFailed, match="is not in the timeline, and not completed as the optimizer says"):
            HudiCompact().outcome(table, pb.ProcedureWork(instant=newer), pb.ProcedureOutput(), 0)


def test_malformed_properties_of_services_are_refused_by_key_and_value(world: World) -> None:
    world.made.set(ON, "table-service.compact.delta-commits=many")
    world.look()
    runtime = world.services.tables.find(TABLE)
    assert (runtime.refusal, runtime.status) == ("configuration", OptimizingStatus.REFUSED)
    assert "table-service.compact.delta-commits has the malformed value 'many'" in runtime.status_reason


def test_the_table_is_shown_with_its_files_plans_and_timeline(world: World) -> None:
    world.made.upserts(1, 2, 3)
    world.made.instant(4, "compaction", REQUESTED)
    world.look()
    call: Any = None
    message = admin_tables.get_table(world.services, admin_pb.GetTableRequest(table="lake.db.t"), call)
    known = admin_tables.get_table(world.services, admin_pb.GetTableRequest(table="lake.db.t", known_only=True), call)
    assert (known.HasField("services"), known.files.data_files) == (False, 3)
    services = message.services
    assert [(one.kind, one.files, one.bytes) for one in services.kinds] == [("base", 1, 1000), ("log", 2, 20)]
    assert [one.action for one in services.timeline] == ["compaction", *["deltacommit"] * 3]
    assert (services.instants, services.since_compaction) == (4, 2)
    shown = dict(table_detail(message).blocks[0].pairs)
    assert shown["files"] == "1 base, 1.0 kB; 2 log, 20 B"
    assert shown["pending"] == "compaction 20261130070004000, requested"
    assert shown["since compaction"] == "2 commits"
    assert shown["columns"].startswith("id long, day date, price decimal(15, 2)")
    assert shown["partitions"] == "1 by day"
    properties, enabled = world.services.inspection.properties(TABLE)
    assert {one.key: one.value for one in properties if one.key.startswith("table-service.")} == {
        known.key: known.default for known in properties_of(ServiceConfig)
    }
    assert enabled.value is False
    (world.made.place / ".hoodie/hoodie.properties").write_text("hoodie.")
    damaged = admin_tables.get_table(world.services, admin_pb.GetTableRequest(table="lake.db.t"), call)
    assert not damaged.HasField("services")


def test_rows_around_a_clustering_are_compared_by_the_package_hudi(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.made = HudiTableOnDisk(world.made.place.parent / "rows", 6, "COPY_ON_WRITE")
    fields = [{"name": "id", "type": ["null", "long"]}]
    schema = json.dumps({"type": "record", "name": "t", "fields": fields})
    world.made.properties |= {"hoodie.table.partition.fields": "", "hoodie.table.create.schema": schema}
    world.made.write_properties()
    rows = TableIdentifier("lake", ("db",), "rows")
    world.made.commit_rows(1, "g0", [3, 1, 2], "INSERT")
    nothing = world.services.verifying.verify(rows, None, None, lambda: False)
    assert (nothing.comparisons, nothing.selection.note) == ((), "its timeline has no service that kept all rows")
    world.made.commit_rows(2, "g1", [1, 2, 3], "CLUSTER", replaced="g0")
    found = world.services.verifying.verify(rows, None, None, lambda: False)
    [compared] = found.comparisons
    assert (compared.span.before, compared.span.after) == (20261130070001999, 20261130070002000)
    assert (found.is_sound, compared.partitions[0].before.rows) == (True, 3)
    world.made.commit_rows(3, "g2", [1, 2, 2], "CLUSTER", replaced="g1")
    assert not world.services.verifying.verify(rows, None, None, lambda: False).is_sound
    monkeypatch.setitem(sys.modules, "hudi", None)
    with pytest.raises(
        TableRefused, match=r"rows of lake\.db\.rows can.t be compared by the package hudi: "
    ) as refused:
        world.services.verifying.verify(rows, None, None, lambda: False)
    assert "pip install 'amoro[hudi]'" in refused.value.hint
