"""Documents of processes, tasks, attempts and events."""

from amoro_cli.list_options import Column, Listing
from amoro_cli.output import Block, Document, Pairs, with_value
from amoro_cli.views.plans import disputed_deletes, layout, nothing_to_do, thread_time
from amoro_core.documents.formatting import (
    change,
    detail_lines,
    format_bytes,
    format_count,
    format_duration,
    format_time,
    many,
    row_equation,
    short_id,
)
from amoro_core.documents.json_documents import encode, optimize_body
from amoro_core.model.processes import UNDOABLE
from amoro_core.model.text_sanitizing import one_line
from amoro_core.protocol import admin_pb2 as admin_pb
from amoro_core.protocol import journal_pb2 as pb

#: Schema amoro.attempts/v1: `process_id`, `attempts`, `total`, `next`. The names are PROCESS-TASK-ATTEMPT.
ATTEMPTS: Listing[pb.AttemptInfo] = Listing(
    (
        Column("TASK", lambda item: item.task_id, right=True),
        Column("ATTEMPT", lambda item: item.attempt, right=True),
        Column("OUTCOME", lambda item: item.outcome),
        Column("SCHEDULED", lambda item: item.scheduled_ms, format_time),
        Column("TOOK", lambda item: _between(item.started_ms or item.scheduled_ms, item), format_duration, right=True),
        Column("ROWS", lambda item: item.input_rows, format_count, right=True),
        Column("SIZE", lambda item: item.input_bytes, format_bytes, right=True),
        Column("OPTIMIZER", lambda item: f"{short_id(item.optimizer_id)}/{item.thread_id}"),
        Column("FAILURE", lambda item: _failure(item) or "-"),
    ),
    spare=("OPTIMIZER", "SIZE", "ROWS", "SCHEDULED"),
    elastic="FAILURE",
    schema="amoro.attempts/v1",
    nothing="No attempts.",
)
#: Schema amoro.events/v1: `events`, `total`, `next`. The names are numbers.
EVENTS: Listing[pb.Event] = Listing(
    (
        Column("EVENT", lambda item: item.event_id, right=True),
        Column("AT", lambda item: item.happened_ms, format_time),
        Column("KIND", lambda item: item.kind),
        Column("TABLE", lambda item: item.table or "-"),
        Column("PROCESS", lambda item: item.process_id or "-", short_id),
        Column("TEXT", lambda item: one_line(item.text)),
    ),
    spare=("PROCESS", "EVENT"),
    elastic="TEXT",
    schema="amoro.events/v1",
    name=lambda item: str(item.event_id),
    nothing="No events.",
)
#: Schema amoro.tasks/v1: `process_id`, `tasks`, `total`, `next`. The names are PROCESS-N.
TASKS: Listing[admin_pb.TaskInfo] = Listing(
    (
        Column("TASK", lambda task: task.task_id, right=True),
        Column("STATUS", lambda task: task.status),
        Column("ATTEMPT", lambda task: task.attempt, right=True),
        Column("FILES", lambda task: task.input_files, format_count, right=True),
        Column("SIZE", lambda task: task.input_bytes, format_bytes, right=True),
        Column("ROWS", lambda task: (task.rows_total, task.rows_done), lambda rows: _rows(*rows) or "-", right=True),
        Column(
            "TOOK", lambda task: _between(task.started_ms, task) if task.started_ms else -1, format_duration, right=True
        ),
        Column(
            "OPTIMIZER", lambda task: f"{short_id(task.optimizer_id)}/{task.thread_id}" if task.optimizer_id else "-"
        ),
        Column("PARTITION", lambda task: task.partition or "-"),
        Column("FAILURE", lambda task: one_line(task.failure) or "-"),
    ),
    spare=("OPTIMIZER", "ATTEMPT", "SIZE", "ROWS", "TOOK"),
    elastic="FAILURE",
    schema="amoro.tasks/v1",
    nothing="No tasks.",
)
#: Schema amoro.processes/v1: `processes`, without their tasks one by one; `total`, `next`.
PROCESSES: Listing[admin_pb.Process] = Listing(
    (
        Column("PROCESS", lambda process: process.process_id, short_id),
        Column("TABLE", lambda process: process.table),
        Column("TYPE", lambda process: process.type),
        Column("STATUS", lambda process: process.state or process.status),
        Column(
            "TASKS",
            lambda process: (process.tasks_total, process.tasks_done),
            lambda tasks: f"{tasks[1]}/{tasks[0]}",
            right=True,
        ),
        Column("CREATED", lambda process: process.created_ms, format_time),
        Column("TOOK", lambda process: _between(_began_ms(process), process), format_duration, right=True),
        Column("WHY", lambda process: process.waiting or _failure(process) or process.reason),
    ),
    spare=("CREATED", "TOOK", "TYPE", "WHY", "TASKS"),
    elastic="TABLE",
    schema="amoro.processes/v1",
    name=lambda process: process.process_id,
    nothing="No processes.",
)


