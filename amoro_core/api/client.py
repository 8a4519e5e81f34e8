"""A client of a coordinator."""

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeVar

from google.protobuf.message import Message

from amoro_cli.client import AdminClient
from amoro_cli.connection import Connection, resolve_place, running_endpoint
from amoro_cli.launcher import Endpoint
from amoro_cli.ordering import AS_CONFIGURED, Ordering
from amoro_cli.output import Document
from amoro_cli.progress import ProgressReport
from amoro_cli.reports import learn_from
from amoro_cli.views.clustering import learned_document, suggested_document
from amoro_cli.views.maintaining import maintain_document
from amoro_cli.views.plans import optimize_command, plan_document
from amoro_cli.views.processes import optimize_document, process_detail, receipt_blocks
from amoro_cli.views.services import catalog_detail, optimizer_detail
from amoro_cli.views.tables import table_detail
from amoro_cli.views.verification import verification_document
from amoro_cli.waiting import Deadline, failure_of, maintain_once, optimize_once, undo_once, wait_for_end
from amoro_cli.wanted import Wanted
from amoro_core.api.reading import read
from amoro_core.api.results import (
    Catalog,
    Learned,
    Maintenance,
    Optimizer,
    Optimizing,
    Plan,
    Process,
    Suggested,
    Table,
    Verification,
)
from amoro_core.api.shown import Shown
from amoro_core.api.voices import CLIENT, Voice, methods_told, told_in
from amoro_core.errors import CoordinatorUnavailable, InvalidArgument, VerificationFailed
from amoro_core.model.paging import Window
from amoro_core.model.quantities import parse_duration
from amoro_core.model.secrets import Secret
from amoro_core.model.trust import Trust
from amoro_core.protocol import admin_pb2 as pb

Kind = Literal["minor", "major", "full", "cluster"]
Duration = timedelta | str
Result = TypeVar("Result", bound=Shown)


class Silent:
    """A progress report that shows nothing."""

    pace = timedelta(seconds=10)

    def show(self, process: pb.Process) -> None:
        """Show nothing."""

    def note(self, text: str) -> None:
        """Say nothing."""

    def remark(self, waiting: str) -> None:
        """Say nothing."""


