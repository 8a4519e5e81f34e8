"""A state database in which every text that strangers choose is a payload, each text in turn with each payload."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

from amoro_core.model.group_config import Resource, ResourceState
from amoro_core.model.history_events import About, AttemptOutcome, Audited, Event, EventKind, TaskAttempt
from amoro_core.model.maintenance import Condemned, FileKind
from amoro_core.model.metrics import Sample
from amoro_core.model.plans import FileDigest, PartitionDigest, StoredDigest
from amoro_core.model.principals import AccessToken, Principal, Role, UserAccount
from amoro_core.model.processes import (
    Attempt,
    CatalogConfig,
    OptimizerThread,
    OptimizingProcess,
    ProcessStatus,
    ResourceGroup,
    TaskStatus,
)
from amoro_core.model.tables import BlockedOperation, Blocker, OptimizingStatus, TableIdentifier, TableRuntime
from amoro_core.store import (
    accounts,
    actions,
    audit,
    catalogs,
    events,
    groups,
    pending_deletions,
    processes,
    table_stats,
    tables,
    tasks,
    time_series,
)
from amoro_core.store.connection import Connection
from tests.dashboard import states
from tests.store import builders

#: The process whose tasks, attempts and files are the payloads.
PROCESS = "0199cccc-0000-7000-8000-000000000000"


def fill(db: Connection, payloads: Sequence[str]) -> None:
    """For each payload whatever has a name or another text by somebody else."""
    made = [_table_and_process(db, number, payload) for number, payload in enumerate(payloads)]
    table, process = made[0]
    _work(db, process, payloads)
    _properties(db, table, payloads)
    for payload in payloads:
        _accounts(db, payload)
        _optimizers(db, payload)
        at, who = states.now(), Principal(payload, Role.ADMIN, address=payload, said=payload, is_user=True)
        about = About(table_id=table.table_id, process_id=payload, optimizer_id=payload, group=payload)
        events.add(db, Event(EventKind.FAILED, at, payload, about, {payload: payload}))
        audit.add(db, Audited(who, "OptimizeTable", payload, {payload: payload, "where": payload}), at, code=payload)
        levels = ("threads", "threads-busy", "queue-tasks", "queue-age")
        time_series.add(db, [Sample(name, 1, payload) for name in levels], at)


def _table_and_process(db: Connection, number: int, payload: str) -> tuple[TableRuntime, OptimizingProcess]:
    files, health = states.summary(6)
    is_refused = number % 3 == 0
    catalogs.add(db, CatalogConfig(payload, (("type", payload), (payload, payload)), (payload,)))
    groups.add(db, ResourceGroup(payload, properties=((payload, payload),)))
    table = tables.add(
        db,
        states.table(
            0,
            identifier=TableIdentifier(payload, (payload,), payload),
            uuid=f"{number}: {payload}",
            location=payload,
            group=payload,
            status=OptimizingStatus.REFUSED if is_refused else OptimizingStatus.PENDING,
            refusal="encryption" if is_refused else "",
            status_reason=payload,
            enabled_origin=payload,
            properties={"self-optimizing.quota": payload},
            summary=files,
            health=health,
        ),
    )
    now, held = states.now(), timedelta(hours=1)
    kinds = frozenset({BlockedOperation.OPTIMIZE})
    actions.add_blocker(db, Blocker(f"0199eeee-{number:04}", table.table_id, kinds, now, now + held, held, payload))
    process = builders.process(
        table,
        f"0199cccc-{number:04}-7000-8000-000000000000",
        status=ProcessStatus.FAILED,
        reason=payload,
        failure_code="AMORO-1002",
        failure=f"{payload}\n{payload}",
        where=payload,
        created_at=now,
        finished_at=now,
    )
    processes.add(db, process)
    return table, process


def _work(db: Connection, process: OptimizingProcess, payloads: Sequence[str]) -> None:
    """Tasks with their attempts, and condemned files, of one process."""
    now, files = states.now(), []
    for number, payload in enumerate(payloads, 1):
        thread, times = OptimizerThread(payload, 0), (now - timedelta(seconds=90), now - timedelta(seconds=80), now)
        took = dict(zip(("scheduled_at", "acked_at", "finished_at"), times, strict=True))
        task = builders.task(process, number, partition=payload, failure=payload)
        task = task._replace(status=TaskStatus.FAILED, attempt=1, ended_on=thread, **took)
        tasks.add_many(db, [(task, b"")])
        number_ = Attempt(task.task_id, 1)
        tasks.add_attempts(db, [TaskAttempt(number_, thread, AttemptOutcome.FAILED, *times, "AMORO-1002", payload)])
        files.append(Condemned(f"{number}/{payload}", FileKind.DATA, 5, now, payload))
    owner = process.process_id, process.table_id, process.table_uuid
    batches = pending_deletions.batches_of(files, *owner, now + timedelta(days=1))
    pending_deletions.add_many(db, [replace(batch, status=pending_deletions.BatchStatus.WAITING) for batch in batches])


def _properties(db: Connection, table: TableRuntime, payloads: Sequence[str]) -> None:
    """Properties of a table, and its partitions."""
    given = {f"self-optimizing.{payload}": payload for payload in payloads}
    tables.save(db, replace(tables.get(db, table.table_id), properties=given))
    partitions = [PartitionDigest(payload, 1, payload, payload, 1, 1, 1, 1, 1, 1) for payload in payloads]
    digest = FileDigest(1, 1, partitions=tuple(partitions), partitions_total=len(partitions))
    table_stats.save_digest(db, table.table_id, table_stats.pack_digest(digest), StoredDigest(digest, states.now()))


def _accounts(db: Connection, payload: str) -> None:
    accounts.add_user(db, UserAccount(payload, Role.OPERATOR, payload, "no hash", states.now()))
    accounts.add_token(db, AccessToken(payload, Role.OPERATOR, f"hash of {payload}", states.now(), payload))


def _optimizers(db: Connection, payload: str) -> None:
    labels, now = (("host", payload), (payload, payload)), states.now()
    groups.add_optimizer(db, builders.optimizer(payload, group=payload, labels=labels, registered_at=now))
    groups.add_resource(db, Resource(payload, payload, payload, ResourceState.RUNNING, now, now, payload))


#: Texts that would run as a script if a page did not escape them.
_CORES = ("alert(1)", "window.pwned=1", "location='//evil.example'", "fetch('//evil.example')")
_SHAPES = (
    "<script>{}</script>",
    "</script><script>{}</script>",
    "<ScRiPt>{}</sCrIpT>",
    "<img src=x onerror={}>",
    '"><img src=x onerror={}>',
    "'><svg/onload={}>",
    '" onmouseover="{}" x="',
    "' autofocus onfocus='{}' x='",
    "javascript:{}",
    "</title><script>{}</script>",
    "</textarea><script>{}</script>",
    "<!--><script>{}</script>-->",
    "{{{{{}}}}}",
    "{{% import os %}}<b onclick={}>",
    "<a href='javascript:{}'>a</a>",
)
#: Sixty of them.
PAYLOADS = tuple(shape.format(core) for shape in _SHAPES for core in _CORES)
