"""State databases as coordinators leave them: empty, typical, with 10,000 tables, failing, refused, commit unknown."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from amoro_core.model.history_events import AttemptOutcome, TaskAttempt
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.principals import Role, UserAccount
from amoro_core.model.processes import (
    Attempt,
    CommitOutcome,
    Delay,
    OptimizerThread,
    OptimizingProcess,
    OptimizingTask,
    ProcessStatus,
    ResourceGroup,
    TaskStatus,
)
from amoro_core.model.tables import (
    FileSummary,
    HealthParts,
    OptimizingStatus,
    OptimizingType,
    Saving,
    TableIdentifier,
    TableRuntime,
)
from amoro_core.store import accounts, catalogs, groups, pending_deletions, processes, tables, tasks
from amoro_core.store.database import Connection, Store
from tests.store import builders

NAMESPACES = ("sales", "web", "finance", "logs")
NAMES = ("orders", "customers", "clicks", "sessions", "invoices", "payments", "shipments", "returns")
#: A process of the state "typical" whose files are in the trash.
CONDEMNED = "0199eeee-0001-7000-8000-000000000000"
LONG = "a reason that goes on " * 40


def now() -> datetime:
    return datetime.now(UTC)


def summary(number: int) -> tuple[FileSummary, HealthParts]:
    """A table's files and health, worse with a greater number of seven."""
    worse = number % 7
    health = HealthParts(40 - worse * 5, 40 - worse * 3, 20 - worse)
    files = FileSummary(
        data_files=20 + number % 1000,
        data_bytes=(1 + number % 500) * 40_000_000,
        fragment_files=worse * 3,
        undersized_files=worse,
        equality_delete_files=worse * 2,
        position_delete_files=worse,
        delete_bytes=worse * 10_000,
        dangling_delete_files=worse // 2,
        records=1_000_000 + number,
        health_score=health.score,
        coarse_files=worse // 3,
        coarse_bytes=worse // 3 * 110_000_000,
    )
    return files, health


