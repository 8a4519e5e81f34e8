"""The client of the Python API: operations of a coordinator, with dataclasses as results."""

import os
import types
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import closing
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from functools import cache, wraps
from inspect import isfunction
from pathlib import Path
from typing import (
    Any,
    Literal,
    ParamSpec,
    Self,
    TypedDict,
    TypeVar,
    Union,
    Unpack,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from google.protobuf.message import Message

from amoro_cli.client import AdminClient
from amoro_cli.connection import Connection, Endpoint, resolve_place, running_endpoint
from amoro_cli.context import milliseconds
from amoro_cli.list_options import listed
from amoro_cli.output import Document
from amoro_cli.progress import ProgressReport
from amoro_cli.query_logs import learn_from
from amoro_cli.views.maintenance import maintain_document
from amoro_cli.views.plans import (
    learned_document,
    optimize_command,
    plan_document,
    suggested_document,
    verification_document,
)
from amoro_cli.views.processes import optimize_document, process_detail, receipt_blocks
from amoro_cli.views.services import catalog_detail, optimizer_detail
from amoro_cli.views.tables import table_detail
from amoro_cli.wait import (
    Deadline,
    failure_of,
    maintain_once,
    optimize_once,
    optimize_request,
    plan_request,
    verify_table,
    wait_for_end,
    with_tasks,
)
from amoro_core.api.results import (
    Catalog,
    Learned,
    Maintenance,
    Optimizer,
    Optimizing,
    Plan,
    Process,
    RenderedResult,
    Suggested,
    Table,
    Verification,
)
from amoro_core.errors import AmoroError, CoordinatorUnavailable, InvalidArgument, VerificationFailed
from amoro_core.model.paging import ALL, Window
from amoro_core.model.principals import Trust
from amoro_core.model.properties import parse_duration
from amoro_core.model.text_sanitizing import Secret
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.operations import READING

_Message = TypeVar("_Message")

_NONE = type(None)


def read(kind: type[_Message], message: Message, **more: object) -> _Message:
    """The dataclass filled from the message's fields of the same names, and from `more`.

    A time is read from the field in milliseconds (`created_at` from `created_ms`, `retry_at` from `retry_at_ms`). An
    optional field is None where the message has 0, "" or nothing.
    """
    names = {field.name for field in message.DESCRIPTOR.fields}
    values = dict(more)
    for name, hint in _hints(cast(Hashable, kind)).items():
        source = _source(name, names)
        if name not in more and source is not None:
            values[name] = _value(hint, message, source)
    return kind(**values)


@cache
def _hints(kind: Any) -> Mapping[str, Any]:
    hints = get_type_hints(kind)
    return {field.name: hints[field.name] for field in fields(kind)}


def _source(name: str, names: set[str]) -> str | None:
    return next((field for field in (name, f"{name}_ms", f"{name.removesuffix('_at')}_ms") if field in names), None)


def _value(hint: Any, message: Message, source: str) -> object:
    value = getattr(message, source)
    if get_origin(hint) in (Union, types.UnionType):
        (kind,) = (arg for arg in get_args(hint) if arg is not _NONE)
        if isinstance(value, Message):
            return read(kind, value) if message.HasField(source) else None
        return _plain(kind, value) if value else None
    if get_origin(hint) is tuple:
        kind = get_args(hint)[0]
        return tuple(read(kind, item) if isinstance(item, Message) else item for item in value)
    if get_origin(hint) is not None:
        return dict(value)
    return read(hint, value) if isinstance(value, Message) else _plain(hint, value)


def _plain(kind: Any, value: Any) -> object:
    return datetime.fromtimestamp(value / 1000, UTC) if kind is datetime else value


Parameters = ParamSpec("Parameters")
Answer = TypeVar("Answer")
Class = TypeVar("Class", bound=type)


def with_hints(function: Callable[Parameters, Answer]) -> Callable[Parameters, Answer]:
    """A decorator that adds the hint of an error to its traceback; hints name commands of the command line."""

    @wraps(function)
    def call(*given: Parameters.args, **named: Parameters.kwargs) -> Answer:
        try:
            return function(*given, **named)
        except AmoroError as error:
            error.hint = error.hint or error.remedy
            note = f"Hint: {error.hint}"
            if note not in getattr(error, "__notes__", ()):
                error.add_note(note)
            raise

    return call


def _all_with_hints(kind: Class) -> Class:
    """A class decorator: the same for all public methods."""
    for name, function in list(vars(kind).items()):
        if isfunction(function) and not name.startswith("_"):
            setattr(kind, name, with_hints(function))
    return kind


Kind = Literal["minor", "major", "full", "cluster"]
Duration = timedelta | str


class PlanOptions(TypedDict, total=False):
    """What is planned of a table; `columns` and what follows belong to the type "cluster"."""

    type: Kind | None  # None: what the table needs
    force: bool
    where: str  # an SQL condition that selects partitions
    columns: Sequence[str]
    strategy: str
    partitions: str
    full: bool


def _request(
    table: str,
    *,
    type: Kind | None = None,
    force: bool = False,
    where: str = "",
    columns: Sequence[str] = (),
    strategy: str = "",
    partitions: str = "",
    full: bool = False,
    schedule_only: bool = False,
) -> pb.OptimizeTableRequest:
    cluster = pb.ClusterOptions(
        columns=columns, strategy=strategy, partitions=partitions, full=full, schedule_only=schedule_only
    )
    request = optimize_request(type or "", force, where, cluster)
    request.table = table
    return request


Result = TypeVar("Result", bound=RenderedResult)


class Silent(ProgressReport):
    """A progress report that shows nothing."""

    pace = timedelta(seconds=10)

    def show(self, process: pb.Process) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Show nothing."""


@_all_with_hints
class Client:
    """A connection to a coordinator; close it after use. Every method raises errors of `amoro_core.errors`.

    Tables are named as on the command line: catalog.namespace.table. Durations are timedeltas or strings such as "10m".
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._admin = connection.client

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._admin.close()

    def tables(self, *, catalog: str = "", status: str = "", state: str = "") -> tuple[Table, ...]:
        """All tables, or those of a catalog, in a status or in a state."""
        request = pb.ListTablesRequest(catalog=catalog, status=status, state=state)
        return tuple(map(self._table, listed(self._admin, ALL, request).items))

    def table(self, name: str) -> Table:
        """The state that the coordinator keeps about a table."""
        return self._table(self._admin.GetTable(pb.GetTableRequest(table=name)))

    def enable(self, table: str) -> Table:
        """Let the coordinator optimize the table automatically."""
        return self._table(self._admin.SetTableEnabled(pb.SetTableEnabledRequest(table=table, enabled=True)))

    def disable(self, table: str) -> Table:
        """Stop the coordinator from optimizing the table."""
        return self._table(self._admin.SetTableEnabled(pb.SetTableEnabledRequest(table=table, enabled=False)))

    def plan(self, table: str, **options: Unpack[PlanOptions]) -> Plan:
        """What optimizing would rewrite now. Nothing is changed. The options are those of `PlanOptions`."""
        request = _request(table, **options)
        planned = self._admin.PlanTable(plan_request(table, request), timeout=READING.total_seconds())
        return self._plan(planned, request)

    def optimize(
        self,
        table: str,
        *,
        schedule_only: bool = False,
        wait: bool = True,
        timeout: Duration = "10m",
        report: ProgressReport | None = None,
        **options: Unpack[PlanOptions],
    ) -> Optimizing:
        """Optimize a table, or the partitions that `where` selects, once. The options are those of `PlanOptions`.

        `schedule_only` belongs to the type "cluster"; what is only scheduled waits for `start`.

        A failed process is raised as its error: Conflict when partly committed, CommitUnknown, ...

        Raises WaitTimeout when it has not ended in time; the process continues.
        """
        deadline = Deadline(duration(timeout))
        request = _request(table, schedule_only=schedule_only, **options)
        answer, process = optimize_once(self._connection, request, deadline, report or Silent(), wait=wait)
        self._raise_failure(process)
        document = optimize_document(answer.plan, answer.process_id, process)
        return Optimizing(
            table=answer.plan.table,
            outcome=str(document.body["outcome"]),
            plan=self._plan(answer.plan, request),
            process=None if process is None else self._process(process),
            blocks=document.blocks,
        )

    def suggest(self, table: str) -> Suggested:
        """Columns that the table may be clustered by, each with the reason, and what columns=auto chooses."""
        suggested_columns = self._admin.SuggestColumns(pb.SuggestColumnsRequest(table=table))
        return _rendered(Suggested, suggested_columns, suggested_document(suggested_columns))

    def learn(
        self, table: str, *, spark_event_log: Path | str | None = None, queries: Path | str | None = None
    ) -> Learned:
        """Learn which columns queries filter by, from Spark's event logs or a file of queries.

        A log that is learned again counts once; queries count as often as they come. Raises InvalidArgument, with file
        and line, for what is malformed; then nothing is kept.
        """
        logs, file = (None if path is None else Path(path) for path in (spark_event_log, queries))
        scans = learn_from(self._admin, table, logs, file)
        return _rendered(Learned, scans, learned_document(scans))

    def start(
        self, process_id: str, *, wait: bool = True, timeout: Duration = "10m", report: ProgressReport | None = None
    ) -> Process:
        """Start a process that was planned and stored; the process at its end, or as it is.

        Raises as `optimize`, and IllegalState for a process that waits for no start.
        """
        started = self._admin.StartProcess(pb.StartProcessRequest(process_id=process_id))
        if wait:
            started = wait_for_end(self._admin, started.process_id, Deadline(duration(timeout)), report or Silent())
            self._raise_failure(started)
        return self._process(started)

    def maintain(
        self,
        table: str,
        action: str,
        *,
        older_than: Duration | None = None,
        retain_last: int | None = None,
        snapshots: Sequence[int] = (),
        locations: Sequence[str] = (),
        confirm: str = "",
        dry_run: bool = False,
        wait: bool = True,
        timeout: Duration = "10m",
        report: ProgressReport | None = None,
    ) -> Maintenance:
        """Run an action such as "expire-snapshots" on a table once; a dry run only returns what would be done.

        `confirm` is the table's full name, to override a breaker. Raises like `optimize`, and Held for a process that
        waits for confirmation.
        """
        deadline = Deadline(duration(timeout))
        older = None if older_than is None else duration(older_than)
        request = pb.MaintainTableRequest(
            table=table,
            action=action,
            older_than_ms=milliseconds(older),
            retain_last=retain_last or 0,
            snapshot_ids=snapshots,
            locations=locations,
            confirm=confirm,
        )
        if dry_run:
            answer, process = self._admin.PreviewMaintenance(request, timeout=deadline.seconds), None
        else:
            answer, process = maintain_once(self._connection, request, deadline, report or Silent(), wait=wait)
        return self._maintenance(answer, process)

    def undo(
        self,
        process: str,
        *,
        dry_run: bool = False,
        wait: bool = True,
        timeout: Duration = "10m",
        report: ProgressReport | None = None,
    ) -> Maintenance:
        """Undo a process by a new commit; a dry run only returns whether it is possible, and what would change.

        Raises CannotUndo with the reason when it is not possible, ProcessNotFound, and like `optimize`.
        """
        deadline, request = Deadline(duration(timeout)), pb.UndoRequest(process_id=process)
        if dry_run:
            answer, done = self._admin.PreviewUndo(request, timeout=deadline.seconds), None
        else:
            answer, done = maintain_once(self._connection, request, deadline, report or Silent(), wait=wait)
        return self._maintenance(answer, done)

    def _maintenance(self, answer: pb.MaintainTableResponse, process: pb.Process | None) -> Maintenance:
        self._raise_failure(process)
        document = maintain_document(answer, process)
        return Maintenance(
            table=answer.table,
            action=answer.action,
            outcome=str(document.body["outcome"]),
            reason=answer.reason,
            held=answer.held,
            plan=document.body["plan"] or {},
            process=None if process is None else self._process(process),
            blocks=document.blocks,
        )

    def verify(
        self, table: str, *, before: int | None = None, after: int | None = None, timeout: Duration = "1h"
    ) -> Verification:
        """Read both sides of the last optimizing commit, or two snapshots, and compare their rows.

        Raises VerificationFailed, whose `verification` has the differences.
        """
        verdict = verify_table(self._admin, table, before, after, duration(timeout))
        result = _rendered(Verification, verdict, verification_document(verdict))
        if not result.sound:
            raise VerificationFailed(f"{result.table} did not pass the verification", verification=result)
        return result

    def processes(self, *, table: str = "", status: str = "", limit: int = 20) -> tuple[Process, ...]:
        """Processes, the newest first."""
        request = pb.ListProcessesRequest(table=table, status=status)
        return tuple(map(self._process, listed(self._admin, Window(limit), request).items))

    def process(self, process_id: str) -> Process:
        """One process with its tasks, by its id or six or more characters of its beginning or end."""
        return self._process(
            with_tasks(self._admin, self._admin.GetProcess(pb.GetProcessRequest(process_id=process_id)))
        )

    def wait(self, process_id: str, *, timeout: Duration = "10m") -> Process:
        """Wait for the process, and return it when it has ended. Raises like `optimize`."""
        process = wait_for_end(self._admin, process_id, Deadline(duration(timeout)), Silent())
        self._raise_failure(process)
        return self._process(process)

    def cancel(self, process_id: str) -> Process:
        """Cancel a running process before its commit."""
        cancelled = self._admin.CancelProcess(pb.CancelProcessRequest(process_id=process_id))
        return self._process(with_tasks(self._admin, cancelled))

    def catalogs(self) -> tuple[Catalog, ...]:
        """The known catalogs."""
        catalogs = listed(self._admin, ALL, pb.ListCatalogsRequest()).items
        return tuple(_rendered(Catalog, item, catalog_detail(item)) for item in catalogs)

    def optimizers(self) -> tuple[Optimizer, ...]:
        """The registered optimizers."""
        optimizers = listed(self._admin, ALL, pb.ListOptimizersRequest()).items
        return tuple(_rendered(Optimizer, item, optimizer_detail(item)) for item in optimizers)

    def _raise_failure(self, process: pb.Process | None) -> None:
        if process is not None and (failure := failure_of(process, self._connection.embedded)) is not None:
            raise failure

    def _plan(self, plan: pb.Plan, request: pb.OptimizeTableRequest) -> Plan:
        command = optimize_command(plan.table, request)
        explained = str(_rendered(Plan, plan, plan_document(plan, command, explain=True)))
        return _rendered(Plan, plan, plan_document(plan, command), _explained=explained)

    def _process(self, process: pb.Process) -> Process:
        result = _rendered(Process, process, process_detail(process))
        if result.receipt is None:
            return result
        return replace(result, receipt=replace(result.receipt, blocks=receipt_blocks(process)))

    def _table(self, table: pb.Table) -> Table:
        return _rendered(Table, table, table_detail(table))


def _rendered(kind: type[Result], message: Message, document: Document, **more: object) -> Result:
    return read(kind, message, blocks=document.blocks, **more)


@with_hints
def connect(
    address: str | None = None,
    token: str | None = None,
    *,
    home: Path | str | None = None,
    ca_file: Path | str | None = None,
) -> Client:
    """A client of the coordinator at the address, or of the one that runs on the state directory.

    Without a token: `AMORO_TOKEN`, else the state directory's. TLS is used with a CA file (or `AMORO_CA_FILE`), and
    with `grpcs://` before the address. Raises CoordinatorUnavailable, Untrusted, NotAllowed.
    """
    trust = Trust(None if ca_file is None else Path(ca_file))
    place = resolve_place(None if home is None else Path(home), None, address, None, os.environ, trust)
    endpoint = (
        Endpoint(place.address, Secret(token), place.trust)
        if token and place.address
        else running_endpoint(place, lasting=True)
    )
    if endpoint is None:
        raise CoordinatorUnavailable(
            f"no coordinator runs on {place.home}", hint="Start one with: amoro up. Or name the address of another."
        )
    client = AdminClient(Endpoint(endpoint.address, Secret(token) if token else endpoint.token, endpoint.trust))
    try:
        client.GetStatus(pb.GetStatusRequest())
    except BaseException:
        with closing(client):
            raise
    return Client(Connection(client, embedded=False))


def duration(value: Duration) -> timedelta:
    """The duration, given as a timedelta or a string. Raises InvalidArgument."""
    try:
        given = parse_duration(value) if isinstance(value, str) else value
    except ValueError as error:
        raise InvalidArgument(str(error)) from error
    if not isinstance(given, timedelta) or given < timedelta(0):
        raise InvalidArgument(f"{value!r} is not a duration", hint="Give a timedelta, or a text such as 30s or 10m.")
    return given
