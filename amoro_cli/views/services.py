"""Documents of catalogs, optimizers and their groups, queues, the state database, series and the findings of doctor."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import Any

from amoro_cli.connection import Finding, Package
from amoro_cli.list_options import Column, Listing, ListRange
from amoro_cli.output import Block, Document, Grid, Pairs
from amoro_core.documents.formatting import format_bytes, format_count, format_duration, format_time, many, short_id
from amoro_core.documents.json_documents import check_body, encode, encode_all, group_body
from amoro_core.model.group_config import EXTERNAL
from amoro_core.model.paging import Line
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import journal_pb2 as journal_pb
from amoro_core.protocol import monitoring_pb2 as monitoring
from amoro_core.protocol import queue_pb2 as queue_pb
from amoro_core.protocol import snapshots_pb2 as snapshots_pb

#: Schema amoro.catalogs/v1: `catalogs`, `total`, `next`.
CATALOGS: Listing[pb.Catalog] = Listing(
    (
        Column("CATALOG", lambda catalog: catalog.name),
        Column("FROM", lambda catalog: catalog.origin),
        Column("COMMITS", lambda catalog: _commits(catalog)),
        Column("TYPE", lambda catalog: catalog.properties.get("type", "-")),
        Column("URI", lambda catalog: catalog.properties.get("uri", "-")),
        Column("WAREHOUSE", lambda catalog: catalog.properties.get("warehouse", "-")),
    ),
    spare=("WAREHOUSE", "FROM"),
    elastic="URI",
    schema="amoro.catalogs/v1",
    name=lambda catalog: catalog.name,
    nothing="No catalogs. Add one with: amoro catalog add NAME key=value …, or in ~/.pyiceberg.yaml",
)
#: Schema amoro.optimizers/v1: `optimizers`, `total`, `next`.
OPTIMIZERS: Listing[pb.Optimizer] = Listing(
    (
        Column("OPTIMIZER", lambda item: item.optimizer_id, short_id),
        Column("GROUP", lambda item: item.group),
        Column("STATE", lambda item: _state(item)),
        Column("THREADS", lambda item: item.threads, right=True),
        Column("BUSY", lambda item: item.running_tasks, right=True),
        Column("MEMORY", lambda item: item.memory_bytes, format_bytes, right=True),
        Column("REGISTERED", lambda item: item.registered_ms, format_time),
        Column("LAST SEEN", lambda item: item.touched_ms, format_time),
        Column("LABELS", lambda item: ", ".join(f"{key}={label}" for key, label in sorted(item.labels.items())) or "-"),
    ),
    spare=("LABELS", "REGISTERED", "LAST SEEN", "MEMORY"),
    schema="amoro.optimizers/v1",
    name=lambda item: item.optimizer_id,
)
#: Schema amoro.listeners/v1: `listeners`, `total`, `next`.
LISTENERS: Listing[journal_pb.Listener] = Listing(
    (
        Column("LISTENER", lambda item: item.name),
        Column("TO", lambda item: item.target),
        Column("STATE", lambda item: item.state),
        Column("EVENT", lambda item: item.event_id, right=True),
        Column("BEHIND SINCE", lambda item: item.pending_ms, format_time),
        Column("LOST", lambda item: item.lost_events, right=True),
        Column("FAILURE", lambda item: item.failure or "-"),
    ),
    spare=("TO",),
    elastic="FAILURE",
    schema="amoro.listeners/v1",
    name=lambda item: item.name,
    nothing="No listeners. They are set with `listeners` in amoro.yaml.",
)


def listener_detail(item: journal_pb.Listener) -> Document:
    """Schema amoro.listener/v1: the fields of the listener."""
    return Document("amoro.listener/v1", encode(item), (item.name,), (f"Listener {item.name} gets events again.",))


def catalog_detail(catalog: pb.Catalog, discovery: str = "") -> Document:
    """Schema amoro.catalog/v1: the fields of the catalog. `discovery` says what is in one that was added."""
    pairs = (
        ("catalog", catalog.name),
        ("from", catalog.origin),
        ("commits", _commits(catalog)),
        *((f"property {key}", value) for key, value in sorted(catalog.properties.items())),
        *(("file " + file.name, _site(file)) for file in catalog.site_files),
        *(("allowed location", location) for location in catalog.allowed_locations),
    )
    observed = f"Its tables are only observed until they are enabled: amoro table enable TABLE, or '{catalog.name}.*'"
    blocks = (Pairs(pairs), *((discovery,) if discovery else ()), f"{observed} for all of them")
    return Document("amoro.catalog/v1", encode(catalog), (catalog.name,), blocks)


def applied_policies(answer: snapshots_pb.AppliedPolicies, dry_run: bool) -> Document:
    """Schema amoro.applied-policies/v1: `version`, `tables` with `changes`. The names are tables."""
    names = tuple(effect.table for effect in answer.tables)
    rows = tuple(
        (effect.table, change.key, change.before or "-", change.after or "-", effect.becomes)
        for effect in answer.tables
        for change in effect.changes
    )
    version = f"Version {answer.version} of the policies holds." if answer.version else "No policies hold."
    summary = f"{many(len(names), 'table')} {'would change' if dry_run else 'changed'}. {version}"
    grids = (Grid(("TABLE", "KEY", "BEFORE", "AFTER", "BECOMES"), rows),) if rows else ()
    return Document("amoro.applied-policies/v1", encode(answer), names, (*grids, summary))


def policies_document(answer: snapshots_pb.Policies) -> Document:
    """Schema amoro.policies/v1: `version`, `applied_at`, `applied_by`, `text`."""
    applied = f"# version {answer.version}, applied {format_time(answer.applied_ms)} by {answer.applied_by}"
    blocks = (applied, answer.text.rstrip()) if answer.version else ("No policies hold.",)
    return Document("amoro.policies/v1", encode(answer), (str(answer.version),), blocks)


def removed(noun: str, verb: str = "removed") -> Callable[[Any], Document]:
    """A view of schema amoro.removed/v1: `name`; of a catalog `tables`, the number removed with it."""

    def view(answer: Any) -> Document:
        text = f"{noun} {answer.name} is {verb}"
        tables = f"; {many(answer.tables, 'table')} forgotten, none touched" if noun == "Catalog" else ""
        return Document("amoro.removed/v1", encode(answer), (answer.name,), (f"{text}{tables}.",))

    return view


def namespace_detail(verb: str) -> Callable[[Any], Document]:
    """A view of schema amoro.namespace/v1."""

    def view(answer: Any) -> Document:
        text = f"Namespace {answer.namespace} {'is' if answer.is_done else 'would be'} {verb}."
        return Document("amoro.namespace/v1", encode(answer), (answer.namespace,), (text,))

    return view


def namespaces_document(answer: Any) -> Document:
    """Schema amoro.namespaces/v1: `namespaces`."""
    rows = tuple(
        (row.namespace, ", ".join(f"{k}={v}" for k, v in sorted(row.properties.items()))) for row in answer.namespaces
    )
    names = tuple(row[0] for row in rows)
    block = (
        Grid(("NAMESPACE", "PROPERTIES"), rows) if rows else "No namespaces. Create one with: amoro namespace create"
    )
    return Document("amoro.namespaces/v1", encode(answer), names, (block,), "namespaces")


def optimizer_detail(optimizer: pb.Optimizer) -> Document:
    """Schema amoro.optimizer/v1: the fields of the optimizer."""
    pairs = (
        ("optimizer", optimizer.optimizer_id),
        ("group", optimizer.group),
        ("state", _state(optimizer)),
        ("threads", f"{optimizer.threads}, {optimizer.running_tasks} busy"),
        ("memory", format_bytes(optimizer.memory_bytes)),
        ("registered", format_time(optimizer.registered_ms)),
        ("last seen", format_time(optimizer.touched_ms)),
        *((f"label {key}", value) for key, value in sorted(optimizer.labels.items())),
    )
    return Document("amoro.optimizer/v1", encode(optimizer), (optimizer.optimizer_id,), (Pairs(pairs),))


def optimizer_released(released: pb.ReleaseOptimizerResponse) -> Document:
    """Schema amoro.released/v1: `optimizer_id`, `tasks` that it held."""
    text = f"Optimizer {released.optimizer_id} is released; {many(released.tasks, 'task')} planned again."
    return Document("amoro.released/v1", encode(released), (released.optimizer_id,), (text,))


def instance_status(status: pb.InstanceStatus) -> Document:
    """Schema amoro.instance/v1: the fields of the instance, and `liveness` and `detail` from its container."""
    pairs = (
        ("instance", status.resource_id),
        ("group", status.group),
        ("container", status.container),
        ("state", f"{status.state} since {format_time(status.since_ms)}"),
        ("started", format_time(status.started_ms)),
        ("optimizer", status.optimizer_id or "-"),
        ("handle", status.handle or "-"),
        ("its container says", f"{status.liveness}: {status.detail}" if status.detail else status.liveness),
    )
    return Document("amoro.instance/v1", encode(status), (status.resource_id,), (Pairs(pairs),))


def instance_logs(logs: pb.InstanceLogs) -> Document:
    """Schema amoro.logs/v1: `resource_id`, `lines`."""
    nothing = "No output yet, or its container can't give it."
    return Document("amoro.logs/v1", encode(logs), (logs.resource_id,), tuple(logs.lines) or (nothing,))


def findings_document(findings: Sequence[Finding]) -> Document:
    """Schema amoro.findings/v1: `ok`, and `findings` with `name`, `ok`, `detail`, `fix`. The names are those not ok."""
    wrong = [finding for finding in findings if not finding.ok]
    body = {"ok": not wrong, "findings": [asdict(finding) for finding in findings]}
    grid = Grid(
        ("CHECK", "STATE", "DETAIL"),
        tuple((finding.name, "ok" if finding.ok else "not ok", finding.detail) for finding in findings),
        elastic="DETAIL",
    )
    fixes = tuple(f"To fix {finding.name}: {finding.fix}" for finding in wrong if finding.fix)
    return Document("amoro.findings/v1", body, tuple(finding.name for finding in wrong), (grid, *fixes))


def package_detail(package: Package) -> Document:
    """Schema amoro.package/v1: `path`, `size_bytes`, `python`, `has_interpreter`, `distributions` by name, version."""
    distributions = [{"name": name, "version": version} for name, version in package.distributions]
    body = {**asdict(package), "path": str(package.path), "distributions": distributions}
    needs = "nothing" if package.has_interpreter else f"python{package.python} on the path"
    pairs = (
        ("archive", str(package.path)),
        ("size", format_bytes(package.size_bytes)),
        ("python", package.python),
        ("executors need", needs),
        ("distributions", format_count(len(package.distributions))),
    )
    use = (
        "Use it with: amoro optimizer run --backend spark --master MASTER"
        f" --spark-conf spark.archives={package.path}#amoro --spark-conf spark.pyspark.python=./amoro/bin/python"
    )
    return Document("amoro.package/v1", body, (str(package.path),), (Pairs(pairs), use))


def _state(optimizer: pb.Optimizer) -> str:
    return "draining" if optimizer.draining else "active"


def _site(file: pb.SiteFile) -> str:
    keys = ", ".join(sorted(file.properties))
    return f"{format_bytes(file.bytes)}, gives {keys}" if keys else f"{format_bytes(file.bytes)}, sets nothing"


def _commits(catalog: pb.Catalog) -> str:
    if catalog.commits:
        return "yes"
    return f"no: {catalog.refusal}" if catalog.refusal else "no"


def state_document(facts: pb.StateFacts) -> Document:
    """Schema amoro.state/v1: file, sizes, `migrations` with `number`, `name`, `applied_at`, and the last backup."""
    last = facts.migrations[-1] if facts.migrations else None
    applied = f", since {format_time(last.applied_ms)}" if last is not None and last.applied_ms else ""
    leader = f"pid {facts.leader_pid} holds its lock; it was opened {many(facts.epoch, 'time')}"
    backup = f"{facts.backup_path}, {format_time(facts.backup_ms)}" if facts.backup_ms else "none that the audit knows"
    pairs = Pairs(
        (
            ("file", facts.path),
            ("size", f"{format_bytes(facts.bytes)}, and {format_bytes(facts.log_bytes)} of write-ahead log"),
            ("free", f"{format_bytes(facts.free_bytes)} on its disk"),
            ("schema", f"{last.number}, {last.name.replace('_', ' ')}{applied}" if last is not None else "none yet"),
            ("coordinator", leader if facts.leader_pid else "no coordinator answers here: this command read the file"),
            ("last backup", backup),
            ("versions", f"Python {facts.python}, SQLite {facts.sqlite}"),
        )
    )
    return Document("amoro.state/v1", encode(facts), (facts.path,), (pairs,))


def backup_document(backup: pb.BackupStateResponse) -> Document:
    """Schema amoro.backup/v1: `path`, `bytes`."""
    return Document(
        "amoro.backup/v1", encode(backup), (backup.path,), (f"{backup.path}  {format_bytes(backup.bytes)}",)
    )


def check_document(problems: Sequence[str]) -> Document:
    """Schema amoro.check/v1: `ok`, `problems`. The names are the problems."""
    body = check_body(problems)
    return Document("amoro.check/v1", body, tuple(problems), tuple(problems) or ("The state database is sound.",))


def status_document(status: pb.GetStatusResponse, conditions: Sequence[monitoring.Condition]) -> Document:
    """What runs, and what is wrong."""
    body = {**encode(status), "conditions": encode_all(conditions)}
    return Document("amoro.status/v1", body, tuple(item.name for item in conditions), (*_blocks(status, conditions),))


def _blocks(status: pb.GetStatusResponse, conditions: Sequence[monitoring.Condition]) -> Iterator[Block]:
    serves = status.role != "reading"
    runs = (f"at {status.address} since {format_time(status.started_ms)}, PID {status.pid}",)
    yield Pairs(
        (
            ("version", status.version),
            ("coordinator", *runs) if serves else ("coordinator", "none runs on this state directory"),
            ("tables", format_count(status.tables)),
            ("optimizers", format_count(status.optimizers)),
            *((("pages", status.http_address),) if status.http_address else ()),
            ("running processes", format_count(status.running_processes)),
        )
    )
    raised = [condition for condition in conditions if condition.raised]
    if raised:
        yield ""
        yield Grid(
            ("CONDITION", "SEVERITY", "SINCE", "WHAT"),
            tuple((alert.name, alert.severity, format_time(alert.since_ms), alert.text) for alert in raised),
            elastic="WHAT",
            spare=("SINCE",),
        )
        yield ""
        yield from dict.fromkeys(f"{condition.name}: {condition.remedy}" for condition in raised)
    elif serves and not status.failing_tables:
        yield "Nothing is wrong."
    if status.failing_tables:
        verb = "is" if status.failing_tables == 1 else "are"
        yield f"{many(status.failing_tables, 'table')} {verb} failing: amoro table list --state failing"
    waiting = [condition for condition in conditions if not condition.raised]
    if waiting:
        names = dict.fromkeys(condition.name for condition in waiting)
        yield f"Not for long enough to be reported: {', '.join(names)}"


def exported_document(paths: Sequence[str]) -> Document:
    """The files that were written."""
    return Document("amoro.exported/v1", {"files": list(paths)}, tuple(paths), tuple(paths))


def series_document(answer: journal_pb.GetSeriesResponse) -> Document:
    """Schema amoro.series/v1: `series` with their `points`, and `step_s`. The names are those of series."""
    points = [(point, series) for series in answer.series for point in series.points]
    points.sort(key=lambda item: item[0].from_ms)  # within a time in the order of the answer
    rows = tuple(_point(point, series) for point, series in points)
    step = f"one value for {format_duration(answer.step_s * 1000)}; a time without values is left out"
    grid = Grid(("FROM", "SERIES", "VALUE", "MIN", "MAX"), rows, frozenset({"VALUE", "MIN", "MAX"}))
    blocks: tuple[Block, ...] = (grid, step) if rows else ("No values in this time.",)
    return Document("amoro.series/v1", encode(answer), tuple(map(_name, answer.series)), blocks)


def _point(point: journal_pb.SeriesPoint, series: journal_pb.Series) -> tuple[str, ...]:
    value = point.sum if series.kind == "total" else point.sum / point.n
    numbers = (_text(number, series.unit) for number in (value, point.min, point.max))
    return (format_time(point.from_ms), _name(series), *numbers)


def _name(series: journal_pb.Series) -> str:
    return f"{series.name}/{series.label}" if series.label else series.name


def _text(value: float, unit: str) -> str:
    match unit:
        case "bytes":
            return format_bytes(round(value))
        case "seconds":
            return format_duration(round(value * 1000))
    return format_count(round(value)) if float(value).is_integer() else f"{value:.1f}"


def upgrade_document(upgrade: snapshots_pb.TableUpgrade) -> Document:
    """Schema amoro.upgrade/v1: the fields of the answer."""
    verb = "upgraded" if upgrade.is_done else "would be upgraded"
    blocks: list[Block] = [f"{upgrade.table}: {verb} from format {upgrade.before} to {upgrade.after}"]
    blocks += [f"  {note}" for note in upgrade.notes]
    return Document("amoro.upgrade/v1", encode(upgrade), (upgrade.table,), tuple(blocks))


#: Schema amoro.groups/v1: `groups` without the use of their tables and without instances; `total`, `next`.
GROUPS: Listing[pb.Group] = Listing(
    (
        Column("GROUP", lambda group: group.name),
        Column("POLICY", lambda group: group.scheduling_policy),
        Column("CONTAINER", lambda group: group.container),
        Column("OPTIMIZERS", lambda group: group.optimizers, right=True),
        Column("THREADS", lambda group: group.threads, right=True),
        Column("BUSY", lambda group: group.running_tasks, right=True),
        Column("TABLES", lambda group: group.tables, format_count, right=True),
    ),
    spare=("POLICY", "BUSY"),
    elastic="GROUP",
    schema="amoro.groups/v1",
    name=lambda group: group.name,
    nothing="No groups.",
    without=("uses", "instances"),
)
_INSTANCES: Listing[pb.Instance] = Listing(
    (
        Column("INSTANCE", lambda item: item.resource_id, short_id),
        Column("CONTAINER", lambda item: item.container),
        Column("STATE", lambda item: item.state),
        Column("STARTED", lambda item: item.started_ms, format_time),
        Column("OPTIMIZER", lambda item: item.optimizer_id or "-", short_id),
    ),
    spare=("STARTED", "CONTAINER"),
    elastic="OPTIMIZER",
)
#: Schema amoro.jobs/v1: `jobs`, `total`, `next`.
JOBS: Listing[pb.Job] = Listing(
    (
        Column("JOB", lambda item: item.resource_id, short_id),
        Column("CONTAINER", lambda item: item.container),
        Column("STATE", lambda item: item.state),
        Column("STARTED", lambda item: item.started_ms, format_time),
        Column("ENDED", lambda item: item.ended_ms, format_time),
        Column("CAUSE", lambda item: item.cause or "-"),
    ),
    spare=("CONTAINER",),
    elastic="CAUSE",
    schema="amoro.jobs/v1",
    name=lambda item: item.resource_id,
    nothing="Its container has started nothing yet.",
)
_USES: Listing[pb.GroupUse] = Listing(
    (
        Column("TABLE", lambda use: use.table),
        Column("QUOTA", lambda use: f"{use.quota:g}", right=True),
        Column("LIMIT", lambda use: use.limit, right=True),
        Column("BUSY", lambda use: use.running_tasks, right=True),
        Column("USED", lambda use: "no limit" if use.occupation < 0 else f"{use.occupation:.0%}", right=True),
    ),
    spare=("LIMIT", "BUSY"),
    elastic="TABLE",
)


def _value(value: float) -> str:
    return f"{value:,.1f}" if value else "-"


_PENDING: Listing[queue_pb.PendingTable] = Listing(
    (
        Column("GROUP", lambda item: item.group),
        Column("PLACE", lambda item: item.place, right=True),
        Column("TABLE", lambda item: item.table),
        Column("TYPE", lambda item: item.type or "-"),
        Column("SINCE", lambda item: item.since_ms, format_time),
        Column("POLICY", lambda item: item.policy),
        Column("KEY", lambda item: item.key),
        Column("CLASS", lambda item: item.priority, right=True),
        Column("VALUE", lambda item: item.value, _value, right=True),
        Column("HELD BACK", lambda item: item.held_back or "-"),
    ),
    spare=("TYPE", "VALUE", "CLASS", "POLICY", "SINCE"),
    elastic="TABLE",
)
_WAITING: Listing[queue_pb.WaitingProcess] = Listing(
    (
        Column("GROUP", lambda item: item.group),
        Column("PLACE", lambda item: item.place, right=True),
        Column("PROCESS", lambda item: item.process_id, short_id),
        Column("TABLE", lambda item: item.table),
        Column("WAITING", lambda item: item.waiting_tasks, format_count, right=True),
        Column("RUNNING", lambda item: f"{item.running_tasks}/{item.limit}", right=True),
        Column("SHARE", lambda item: f"{item.share:.0%}", right=True),
        Column("AHEAD", lambda item: f"{item.ahead_s:.0f} s", right=True),
        Column("CLASS", lambda item: item.priority, right=True),
        Column("VALUE", lambda item: item.value, _value, right=True),
    ),
    spare=("SHARE", "VALUE", "CLASS", "RUNNING"),
    elastic="TABLE",
)


def group_detail(group: pb.Group) -> Document:
    """Schema amoro.group/v1: the fields of the group; `occupation` is null for a table without limit."""
    pairs = (
        ("group", group.name),
        ("policy", group.scheduling_policy),
        ("container", group.container),
        *_instances_wanted(group),
        ("optimizers", str(group.optimizers)),
        ("threads", f"{group.threads}, {group.running_tasks} busy"),
        *((("waiting", group.no_optimizer),) if group.no_optimizer else ()),
        ("tables", format_count(group.tables)),
        *((f"property {key}", value) for key, value in sorted(group.properties.items())),
    )
    blocks: list[Block] = [Pairs(pairs)]
    if group.instances:
        blocks += ["", _INSTANCES.grid(group.instances, indent=2)]
    if group.uses:
        blocks += ["", _USES.grid(group.uses, indent=2)]
    return Document("amoro.group/v1", group_body(group), (group.name,), tuple(blocks))


def _instances_wanted(group: pb.Group) -> list[tuple[str, str]]:
    """The target number of instances, and why starts fail; nothing when optimizers are started externally."""
    if group.container == EXTERNAL and not group.instances:
        return []
    wanted = [("instances", f"{len(group.instances)} of {group.wanted_instances}")]
    if not group.failed_starts:
        return wanted
    then = "given up; scale it to try again" if group.gave_up_starting else "tried again"
    return [*wanted, ("failed starts", f"{group.failed_starts} in a row, {then}: {group.start_failure}")]


def group_queue(answer: queue_pb.ListQueueResponse, only: Line | None = None) -> Document:
    """Schema amoro.queue/v1: the first `pending` tables and `waiting` processes, and the total of each.

    The names are tables, then processes.
    """
    names = (*(item.table for item in answer.pending), *(item.process_id for item in answer.waiting))
    blocks: list[Block] = []
    if only is not Line.WAITING:
        title, nothing = "Tables that wait for a plan:", "Nothing waits for a plan."
        blocks += [title, _PENDING.grid(answer.pending)] if answer.pending else [nothing]
        blocks += ListRange(answer.pending, answer.pending_total).rest
    if only is None:
        blocks.append("")
    if only is not Line.PENDING:
        title, nothing = "Processes that wait for threads:", "Nothing waits for threads."
        blocks += [title, _WAITING.grid(answer.waiting)] if answer.waiting else [nothing]
        blocks += ListRange(answer.waiting, answer.waiting_total).rest
    return Document("amoro.queue/v1", encode(answer), names, tuple(blocks))
