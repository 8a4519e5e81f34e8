"""Documents of maintenance, trash, leases and snapshots."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from amoro_cli.list_options import Column, Listing, ListOptions, ListRange
from amoro_cli.output import Block, Document, Grid, Pairs, with_value
from amoro_cli.views.processes import receipt_blocks
from amoro_core.documents.formatting import format_bytes, format_count, format_time, many, short_id
from amoro_core.documents.json_documents import encode, encode_all, maintain_body
from amoro_core.model.principals import is_pattern
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2 as snapshots_pb

EXPIRY = "expire-snapshots"
#: Rows of a plan that are shown on a terminal; JSON has all.
_SHOWN = 20


def maintain_document(answer: pb.MaintainTableResponse, process: pb.Process | None) -> Document:
    """Schema amoro.maintain/v1: `table`, `action`, `outcome`, `reason`, `due_at`, `is_due`, `tasks`, `held`,
    `process_id`, `plan`, `process`.

    The outcome is "nothing_to_do", "due" of a dry run, "planned" when the end was not waited for, else the status of
    the process. `plan` is what would be done, or was planned: the items with their reasons.
    """
    body = maintain_body(answer, process)
    blocks = _blocks(answer, process, body["plan"])
    return Document("amoro.maintain/v1", body, (answer.process_id,) if answer.process_id else (), blocks)


def maintenance_document(table: str, done: Sequence[tuple[pb.MaintainTableResponse, pb.Process | None]]) -> Document:
    """Schema amoro.maintenance/v1: `table`, and in `actions` of each what amoro.maintain/v1 has."""
    bodies = [maintain_body(answer, process) for answer, process in done]
    pairs = zip(done, bodies, strict=True)
    blocks = [block for (answer, process), body in pairs for block in _blocks(answer, process, body["plan"])]
    names = tuple(answer.process_id for answer, _ in done if answer.process_id)
    nothing = () if done else (f"{table}: no action is due.",)
    return Document("amoro.maintenance/v1", {"table": table, "actions": bodies}, names, (*blocks, *nothing))


def _blocks(
    answer: pb.MaintainTableResponse, process: pb.Process | None, plan: Mapping[str, Any] | None
) -> tuple[Block, ...]:
    blocks: list[Block] = [f"{answer.table}  {answer.action}: {_maintained(answer)}"]
    if process is None:
        return (*blocks, *_plan_blocks(plan or {}))
    if process.HasField("receipt"):
        return (*receipt_blocks(process), *([f"  {process.status}: {process.failure}"] if process.failure else []))
    return (f"{process.process_id}  {process.type}: {process.status}", f"  {process.failure or process.reason}")


def _plan_blocks(plan: Mapping[str, Any]) -> tuple[Block, ...]:
    """The items of a plan, the first ones of each kind as a table, and figures in a line."""
    figures = [f"{name} {_cell(value)}" for name, value in plan.items() if not isinstance(value, list | dict)]
    blocks: list[Block] = [f"  {', '.join(figures)}"] if figures else []
    for name, items in plan.items():
        rows = [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []
        if not rows:
            continue
        titles = list(rows[0])
        cells = tuple(tuple(_cell(item.get(title)) for title in titles) for item in rows[:_SHOWN])
        blocks.append(Grid(tuple(title.upper().replace("_", " ") for title in titles), cells))
        if len(rows) > _SHOWN:
            blocks.append(f"... {format_count(len(rows) - _SHOWN)} more in {name}: see them all with -o json")
    return tuple(blocks)


def _cell(value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        return "-" if value is None else str(value)
    return format_count(value) if 0 <= value < 10**15 else str(value)


def _maintained(answer: pb.MaintainTableResponse) -> str:
    if answer.process_id:
        return f"planned as {answer.process_id}, {answer.reason}"
    if answer.is_due:
        hold = f"; it would be held: {answer.held}" if answer.held else ""
        return f"would be done: {answer.reason}{hold}"
    later = f"; next at {format_time(answer.due_ms)}" if answer.due_ms else ""
    return f"nothing to do: {answer.reason}{later}"


ACTIONS: Listing[pb.TableAction] = Listing(
    (
        Column("TABLE", lambda item: item.table, shown=False),
        Column("ACTION", lambda item: item.action),
        Column("ON", lambda item: "on" if item.is_on else "off"),
        Column("BY", lambda item: item.by or "-"),
        Column("LAST", lambda item: item.last_ms, format_time),
        Column("NEXT", lambda item: item.next_ms if item.is_on else -1, format_time),
        Column("STATE", lambda item: _state(item)),
        Column("REASON", lambda item: item.paused_for or (item.is_on and item.reason) or "-"),
    ),
    spare=("BY", "STATE"),
    elastic="REASON",
)
#: What is stored of the actions of several tables does not say why they are on.
_OF_SEVERAL: Listing[pb.TableAction] = Listing(
    tuple(replace(column, shown=column.title not in ("ON", "BY")) for column in ACTIONS.columns),
    spare=("REASON", "LAST"),
    elastic="TABLE",
)


def _state(item: pb.TableAction) -> str:
    if item.process_id:
        return f"{item.process_status} {item.process_id}"
    if item.paused_ms:
        return f"paused since {format_time(item.paused_ms)}"
    if item.failures:
        return f"failed {many(item.failures, 'time')}, again at {format_time(item.retry_ms)}"
    return "-"


def actions_document(answer: pb.ListActionsResponse, options: ListOptions) -> Document:
    """Schema amoro.actions/v1: `table`, `total`, and `actions`, each with whether it is on and why, and since when and
    why it is paused. The names are actions; of several tables, each with its table before it."""
    is_one = bool(answer.table) and not is_pattern(answer.table)
    listing = ACTIONS if is_one else _OF_SEVERAL
    items = listing.arranged(answer.actions, options.sort_by)
    names = tuple(item.action if is_one else f"{item.table} {item.action}" for item in items)
    if not items:
        return Document("amoro.actions/v1", encode(answer), names, ("No action was scheduled or run yet.",))
    paused = (
        f"{item.action} is paused since {format_time(item.paused_ms)}: {item.paused_for}. It resumes after a run that "
        f"succeeds, amoro table maintain {answer.table} --action {item.action}, or when its properties change."
        for item in items
        if item.paused_ms and is_one
    )
    more = max(0, answer.total - len(items))
    rest = (f"and {format_count(more)} more: name a table or a pattern",) if more else ()
    return Document("amoro.actions/v1", encode(answer), names, (listing.grid(items, options.columns), *rest, *paused))


#: Schema amoro.trash/v1: `trash`, by process, `total`, `next`. The names are ids of processes.
TRASH: Listing[pb.Trash] = Listing(
    (
        Column("PROCESS", lambda item: item.process_id, short_id),
        Column("TABLE", lambda item: item.table),
        Column("ACTION", lambda item: item.action),
        Column("FILES", lambda item: item.files, format_count, right=True),
        Column("BYTES", lambda item: item.bytes, format_bytes, right=True),
        Column("DELETED AT", lambda item: item.purge_ms, format_time),
    ),
    spare=("ACTION",),
    schema="amoro.trash/v1",
    name=lambda item: item.process_id,
    nothing="The trash is empty.",
)
_FILES: Listing[pb.CondemnedFile] = Listing(
    (
        Column("KIND", lambda item: item.kind),
        Column("BYTES", lambda item: item.size_bytes, format_bytes, right=True),
        Column("REASON", lambda item: item.reason),
        Column("STATUS", lambda item: item.status),
        Column("PATH", lambda item: item.moved_to or item.path),
    ),
    spare=("STATUS", "REASON"),
    elastic="PATH",
)
#: Schema amoro.leases/v1: `leases`, `total`, `next`. The names are ids.
LEASES: Listing[pb.Lease] = Listing(
    (
        Column("LEASE", lambda item: item.lease_id, short_id),
        Column("TABLE", lambda item: item.table),
        Column("SNAPSHOT", lambda item: item.snapshot_id),
        Column("SINCE", lambda item: "since" if item.since else "-"),
        Column("TAG", lambda item: item.tag or "-"),
        Column("HOLDER", lambda item: item.holder),
        Column("EXPIRES", lambda item: item.expires_ms, format_time),
    ),
    spare=("SINCE", "TAG"),
    elastic="HOLDER",
    schema="amoro.leases/v1",
    name=lambda item: item.lease_id,
    nothing="No snapshot is leased.",
)


def trash_detail(answer: pb.ShowTrashResponse, part: ListRange[pb.CondemnedFile]) -> Document:
    """Schema amoro.trashed/v1: `trash`, its `files` with their reasons, `next` and `total`. The names are paths."""
    trash = answer.trash
    deleting = f", {format_count(trash.deleting_files)} of them being deleted" if trash.deleting_files else ""
    pairs = (
        ("process", f"{trash.process_id} ({trash.action})"),
        ("table", trash.table),
        ("files", f"{format_count(trash.files)}, {format_bytes(trash.bytes)}{deleting}"),
        ("deleted at", format_time(trash.purge_ms)),
    )
    restore = f"To keep them: amoro trash restore {trash.process_id}"
    if trash.action == EXPIRY:
        restore += f"; to bring their snapshots back, too: amoro undo {trash.process_id}"
    blocks: list[Block] = [Pairs(pairs), _FILES.grid(part.items), *part.rest, restore]
    body = {**encode(answer), "files": encode_all(part.items), **part.keys}
    return Document("amoro.trashed/v1", body, tuple(file.path for file in part.items), tuple(blocks))


def trash_restored(trash: pb.Trash) -> Document:
    """Schema amoro.restored/v1: what was restored."""
    text = f"Restored {many(trash.files, 'file')} of {trash.table} ({format_bytes(trash.bytes)})."
    if trash.action == EXPIRY:
        text += f" Their snapshots do not come back with them; to bring these back: amoro undo {trash.process_id}"
    return Document("amoro.restored/v1", encode(trash), (trash.process_id,), (text,))


def lease_detail(lease: pb.Lease) -> Document:
    """Schema amoro.lease/v1: the fields of the lease."""
    pairs = with_value(
        ("lease", lease.lease_id),
        ("table", lease.table),
        ("snapshot", f"{lease.snapshot_id} and all newer ones" if lease.since else str(lease.snapshot_id)),
        ("tag", lease.tag),
        ("holder", lease.holder),
        ("expires", format_time(lease.expires_ms)),
    )
    hold_on = f"It expires by itself. To keep it, renew it in time: amoro lease renew {lease.lease_id}"
    return Document("amoro.lease/v1", encode(lease), (lease.lease_id,), (Pairs(pairs), hold_on))


def lease_released(lease: pb.Lease) -> Document:
    """Schema amoro.lease/v1: the fields of the released lease."""
    text = f"Lease {lease.lease_id} is released; snapshot {lease.snapshot_id} of {lease.table} may expire."
    return Document("amoro.lease/v1", encode(lease), (lease.lease_id,), (text,))


FATES: Listing[snapshots_pb.SnapshotFate] = Listing(
    (
        Column("SNAPSHOT", lambda item: item.snapshot_id),
        Column("COMMITTED", lambda item: item.committed_ms, format_time),
        Column("NEXT", lambda item: "expires" if item.goes else "stays"),
        Column("WHY", lambda item: item.reason),
    ),
    elastic="WHY",
)

_FIGURES: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("data files", "data_files", format_count),
    ("delete files", "delete_files", format_count),
    ("rows", "records", format_count),
    ("position deletes", "position_deletes", format_count),
    ("equality deletes", "equality_deletes", format_count),
    ("size", "bytes", format_bytes),
)


def comparison_document(answer: snapshots_pb.SnapshotComparison) -> Document:
    """Schema amoro.comparison/v1: `before` and `after` with their totals, and how one led to the other."""
    before, after = answer.before, answer.after
    rows = [("committed", format_time(before.committed_ms), format_time(after.committed_ms), "")]
    rows.append(("operation", before.operation, after.operation, ""))
    for title, name, write in _FIGURES:
        first, second = getattr(before.totals, name), getattr(after.totals, name)
        old, new = ("-" if value < 0 else write(value) for value in (first, second))
        sign = "+" if second > first else "-" if second < first else ""
        rows.append((title, old, new, "-" if "-" in (old, new) else f"{sign}{write(abs(second - first))}"))
    titles = ("", str(before.snapshot_id), str(after.snapshot_id), "DIFFERENCE")
    led = f"{many(answer.commits, 'commit')} between them, {format_count(answer.own_commits)} by Amoro"
    line = led if answer.is_ancestor else "The first snapshot is no ancestor of the second."
    blocks: tuple[Block, ...] = (Grid(titles, tuple(rows), frozenset(titles[1:])), line)
    return Document("amoro.comparison/v1", encode(answer), (str(before.snapshot_id), str(after.snapshot_id)), blocks)


def retention_document(answer: snapshots_pb.Retention, options: ListOptions) -> Document:
    """Schema amoro.retention/v1: `snapshots` and `refs` with their fates. The names are the snapshots that go."""
    going = [snapshot_fate for snapshot_fate in answer.snapshots if snapshot_fate.goes]
    snapshots = FATES.arranged(answer.snapshots, options.sort_by)
    blocks: list[Block] = [FATES.grid(snapshots, options.columns) if snapshots else "No snapshots."]
    blocks += [
        f"{'branch' if ref.branch else 'tag'} {ref.name} expires: {ref.reason}" for ref in answer.refs if ref.goes
    ]
    blocks.append(f"The next expiry would remove {many(len(going), 'snapshot')}; {answer.staying}")
    return Document("amoro.retention/v1", encode(answer), tuple(str(fate.snapshot_id) for fate in going), tuple(blocks))