def _began_ms(process: admin_pb.Process) -> int:
    """When its work began: the wait for an optimizer does not count."""
    return process.started_ms or process.created_ms


def _between(start_ms: int, ended: pb.AttemptInfo | admin_pb.TaskInfo | admin_pb.Process) -> int:
    """The milliseconds from the start to the end; -1 before the end."""
    return ended.finished_ms - start_ms if ended.finished_ms else -1


def _rows(total: int, done: int) -> str:
    return f"{format_count(done)}/{format_count(total)}" if total else ""


def _failure(failed: pb.AttemptInfo | admin_pb.TaskInfo | admin_pb.Process) -> str:
    failure = one_line(failed.failure)
    return f"[{failed.failure_code}] {failure}" if failed.failure_code else failure


def event_line(event: pb.Event) -> Document:
    """Schema amoro.event/v1: the fields of the event; one line for people."""
    about = " ".join(filter(None, (event.table, event.process_id)))
    line = (format_time(event.happened_ms), f"{event.kind}  {about}{'  ' if about else ''}{one_line(event.text)}")
    return Document("amoro.event/v1", encode(event), (str(event.event_id),), (Pairs((line,)),))


_TOTALS: Listing[pb.ProcessTotals] = Listing(
    (
        Column("TYPE", lambda item: item.type),
        Column("STATUS", lambda item: item.status),
        Column("PROCESSES", lambda item: item.processes, format_count, right=True),
        Column("TABLES", lambda item: item.tables, format_count, right=True),
        Column("FILES", lambda item: change(item.data_files_before, item.data_files_after)),
        Column("DELETES", lambda item: change(item.delete_files_before, item.delete_files_after)),
        Column("SIZE", lambda item: change(item.bytes_before, item.bytes_after, format_bytes)),
    )
)
_FAILED: Listing[pb.TableFailures] = Listing(
    (
        Column("TABLE", lambda item: item.table),
        Column("TIMES", lambda item: item.processes, format_count, right=True),
        Column("LAST", lambda item: item.finished_ms, format_time),
        Column("PROCESS", lambda item: item.process_id, short_id),
        Column("WHY", lambda item: one_line(item.reason)),
    ),
    spare=("LAST",),
    elastic="WHY",
)
_WORSE: Listing[pb.WorseTable] = Listing(
    (
        Column("TABLE", lambda item: item.table),
        Column("SMALL FILES", lambda item: change(item.small_files_before, item.small_files)),
        Column("DELETES", lambda item: change(item.delete_files_before, item.delete_files)),
    )
)


def report_document(report: pb.Report) -> Document:
    """Schema amoro.report/v1: the fields of the report."""
    time = f"from {format_time(report.began_ms)} to {format_time(report.ended_ms)}"
    blocks: list[Block] = [
        f"{many(report.processes, 'process')} ended {time}.",
        *([_TOTALS.grid(report.totals, indent=2)] if report.totals else ()),
    ]
    for code in report.failures:
        more = code.tables_total - len(code.tables)
        failed = f"[{code.code}] {many(code.processes, 'failure')} of {many(code.tables_total, 'table')}"
        blocks += ["", f"{failed}{f', {more} of them not shown' if more else ''}:", _FAILED.grid(code.tables, indent=2)]
    if not report.failures:
        blocks.append("Nothing failed.")
    more = report.worse_total - len(report.worse)
    if report.worse:
        worse = f"{many(report.worse_total, 'table')} got worse{f', {more} of them not shown' if more else ''}:"
        blocks += ["", worse, _WORSE.grid(report.worse, indent=2)]
    else:
        blocks.append("No table got worse." if report.is_worse_known else "Whether tables got worse is not known.")
    return Document("amoro.report/v1", encode(report), (), tuple(blocks))


def task_detail(process: admin_pb.Process, task: admin_pb.TaskInfo) -> Document:
    """Schema amoro.task/v1: `process_id`, `table`, and the fields of the task."""
    name = f"{process.process_id}-{task.task_id}"
    took = f", after {format_duration(task.finished_ms - task.started_ms)}" if task.started_ms else ""
    pairs = with_value(
        ("task", name),
        ("table", process.table),
        ("status", task.status),
        ("attempt", f"{task.attempt}, {task.failed_runs} failed, {task.lost_attempts} lost"),
        ("partition", task.partition or "-"),
        ("input", f"{many(task.input_files, 'file')}, {format_bytes(task.input_bytes)}"),
        ("optimizer", f"{task.optimizer_id}/{task.thread_id}" if task.optimizer_id else ""),
        ("assigned", format_time(task.scheduled_ms)),
        ("started", format_time(task.started_ms)),
        ("finished", f"{format_time(task.finished_ms)}{took}" if task.finished_ms else ""),
        ("rows", _rows(task.rows_total, task.rows_done)),
        ("failure", _failure(task) if task.failure else ""),
    )
    body = {"process_id": process.process_id, "table": process.table, **encode(task)}
    return Document("amoro.task/v1", body, (name,), (Pairs(pairs),))


