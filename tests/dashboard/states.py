"""State databases as coordinators leave them.

Empty, typical, with 10,000 tables, failing, refused, commit unknown; and crowded: everything that pages show, with long
names and texts.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from amoro_core.model.group_config import Resource, ResourceState
from amoro_core.model.history_events import About, AttemptOutcome, Audited, Event, EventKind, TaskAttempt
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.metrics import Sample
from amoro_core.model.principals import Principal, Role, UserAccount
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
    uuid7,
)
from amoro_core.model.tables import (
    ActionRecord,
    BlockedOperation,
    Blocker,
    FileSummary,
    HealthParts,
    OptimizingStatus,
    OptimizingType,
    Saving,
    TableIdentifier,
    TableRuntime,
)
from amoro_core.store import (
    accounts,
    actions,
    audit,
    catalogs,
    events,
    groups,
    pending_deletions,
    processes,
    tables,
    tasks,
    time_series,
)
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


def long_queue(db: Connection, pending: int = 230, waiting: int = 130) -> None:
    """Tables that wait for a plan, and processes with a task that waits: more than a page of each."""
    for number, one in enumerate(fill(db, pending + waiting)):
        if number < pending:
            about = {"pending_type": OptimizingType.MINOR, "status_reason": f"{number} fragments"}
            tables.save(db, replace(one, status=OptimizingStatus.PENDING, **about))
        else:
            saved = tables.save(db, replace(one, status=OptimizingStatus.MINOR_OPTIMIZING))
            made = builders.process(saved, f"0199ffff-{number:04}-7000-8000-000000000000", created_at=now())
            processes.add(db, made)
            keep(db, [builders.task(made)])


#: Names of the state "crowded".
NORTH, REPORTING = "lake_of_the_northern_region", "finance_reporting_quarterly"
CROWDED_TABLE = f"{NORTH}.{REPORTING}.customer_orders_with_all_their_positions_and_returns_00"
CROWDED_PROCESS = "0199aaaa-0001-7000-8000-000000000000"
CROWDED_HELD = "0199abab-0001-7000-8000-00000000abcd"
_MISSING = (
    "data file s3://lake-of-the-northern-region/finance/2026/01/02/00000-17-8a5f0d5e.parquet does not exist: " + LONG
)


def _crowded(db: Connection) -> None:
    """22 tables with long names, of which some fail, are refused, wait or run; and 5,000 events."""
    catalogs.add(
        db, builders.catalog(NORTH, properties=(("type", "rest"), ("uri", "https://catalog.example/" + "n" * 90)))
    )
    group = "optimizers-of-the-reporting-team"
    groups.add(db, ResourceGroup(group, properties=(("memory", "4096"),)))
    many = [tables.add(db, table(number, **_crowded_fields(number, group))) for number in range(22)]
    labels = (("host", "ip-10-20-30-40.eu-central-1.compute.internal"), ("zone", "eu-central-1a"))
    for _ in range(6):
        name = uuid7(now())
        groups.add_optimizer(db, builders.optimizer(name, group=group, labels=labels, registered_at=now()))
        groups.add_resource(db, Resource(uuid7(now()), group, "kubernetes", ResourceState.RUNNING, now(), now(), name))
    for name in ("optimizer-1", "optimizer-2"):
        groups.add_optimizer(db, builders.optimizer(name, labels=labels, registered_at=now()))
    running(db, many[0])
    for number in range(60):
        failed = {"status": ProcessStatus.FAILED, "failure_code": "AMORO-1002", "failure": _MISSING, "receipt": None}
        ended(db, many[number % 22], uuid7(now()), reason=LONG, **(failed if number % 3 == 0 else {}))
    held = builders.process(many[9], CROWDED_HELD, type="expire-snapshots", action="expire-snapshots", reason=LONG)
    processes.add(db, replace(held, status=ProcessStatus.HELD, lane="metadata"))
    condemn(db, many[10], CONDEMNED)
    hour = timedelta(hours=1)
    kinds = frozenset({BlockedOperation.OPTIMIZE})
    actions.add_blocker(db, Blocker(uuid7(now()), many[0].table_id, kinds, now(), now() + hour, hour, LONG))
    for number, one in enumerate(many):
        for place, name in enumerate(("expire-snapshots", "clean-orphan-files", "rewrite-manifests")):
            record = ActionRecord(
                one.table_id, name, "no snapshot is older than 5 days", now() - hour, now() + place * hour
            )
            if number == 3:
                record = replace(record, failures=3, reason=_MISSING, retry_at=now() + hour)
            actions.save(db, record)
    about = [About(one.table_id, str(one.identifier), CROWDED_PROCESS, uuid7(now()), group) for one in many]
    for number in range(5000):
        kind = EventKind.FAILED if number % 7 == 0 else EventKind.COMMITTED
        at = now() - timedelta(seconds=5000 - number)
        events.add(db, Event(kind, at, _MISSING if number % 7 == 0 else LONG, about[number % 22]))
    who = Principal(
        "somebody.with.a.long.name@example.org", Role.ADMIN, address="2001:db8:85a3::8a2e:370:7334", is_user=True
    )
    for _ in range(120):
        audit.add(db, Audited(who, "OptimizeTable", CROWDED_TABLE, {"where": LONG, "type": "full"}), now(), code="")
    accounts.add_user(db, UserAccount(who.name, Role.OPERATOR, f"{NORTH}.{REPORTING}.*", "no hash", now()))
    for minute in range(90):
        names = ("threads", "threads-busy", "queue-tasks", "queue-age")
        samples = [Sample(name, minute % 9, group) for name in names]
        time_series.add(db, samples, now() - timedelta(minutes=90 - minute))


def _crowded_fields(number: int, group: str) -> Mapping[str, object]:
    name = f"customer_orders_with_all_their_positions_and_returns_{number:02}"
    base = {
        "identifier": TableIdentifier(NORTH, (REPORTING,), name),
        "group": group,
        "saving": Saving(number * 37, number * 90_000_000),
        "status_reason": f"partition day=2026-01-02: 13 fragments, 12 are enough; {LONG}",
        "enabled": True,
    }
    if number == 0:
        return {**base, "status": OptimizingStatus.MINOR_OPTIMIZING}
    if number < 5:
        failing = {"failures": 4, "failure_code": "AMORO-1002", "failing_since": now() - timedelta(hours=9)}
        return {**base, **failing, "retry_at": now() + timedelta(hours=2), "pending_type": OptimizingType.MINOR}
    if number < 8:
        return {**base, "status": OptimizingStatus.REFUSED, "refusal": "encryption", "status_reason": f"keys; {LONG}"}
    if number < 12:
        return {**base, "status": OptimizingStatus.PENDING, "pending_type": OptimizingType.FULL}
    if table(number).pending_type is None:
        base |= {"saving": Saving(), "status_reason": f"no partition needs work; {LONG}"}
    return {**base, "enabled": number % 2 == 0}


STATES: Mapping[str, Callable[[Connection], None]] = {
    "empty": _empty,
    "typical": _typical,
    "10,000 tables": _large,
    "failing": _failing,
    "refused": _refused,
    "commit unknown": _unknown,
    "crowded": _crowded,
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
