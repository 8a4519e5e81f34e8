"""Values with defaults, and a state database with each stage of a task's life in it."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

from amoro_core.bootstrap.composition import CoordinatorHooks, Dependencies, Services
from amoro_core.bootstrap.settings import Settings
from amoro_core.formats.tables import Formats
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.commits import SnapshotAdded
from amoro_core.model.processes import (
    CatalogConfig,
    CommitAttempt,
    CommitOutcome,
    Optimizer,
    OptimizerThread,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    Receipt,
    TaskId,
    TaskStatus,
)
from amoro_core.model.tables import (
    FileSummary,
    HealthParts,
    OptimizingStatus,
    OptimizingType,
    TableIdentifier,
    TableRuntime,
)
from amoro_core.scheduling.policy import POLICIES
from amoro_core.store import groups, processes, tables, tasks
from amoro_core.store.database import Connection, Store, migrate

NOW = datetime(2026, 1, 2, 3, 4, 5, 678000, tzinfo=UTC)
RECEIPT = Receipt(12, 1, 3, 0, 0, 1200, 1000, 50, 50, 2**62 + 1, 2**62, 4000)


def minutes(count: float) -> datetime:
    return NOW + timedelta(minutes=count)


def runtime(name: str = "t", **fields: Any) -> TableRuntime:
    """A table that was just found; its uuid follows its name."""
    base = TableRuntime(
        table_id=0,
        identifier=TableIdentifier("cat", ("db",), name),
        uuid=f"uuid-{name}",
        format_version=2,
        location=f"file:///w/db/{name}",
        group="default",
        status=OptimizingStatus.IDLE,
        status_since=NOW,
    )
    return replace(base, **fields)


def full_runtime() -> TableRuntime:
    """A table with a value in every field."""
    return runtime(
        identifier=TableIdentifier("cat", ("a.b", "c"), "t"),
        status=OptimizingStatus.REFUSED,
        status_reason="keys are encrypted",
        refusal="encryption",
        enabled_override=False,
        enabled=True,
        enabled_origin="amoro table enable",
        snapshot_id=2**62 + 7,
        metadata_location="file:///w/db/t/metadata/1.json",
        evaluated_snapshot_id=2**62 + 6,
        evaluated_at=minutes(1),
        refreshed_at=minutes(2),
        next_due_at=minutes(3),
        pending_type=OptimizingType.FULL,
        quota=0.25,
        failures=3,
        retry_at=minutes(4),
        last_optimized_at=minutes(-5),
        properties={"self-optimizing.enabled": "true", "ключ": "“”"},
        summary=FileSummary(1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12),
        scanned_at=minutes(6),
        evaluated_config="quota=0.25",
        refresh_at=minutes(7),
        health=HealthParts(1, 2, 3),
    )


def process(table: TableRuntime, process_id: str = "0199aaaa-0001", **fields: Any) -> OptimizingProcess:
    base = OptimizingProcess(
        process_id=process_id,
        table_id=table.table_id,
        type=OptimizingType.MINOR,
        status=ProcessStatus.RUNNING,
        trigger="evaluation",
        reason="12 fragments",
        table_uuid=table.uuid,
        format_version=2,
        snapshot_id=2**62,
        sequence_number=9,
        schema_id=1,
        last_column_id=3,
        created_at=NOW,
    )
    return replace(base, **fields)


def task(owner: OptimizingProcess, number: int = 1, **fields: Any) -> OptimizingTask:
    base = OptimizingTask(
        task_id=TaskId(owner.process_id, number),
        table_id=owner.table_id,
        group="default",
        status=TaskStatus.PLANNED,
        cost=100,
        partition="day=2026-01-02",
        input_files=12,
        input_bytes=90,
    )
    return base._replace(**fields)


def optimizer(optimizer_id: str = "optimizer-1", **fields: Any) -> Optimizer:
    base = Optimizer(optimizer_id, f"hash-of-{optimizer_id}", "default", 4, 2**29, (("host", "h1"),), NOW)
    return replace(base, **fields)


def attempt(owner: OptimizingProcess, number: int = 1, **fields: Any) -> CommitAttempt:
    base = CommitAttempt(
        process_id=owner.process_id,
        number=number,
        evidence=SnapshotAdded(2**62 + number, owner.snapshot_id, 10, ("file:///w/db/t/data/o.parquet",)),
        payload=b"\x00payload",
        groups=(1, 2),
        files=("file:///w/db/t/data/o.parquet",),
        metadata_files=("file:///w/db/t/metadata/m.avro", "file:///w/db/t/metadata/snap.avro"),
        outcome=CommitOutcome.SENT,
        created_at=NOW,
        receipt=RECEIPT,
    )
    return replace(base, **fields)


def catalog(name: str = "cat", **fields: Any) -> CatalogConfig:
    base = CatalogConfig(name, (("type", "sql"), ("uri", "sqlite:////w/c.db")), ("file:///other",))
    return replace(base, **fields)


HELD = OptimizerThread("optimizer-1", 2)


def stages(owner: OptimizingProcess) -> list[OptimizingTask]:
    """One task in each status."""
    scheduled = task(owner, 2, status=TaskStatus.SCHEDULED, attempt=1, thread=HELD, scheduled_at=minutes(1))
    acked = scheduled._replace(task_id=TaskId(owner.process_id, 3), status=TaskStatus.ACKED, acked_at=minutes(2))
    ended = acked._replace(thread=None, finished_at=minutes(3))
    return [
        task(owner, 1),
        scheduled,
        acked,
        ended._replace(task_id=TaskId(owner.process_id, 4), status=TaskStatus.SUCCESS),
        ended._replace(
            task_id=TaskId(owner.process_id, 5),
            status=TaskStatus.FAILED,
            attempt=4,
            failed_runs=1,
            lost_attempts=2,
            lost_optimizers=("optimizer-7", "optimizer-8"),
            failure_code="AMORO-1002",
            failure="no such file",
        ),
        ended._replace(task_id=TaskId(owner.process_id, 6), status=TaskStatus.CANCELED, failure="closed"),
    ]


def add_stages(db: Connection) -> list[OptimizingTask]:
    """A table, its running process, an optimizer, and one task in each status."""
    owner = processes.add(db, process(tables.add(db, runtime())))
    groups.add_optimizer(db, optimizer())
    made = stages(owner)
    tasks.add_many(db, [(each, f"input {each.task_id.number}".encode()) for each in made])
    return made


def endless_process(db: Connection, kind: str, count: int) -> str:
    """A process with so many tasks of the kind, and one of a kind that nobody does, so that it goes on; its id."""
    owner = processes.add(db, process(tables.add(db, runtime())))
    made = [task(owner, number, kind=kind) for number in range(1, count + 1)]
    others = task(owner, count + 1, kind="nobody's")
    tasks.add_many(db, [(one, b"work") for one in (*made, others)])
    return owner.process_id


# Filling a database


_AT_ONCE = 5000


def fill(store: Store, *, known: int, running: int = 0, each: int = 0) -> None:
    """So many known tables; on the first ones a running process each, with so many tasks.

    Of the tasks of a process the first is rewritten, the second runs, and the others wait.
    """
    store.write(lambda db: groups.add_optimizer(db, optimizer(HELD.optimizer_id)))
    acked = {"attempt": 1, "scheduled_at": minutes(1), "acked_at": minutes(2)}

    def add_tables(db: Connection, numbers: range) -> None:
        for number in numbers:
            tables.add(db, runtime(f"t{number:06}"))

    def add_process(db: Connection, number: int) -> None:
        table, created = tables.get(db, number + 1), NOW + timedelta(seconds=number)
        owner = processes.add(db, process(table, f"0199{number:04}-0001", created_at=created))
        added = [task(owner, one) for one in range(1, each + 1)]
        if each > 0:
            added[0] = added[0]._replace(status=TaskStatus.SUCCESS, finished_at=minutes(3), **acked)
        if each > 1:
            added[1] = added[1]._replace(status=TaskStatus.ACKED, thread=HELD, **acked)
        tasks.add_many(db, [(one, b"payload") for one in added])

    for start in range(0, known, _AT_ONCE):
        store.write(partial(add_tables, numbers=range(start, min(known, start + _AT_ONCE))))
    for number in range(running):
        store.write(partial(add_process, number=number))


def list_planned(db: Connection, group: str, kinds: Sequence[str], max_cluster_bytes: int = 0) -> list[OptimizingTask]:
    """Tasks that wait for an optimizer of the group which takes these kinds: the oldest process first, by number.

    A task waits until those of earlier stages of its process have ended; groups of files above `max_cluster_bytes`
    wait for another optimizer.
    """
    found: list[OptimizingTask] = []
    working = [
        one for one in processes.list_active(db) if one.status in (ProcessStatus.RUNNING, ProcessStatus.COMMITTING)
    ]
    for owner in sorted(working, key=lambda one: (one.created_at, one.process_id)):
        every = tasks.list_for_process(db, owner.process_id)
        stage = min(
            (one.stage for one in every if one.status not in (TaskStatus.SUCCESS, TaskStatus.CANCELED)), default=0
        )
        found += [
            one
            for one in every
            if (one.status, one.group) == (TaskStatus.PLANNED, group)
            and one.kind in kinds
            and one.stage <= stage
            and (one.kind != CLUSTER or one.input_bytes <= max_cluster_bytes)
        ]
    return found


def token_hash(db: Connection, kind: str) -> str | None:
    """The hash of a built-in token: a value that any test can write."""
    row = db.select_one("SELECT token_hash FROM token WHERE kind = :kind", {"kind": kind})
    return None if row is None else str(row["token_hash"])


def query_plan(store: Store, ask: Callable[[Connection], object]) -> list[str]:
    """The steps by which SQLite runs the queries of `ask`."""

    def watched(db: Connection) -> list[str]:
        asked: list[str] = []
        db.raw.set_trace_callback(asked.append)
        ask(db)
        db.raw.set_trace_callback(None)
        plans = [db.select(f"EXPLAIN QUERY PLAN {sql}") for sql in asked if sql.startswith("SELECT")]
        return [row["detail"] for plan in plans for row in plan]

    return store.read(watched)


def open_store(path: Path) -> Store:
    """As `Store.open`; a file that does not exist begins as a copy of a migrated database that no store has opened."""
    if not path.exists():
        path.write_bytes(_migrated())
    return Store.open(path)


@cache
def _migrated() -> bytes:
    made = sqlite3.connect(":memory:", isolation_level=None)
    db = Connection(made)
    db.execute("BEGIN")
    migrate(db)
    db.execute("COMMIT")
    image = made.serialize()
    made.close()
    return image


def services(
    store: Store,
    clock: Callable[[], datetime] = lambda: datetime(2026, 3, 1, 12, tzinfo=UTC),
    catalogs: Callable[[], Sequence[CatalogConfig]] = list,
) -> Services:
    """The services over a store, without any table format and without a program around them."""
    around = CoordinatorHooks(str, str)
    parts = Dependencies(Formats([]), {}, POLICIES, catalogs, clock=clock, monotonic=lambda: 0.0)
    return Services(store, Path("/nowhere"), Settings(), {}, around, parts)