def is_active(process: admin_pb.Process) -> bool:
    """Whether the process has not ended."""
    return not process.finished_ms


def process_detail(process: admin_pb.Process) -> Document:
    """Schema amoro.process/v1: the fields of the process."""
    took = format_duration(process.finished_ms - _began_ms(process))
    pairs = with_value(
        ("process", process.process_id),
        ("table", process.table),
        ("type", process.type),
        ("status", process.state or process.status),
        ("why", f"{process.reason} ({process.trigger})" if process.trigger else process.reason),
        ("where", process.where),
        ("snapshot", str(process.snapshot_id)),
        ("created", format_time(process.created_ms)),
        ("started", format_time(process.started_ms) if process.started_ms else ""),
        ("finished", f"{format_time(process.finished_ms)}, after {took}" if process.finished_ms else ""),
        ("failure", _failure(process) if process.failure else ""),
        ("commit", process.waiting),
        ("tasks", f"{process.tasks_done}/{process.tasks_total} done"),
        ("work", thread_time(process.predicted_ms, process.measured_ms)),
        ("waiting", process.no_optimizer),
    )
    blocks: list[Block] = [Pairs(pairs)]
    if process.tasks:
        blocks += ["", TASKS.grid(process.tasks, indent=2)]
    if process.HasField("receipt"):
        blocks += ["", *receipt_blocks(process)]
    return Document("amoro.process/v1", encode(process), (process.process_id,), tuple(blocks))


def optimize_document(plan: admin_pb.Plan, process_id: str, process: admin_pb.Process | None) -> Document:
    """Schema amoro.optimize/v1: `table`, `outcome`, `process_id`, `changes` (none), `plan`, `process`.

    The outcome is "nothing_to_do", "planned" when the end was not waited for, else the status of the process.
    """
    blocks: tuple[Block, ...] = ()
    if not process_id:
        blocks = (*nothing_to_do(plan), *(f"  {line}" for line in (layout(plan), *plan.notes) if line))
    elif process is None:
        blocks = (planned_line(plan, process_id),)
    elif process.HasField("receipt"):
        blocks = receipt_blocks(process)
    names = (process_id,) if process_id else ()
    return Document("amoro.optimize/v1", optimize_body(plan, process_id, process), names, blocks)


def planned_line(plan: admin_pb.Plan, process_id: str) -> str:
    """That a process was planned, on one line."""
    return f"{process_id}  planned {plan.type} optimizing of {plan.table}, {many(plan.tasks, 'task')}: {plan.reason}"


#: The figures that clustering is for: how many files hold a value of a column.
_POINT_QUERIES = "files per point query"


def receipt_blocks(process: admin_pb.Process) -> tuple[Block, ...]:
    """What the process did, the row balance, and how to undo it, in five lines; the rest with `-o wide`."""
    receipt = process.receipt
    took, detail = format_duration(receipt.duration_ms), detail_lines(receipt)
    wide = {name for name, _ in detail if not name.startswith(_POINT_QUERIES)}
    if receipt.words:
        title, pairs = f"{process.process_id}  {process.type}: {receipt.words} in {took}", []
    else:
        partly = " a part of the plan as" if process.status == "partial" else ""
        title = f"{process.process_id}  committed{partly} snapshot {receipt.snapshot_id} in {took}"
        size = f"{format_bytes(receipt.bytes_before)} → {format_bytes(receipt.bytes_after)}"
        pairs = [
            ("files", f"{format_count(receipt.data_files_before)} → {format_count(receipt.data_files_after)}, {size}"),
            ("deletes", f"{format_count(receipt.delete_files_before)} → {format_count(receipt.delete_files_after)}"),
            ("rows", row_equation(receipt)),
        ]
        wide |= set() if receipt.delete_files_before or receipt.delete_files_after else {"deletes"}
    undoing = [("undo", f"amoro undo {process.process_id}")] if process.type in UNDOABLE else []
    table = Pairs((*pairs, *detail, *undoing), indent=2, wide=frozenset(wide))
    note = [f"  {disputed_deletes(receipt.disputed_deletes, 'show')}"] if receipt.disputed_deletes else []
    return (title, table, *note)