def table(number: int, **fields: object) -> TableRuntime:
    """A table that was evaluated, each number with its own name."""
    files, health = summary(number)
    namespace, name = NAMESPACES[number % 4], NAMES[number // 4 % 8]
    name = name if number < 32 else f"{name}_{number:05}"
    base = builders.runtime(
        name,
        identifier=TableIdentifier("lake", (namespace,), name),
        uuid=f"uuid-{number}",
        location=f"s3://lake/{namespace}/{name}",
        metadata_location=f"s3://lake/{namespace}/{name}/metadata/00007.json",
        status_since=now() - timedelta(minutes=number % 90),
        status_reason=f"{3 * (number % 7)} fragments, 12 are enough" if number % 7 > 3 else "no partition needs work",
        enabled=number % 5 != 4,
        enabled_origin="self-optimizing.enabled of the table",
        snapshot_id=5_120_000_000_000_000_000 + number,
        evaluated_snapshot_id=5_120_000_000_000_000_000 + number,
        evaluated_at=now() - timedelta(minutes=5),
        scanned_at=now() - timedelta(minutes=5),
        refreshed_at=now() - timedelta(minutes=1),
        refresh_at=now() + timedelta(days=1),
        next_due_at=now() + timedelta(hours=number % 50),
        last_optimized_at=now() - timedelta(hours=number % 70),
        properties={"self-optimizing.enabled": "true", "write.target-file-size-bytes": "134217728"},
        pending_type=OptimizingType.MINOR if number % 7 > 3 else None,
        saving=Saving(number % 7 * 4, number % 7 * 30_000_000) if number % 7 > 3 else Saving(),
        summary=files,
        health=health,
        format="iceberg",
    )
    return replace(base, **fields)


def fill(db: Connection, count: int, **fields: object) -> list[TableRuntime]:
    """That many tables in a catalog of their own."""
    catalogs.add(db, builders.catalog("lake"))
    return [tables.add(db, table(number, **fields)) for number in range(count)]


def _empty(db: Connection) -> None:
    """Nothing but the default group."""


def _typical(db: Connection) -> None:
    known = fill(db, 30)
    groups.add(db, ResourceGroup("nightly"))
    for number in (1, 2):
        groups.add_optimizer(db, builders.optimizer(f"optimizer-{number}", registered_at=now()))
    running(db, tables.save(db, replace(known[3], status=OptimizingStatus.MINOR_OPTIMIZING)))
    tables.save(db, replace(known[6], status=OptimizingStatus.PENDING, status_reason="18 fragments, 2 partitions"))
    for number in range(10):
        ended(db, known[number + 10], f"0199bbbb-{number:04}-7000-8000-000000000000")


def condemn(db: Connection, on: TableRuntime, process_id: str) -> None:
    """Two files that a process has condemned, which is added."""
    ended(db, on, process_id, type="expire-snapshots", action="expire-snapshots", lane="metadata")
    files = [Condemned(f"s3://lake/old-{number}.parquet", FileKind.DATA, 5, None, "expired") for number in (1, 2)]
    batches = pending_deletions.batches_of(files, process_id, on.table_id, on.uuid, now() + timedelta(days=3))
    pending_deletions.add_many(db, batches)
    pending_deletions.release(db, process_id)


def _large(db: Connection) -> None:
    known = fill(db, 10_000)
    for number in range(60):
        ended(db, known[number], f"0199bbbb-{number:04}-7000-8000-000000000000")


def _failing(db: Connection) -> None:
    for number, one in enumerate(fill(db, 12)):
        failing = {"failures": 4, "failure_code": "AMORO-1002", "failing_since": now() - timedelta(hours=9)}
        failing |= {"retry_at": now() + timedelta(hours=2), "status_reason": "4 failures"}
        code, failure = "AMORO-1002", f"data file s3://lake/{number}.parquet is missing: {LONG}"
        ended(
            db,
            tables.save(db, replace(one, **failing)),
            f"0199cccc-{number:04}-7000-8000-000000000000",
            status=ProcessStatus.FAILED,
            failure_code=code,
            failure=failure,
            receipt=None,
        )


def _refused(db: Connection) -> None:
    why = {"status": OptimizingStatus.REFUSED, "refusal": "encryption", "status_reason": f"keys are encrypted; {LONG}"}
    fill(db, 12, summary=FileSummary(), health=None, evaluated_at=None, **why)


def _unknown(db: Connection) -> None:
    one, *_ = fill(db, 6)
    held = tables.save(db, replace(one, status=OptimizingStatus.COMMITTING))
    delay = Delay("AMORO-7001", "the catalog did not answer: connection reset", now() + timedelta(minutes=1), 3)
    made = builders.process(
        held,
        "0199dddd-0001-7000-8000-000000000000",
        status=ProcessStatus.COMMIT_UNKNOWN,
        created_at=now() - timedelta(minutes=15),
        commit_tries=3,
        delay=delay,
    )
    processes.add(db, made)
    keep(db, [done(made)])
    processes.add_commit(db, builders.attempt(made, outcome=CommitOutcome.UNKNOWN))


def running(db: Connection, on: TableRuntime) -> str:
    """A running process of twelve tasks, some of which have ended; its id."""
    made = builders.process(on, "0199aaaa-0001-7000-8000-000000000000", created_at=now() - timedelta(minutes=4))
    processes.add(db, made)
    start, each = now() - timedelta(minutes=3), []
    for number in range(1, 13):
        one = builders.task(made, number, input_bytes=number * 9_000_000, partition=f"day=2026-01-{number:02}")
        thread = OptimizerThread(f"optimizer-{1 + number % 2}", number % 4)
        took = {"attempt": 1, "scheduled_at": start, "acked_at": start + timedelta(seconds=number)}
        if number < 6:
            finished = start + timedelta(seconds=20 + 9 * number)
            one = one._replace(status=TaskStatus.SUCCESS, finished_at=finished, ended_on=thread, **took)
        elif number < 9:
            one = one._replace(status=TaskStatus.ACKED, thread=thread, **took)
        each.append(one)
    keep(db, each)
    return made.process_id


def ended(db: Connection, on: TableRuntime, process_id: str, **fields: object) -> str:
    """A process that has ended, by default with success; its id."""
    created = now() - timedelta(hours=1 + on.table_id % 40)
    base = builders.process(
        on,
        process_id,
        type=OptimizingType.MAJOR,
        status=ProcessStatus.SUCCESS,
        created_at=created,
        finished_at=created + timedelta(minutes=7),
        receipt=builders.RECEIPT,
    )
    made = replace(base, **fields)
    processes.add(db, made)
    keep(db, [done(made)])
    return made.process_id


def keep(db: Connection, each: Sequence[OptimizingTask]) -> None:
    """Tasks, and the attempts of those that have ended."""
    tasks.add_many(db, [(task, b"") for task in each])
    for task in each:
        if task.finished_at and task.scheduled_at and task.ended_on:
            number, outcome = Attempt(task.task_id, task.attempt), AttemptOutcome(task.status.value)
            times = (task.scheduled_at, task.acked_at, task.finished_at)
            tasks.add_attempts(db, [TaskAttempt(number, task.ended_on, outcome, *times)])


def done(owner: OptimizingProcess) -> OptimizingTask:
    """The only task of a process, rewritten."""
    at = {"scheduled_at": owner.created_at, "acked_at": owner.created_at, "finished_at": owner.created_at}
    return builders.task(owner, status=TaskStatus.SUCCESS, attempt=1, ended_on=OptimizerThread("optimizer-1", 1), **at)


STATES: Mapping[str, Callable[[Connection], None]] = {
    "empty": _empty,
    "typical": _typical,
    "10,000 tables": _large,
    "failing": _failing,
    "refused": _refused,
    "commit unknown": _unknown,
}


def seed(store: Store, state: str) -> None:
    """Put a new database into the state of that name; a typical one has a user and something in its trash, too."""
    store.write(STATES[state])
    if state == "typical":
        store.write(_add_user_and_trash)


def _add_user_and_trash(db: Connection) -> None:
    accounts.add_user(db, UserAccount("ann", Role.OPERATOR, "lake.sales.*", "no hash", now()))
    (on,) = tables.list_by_id(db, [20])
    condemn(db, on, CONDEMNED)