@methods_told
class Client:
    """A connection to a coordinator; close it after use. Every method raises errors of `amoro_core.errors`.

    Tables are named as on the command line: catalog.namespace.table. Durations are timedeltas or strings such as "10m".
    """

    def __init__(self, connection: Connection, voice: Voice = CLIENT) -> None:
        self.voice = voice  # of hints
        self._connection = connection
        self._admin = connection.client

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the connection."""
        self._admin.close()

    def tables(self, *, catalog: str = "", status: str = "") -> tuple[Table, ...]:
        """All tables, or those of a catalog or in a status."""
        return tuple(self._table(item) for item in self._admin.list_tables(catalog, status).items)

    def table(self, name: str) -> Table:
        """The state that the coordinator keeps about a table."""
        return self._table(self._admin.get_table(name))

    def enable(self, table: str) -> Table:
        """Let the coordinator optimize the table automatically."""
        return self._table(self._admin.set_table_enabled(table, True))

    def disable(self, table: str) -> Table:
        """Stop the coordinator from optimizing the table."""
        return self._table(self._admin.set_table_enabled(table, False))

    def plan(
        self,
        table: str,
        *,
        type: Kind | None = None,
        force: bool = False,
        where: str = "",
        columns: Sequence[str] = (),
        strategy: str = "",
        partitions: str = "",
        full: bool = False,
    ) -> Plan:
        """What optimizing would rewrite now. Nothing is changed. `where` selects partitions by an SQL condition.

        `columns` and what follows belong to the type "cluster".
        """
        ordering = Ordering(tuple(columns), strategy, partitions, full)
        planned = self._admin.plan_table(table, type or "", force, where, ordering=ordering)
        return self._plan(planned, type, force, where, ordering)

    def optimize(
        self,
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
        wait: bool = True,
        timeout: Duration = "10m",
        report: ProgressReport | None = None,
    ) -> Optimizing:
        """Optimize a table, or the partitions that `where` selects, once.

        `columns` to `schedule_only` belong to the type "cluster"; what is only scheduled waits for `start`.

        A failed process is raised as its error: Conflict when partly committed, CommitUnknown, ...

        Raises WaitTimeout when it has not ended in time; the process continues.
        """
        deadline, ordering = (
            Deadline(duration(timeout)),
            Ordering(tuple(columns), strategy, partitions, full, schedule_only),
        )
        answer, process = optimize_once(
            self._connection,
            table,
            type or "",
            force,
            deadline,
            report or Silent(),
            wait=wait,
            where=where,
            ordering=ordering,
        )
        if process is not None and (failure := failure_of(process, self._connection.embedded)) is not None:
            raise failure
        document = optimize_document(answer.plan, answer.process_id, process)
        return Optimizing(
            table=answer.plan.table,
            outcome=str(document.body["outcome"]),
            plan=self._plan(answer.plan, type, force, where, ordering),
            process=None if process is None else self._process(process),
            blocks=self.voice.blocks(document.blocks),
        )

    def suggest(self, table: str) -> Suggested:
        """Columns that the table may be clustered by, each with the reason, and what columns=auto chooses."""
        found = self._admin.suggest_columns(table)
        return self._shown(Suggested, found, suggested_document(found))

    def learn(
        self, table: str, *, spark_event_log: Path | str | None = None, queries: Path | str | None = None
    ) -> Learned:
        """Learn which columns queries filter by, from Spark's event logs or a file of queries.

        A log that is learned again counts once; queries count as often as they come. Raises InvalidArgument, with file
        and line, for what is malformed; then nothing is kept.
        """
        logs, file = (None if one is None else Path(one) for one in (spark_event_log, queries))
        found = learn_from(self._admin, table, logs, file)
        return self._shown(Learned, found, learned_document(found))

    def start(
        self,
        process_id: str,
        *,
        wait: bool = True,
        timeout: Duration = "10m",
        report: ProgressReport | None = None,
    ) -> Process:
        """Start a process that was planned and stored; the process at its end, or as it is.

        Raises as `optimize`, and IllegalState for a process that waits for no start.
        """
        started = self._admin.start_process(process_id)
        if wait:
            started = wait_for_end(self._admin, started.process_id, Deadline(duration(timeout)), report or Silent())
            if (failure := failure_of(started, self._connection.embedded)) is not None:
                raise failure
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
        wanted = Wanted(table, action, older, retain_last, tuple(snapshots), tuple(locations), "", confirm)
        if dry_run:
            answer, process = self._admin.preview_maintenance(wanted, deadline.left), None
        else:
            answer, process = maintain_once(self._connection, wanted, deadline, report or Silent(), wait=wait)
        if process is not None and (failure := failure_of(process, self._connection.embedded)) is not None:
            raise failure
        return self._maintained(answer, process)

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
        deadline = Deadline(duration(timeout))
        if dry_run:
            answer, done = self._admin.preview_undo(process, deadline.left), None
        else:
            answer, done = undo_once(self._connection, process, deadline, report or Silent(), wait=wait)
        if done is not None and (failure := failure_of(done, self._connection.embedded)) is not None:
            raise failure
        return self._maintained(answer, done)

    def _maintained(self, answer: pb.MaintainTableResponse, process: pb.Process | None) -> Maintenance:
        document = maintain_document(answer, process)
        return Maintenance(
            table=answer.table,
            action=answer.action,
            outcome=str(document.body["outcome"]),
            reason=answer.reason,
            held=answer.held,
            plan=document.body["plan"] or {},
            process=None if process is None else self._process(process),
            blocks=self.voice.blocks(document.blocks),
        )

    def verify(
        self, table: str, *, before: int | None = None, after: int | None = None, timeout: Duration = "1h"
    ) -> Verification:
        """Read both sides of the last optimizing commit, or two snapshots, and compare their rows.

        Raises VerificationFailed, whose `verification` has the differences.
        """
        found = self._admin.verify_table(table, before or 0, after or 0, duration(timeout))
        result = self._shown(Verification, found, verification_document(found))
        if not result.sound:
            raise VerificationFailed(f"{result.table} did not pass the verification", verification=result)
        return result

    def processes(self, *, table: str = "", status: str = "", limit: int = 20) -> tuple[Process, ...]:
        """Processes, the newest first."""
        return tuple(self._process(item) for item in self._admin.list_processes(table, status, Window(limit)).items)

    def process(self, process_id: str) -> Process:
        """One process with its tasks, by its id or a unique prefix of six characters or more."""
        return self._process(self._admin.with_tasks(self._admin.get_process(process_id)))

    def wait(self, process_id: str, *, timeout: Duration = "10m") -> Process:
        """Wait for the process, and return it when it has ended. Raises like `optimize`."""
        process = wait_for_end(self._admin, process_id, Deadline(duration(timeout)), Silent())
        if (failure := failure_of(process, self._connection.embedded)) is not None:
            raise failure
        return self._process(process)

    def cancel(self, process_id: str) -> Process:
        """Cancel a running process before its commit."""
        return self._process(self._admin.with_tasks(self._admin.cancel_process(process_id)))

    def catalogs(self) -> tuple[Catalog, ...]:
        """The known catalogs."""
        found = self._admin.list_catalogs().items
        return tuple(self._shown(Catalog, item, catalog_detail(item)) for item in found)

    def optimizers(self) -> tuple[Optimizer, ...]:
        """The registered optimizers."""
        found = self._admin.list_optimizers().items
        return tuple(self._shown(Optimizer, item, optimizer_detail(item)) for item in found)

    def _plan(
        self, plan: pb.Plan, type_: Kind | None, force: bool, where: str, ordering: Ordering = AS_CONFIGURED
    ) -> Plan:
        command = optimize_command(plan.table, type_ or "", force, where, ordering)
        explained = str(self._shown(Plan, plan, plan_document(plan, command, explain=True)))
        return self._shown(Plan, plan, plan_document(plan, command), _explained=explained)

    def _process(self, process: pb.Process) -> Process:
        made = self._shown(Process, process, process_detail(process))
        if made.receipt is None:
            return made
        return replace(made, receipt=replace(made.receipt, blocks=receipt_blocks(process)))

    def _table(self, table: pb.Table) -> Table:
        return self._shown(Table, table, table_detail(table))

    def _shown(self, kind: type[Result], message: Message, document: Document, **more: object) -> Result:
        return read(kind, message, blocks=self.voice.blocks(document.blocks), **more)


@told_in(CLIENT)
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
        client.get_status()
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
