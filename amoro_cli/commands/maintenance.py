"""Commands of maintenance: amoro table maintain, actions, compare, retention, upgrade; amoro undo, trash, lease."""

import json
import sys
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.connection import Kind
from amoro_cli.context import (
    TIMEOUT,
    AnyTableArgument,
    ProcessArgument,
    Session,
    TableArgument,
    TimeoutOption,
    WaitOption,
    argument,
    duration_option,
    id_argument,
    milliseconds,
    names_of,
    option,
)
from amoro_cli.list_options import ListOptions, gather, list_command, show_list
from amoro_cli.output import tell
from amoro_cli.progress import progress_report
from amoro_cli.views.maintenance import (
    ACTIONS,
    FATES,
    LEASES,
    TRASH,
    actions_document,
    comparison_document,
    lease_detail,
    lease_released,
    maintain_document,
    maintenance_document,
    retention_document,
    trash_detail,
    trash_restored,
)
from amoro_cli.views.services import upgrade_document
from amoro_cli.wait import Deadline, failure_of, finish, maintain_once
from amoro_core.errors import InvalidArgument
from amoro_core.model.maintenance import TAKEN_BY, turn
from amoro_core.model.paging import Window
from amoro_core.model.tables import OptimizingType
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import snapshots_pb2 as snapshots_pb

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


def maintain(
    session: Session,
    table: TableArgument,
    action: Annotated[
        str, option(metavar="NAMES", help="The actions, separated by commas [default: those that are due].")
    ] = "",
    older_than: Annotated[timedelta | None, duration_option(help_="Overrides the age that the properties set.")] = None,
    retain_last: Annotated[int | None, option(min=1, help="How many snapshots of a branch to keep.")] = None,
    snapshot: Annotated[list[int] | None, option(metavar="ID", help="Expire this snapshot; may be repeated.")] = None,
    location: Annotated[
        list[str] | None, option(metavar="PREFIX", help="Search this location too; may be repeated.")
    ] = None,
    file_list: Annotated[
        str, option(metavar="FILE", help="Use this inventory instead of listing: Parquet or CSV.")
    ] = "",
    confirm: Annotated[
        str, option(metavar="TABLE", help="The table's full name: delete although it is unusually much.")
    ] = "",
    wait: WaitOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be done.")] = False,
    timeout: TimeoutOption = TIMEOUT,
) -> None:
    """Run maintenance actions on a table once. amoro table actions lists them.

    An action runs whether or not the table's properties enable it. Without a running coordinator it runs in this
    process, which waits for the end. A process that would delete unusually much is held (6) until --confirm.

    Exit status: as for `amoro optimize`.
    """
    deadline = Deadline(timeout)
    names = [name.strip() for name in action.split(",")] if action else []
    if "" in names:
        raise InvalidArgument(f"--action {action!r} contains an empty name", hint="Separate actions by single commas.")
    given = {
        "--older-than": older_than,
        "--retain-last": retain_last,
        "--snapshot": snapshot,
        "--location": location,
        "--file-list": file_list,
    }
    if not names and (option := next((option for option, value in given.items() if value), "")):
        takers = " or ".join(sorted(TAKEN_BY[option]))
        raise InvalidArgument(f"{option} needs --action", hint=f"It is for {takers}: --action {takers.split()[0]}")
    with session.reading(lasting=True) if dry_run else session.connect(timeout, lasting=True) as connection:
        wanted = [
            pb.MaintainTableRequest(
                table=table,
                action=name,
                older_than_ms=milliseconds(older_than),
                retain_last=retain_last or 0,
                snapshot_ids=snapshot or (),
                locations=location or (),
                file_list=file_list,
                confirm=confirm,
            )
            for name in names or _due(connection.client, table, confirm)
        ]
        done: list[tuple[pb.MaintainTableResponse, pb.Process | None]] = []
        failure = None
        with progress_report() as report:
            for table_request in wanted:
                if dry_run:
                    preview = connection.client.PreviewMaintenance(table_request, timeout=deadline.seconds)
                    done.append((preview, None))
                    continue
                # The next action sees the table as this one leaves it.
                done.append(maintain_once(connection, table_request, deadline, report, wait=wait or len(wanted) > 1))
                process = done[-1][1]
                failure = failure_of(process, connection.embedded) if process is not None else None
                if failure is not None:
                    break
        single = len(wanted) == 1 and bool(names)
        session.write(maintain_document(*done[0]) if single else maintenance_document(table, done))
        for answer, process in done:
            if process is None and answer.process_id:
                tell(f"Follow it with: amoro process show {answer.process_id}")
        if failure is not None:
            raise failure


def _due(client: "AdminClient", table: str, confirm: str) -> list[str]:
    """The actions that are on and due on the table, in order.

    Raises InvalidArgument for a confirmation that does not name the table, though nothing may be due that it is for.
    """
    answer = client.ListActions(pb.ListActionsRequest(table=table))
    if confirm and confirm != answer.table:
        raise InvalidArgument(
            f"--confirm names {confirm!r}, and the table is {answer.table}",
            hint=f"Confirm it with: --confirm {answer.table}",
        )
    return sorted((action.action for action in answer.actions if action.is_due), key=turn)


@list_command(ACTIONS)
def actions(
    session: Session,
    options: ListOptions,
    table: Annotated[
        str,
        argument(
            metavar="TABLE",
            help="catalog.namespace.table, or a pattern such as 'shop.*'; all tables without it.",
            autocompletion=names_of(Kind.TABLE),
        ),
    ] = "",
) -> None:
    """List maintenance actions: last run, next run, state, reason.

    Of one table it lists all of them, each with whether it is on and why. Of several it lists those that were scheduled
    or run, as the coordinator last looked at them: what fails or is paused comes first, then the next due.
    """
    session.show(pb.ListActionsRequest(table=table), lambda answer: actions_document(answer, options))


def compare(
    session: Session,
    table: TableArgument,
    before: Annotated[int, argument(metavar="BEFORE", help="The id of a snapshot.")],
    after: Annotated[int, argument(metavar="AFTER", help="The id of another one.")],
) -> None:
    """Compare two snapshots of a table: files, rows and bytes. The figures are those of their summaries."""
    session.show(snapshots_pb.CompareSnapshotsRequest(table=table, before=before, after=after), comparison_document)


@list_command(FATES)
def retention(session: Session, options: ListOptions, table: TableArgument) -> None:
    """Show which snapshots expire next, and what keeps the others.

    See amoro table actions for whether expiry is on, and when it is due.
    """
    session.show(snapshots_pb.GetRetentionRequest(table=table), lambda answer: retention_document(answer, options))


def undo(
    session: Session,
    process: ProcessArgument,
    wait: WaitOption = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show whether it is possible and what it would change.")
    ] = False,
    timeout: TimeoutOption = TIMEOUT,
) -> None:
    """Undo a process by a new commit. What others have committed since is kept.

    Works for minor, major and full optimizing, data expiry, snapshot expiry, orphan cleaning, tags and statistics.
    If it is not possible, or no longer, it is refused with the reason (6) and nothing changes. Without a running
    coordinator it runs in this process, which waits for the end.

    Exit status: as for `amoro optimize`.
    """
    deadline, request = Deadline(timeout), pb.UndoRequest(process_id=process)
    if dry_run:
        with session.reading(lasting=True) as connection:
            answer = connection.client.PreviewUndo(request, timeout=deadline.seconds)
        session.write(maintain_document(answer, None))
        return
    with session.connect(timeout, lasting=True) as connection:
        with progress_report() as report:
            answer, done = maintain_once(connection, request, deadline, report, wait=wait)
        session.write(maintain_document(answer, done))
        if json.loads(answer.document or "{}").get("type") in tuple(OptimizingType):
            tell(f"Optimizing may do the same again. To prevent it: amoro table disable {answer.table}")
        finish(done, answer.process_id, connection.embedded)


_YES = ("y", "yes")


def upgrade(
    session: Session,
    table: TableArgument,
    format_version: Annotated[int, option(min=1, max=100, help="The format version to upgrade to: 3.")],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only check whether it is possible, and what it would mean.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Upgrade a table to format 3. This can't be undone, and only this command does it.

    Engines that don't know format 3 can no longer read or write the table. Rows get ids with the next commit. Other
    versions and tables that have format 3 already are refused (2), and so are unsupported tables (6).
    """
    with session.connect() as connection:
        request = snapshots_pb.UpgradeTableRequest(table=table, format_version=format_version, dry_run=True)
        checked = connection.client.UpgradeTable(request)
        if dry_run:
            session.write(upgrade_document(checked))
            return
        if not yes:
            _ask(checked)
        request.dry_run = False
        session.write(upgrade_document(connection.client.UpgradeTable(request)))


def _ask(upgrade: "snapshots_pb.TableUpgrade") -> None:
    """Tell what it means, and ask. Raises InvalidArgument unless the answer is yes."""
    if not sys.stdin.isatty():
        raise InvalidArgument(
            f"the upgrade of {upgrade.table} can't be undone, and there is no terminal to ask", hint="Add --yes."
        )
    for note in upgrade.notes:
        tell(note)
    # Not by typer, which writes to stdout, where the document goes.
    tell(f"Upgrade {upgrade.table} from format {upgrade.before} to {upgrade.after}? [y/N]")
    if sys.stdin.readline().strip().lower() not in _YES:
        raise InvalidArgument(
            f"{upgrade.table} was not upgraded: the answer was not yes", hint="Answer y, or add --yes."
        )


@list_command(TRASH, after="CURSOR")
def list_trash(session: Session, options: ListOptions, table: AnyTableArgument = "") -> None:
    """List the files that wait to be deleted, by process."""
    show_list(session, options, TRASH, pb.ListTrashRequest(table=table))


def show_trash(
    session: Session,
    process: ProcessArgument,
    limit: Annotated[int, typer.Option(min=1, max=1_000_000_000, help="Files to show at most.")] = 1000,
    after: Annotated[str, option(metavar="CURSOR", help="Only what follows this one in the list.")] = "",
) -> None:
    """Show the files that a process marked for deletion, and why."""
    with session.reading() as connection:
        first, part = gather(connection.client, Window(limit, after), pb.ShowTrashRequest(process_id=process))
    session.write(trash_detail(first, part))


def restore_trash(session: Session, process: ProcessArgument) -> None:
    """Keep the files that a process marked for deletion. Files that are being deleted can't be restored (5).

    Snapshots that have expired do not come back with their files: amoro undo brings them back.
    """
    session.change(pb.RestoreTrashRequest(process_id=process), trash_restored)


def empty_trash(
    session: Session,
    table: TableArgument,
    now: Annotated[
        bool, typer.Option("--now", help="Delete everything that is marked for deletion, also what is not due yet.")
    ] = False,
    confirm: Annotated[str, option(metavar="TABLE", help="With --now: the table's full name.")] = "",
    wait: WaitOption = False,
    timeout: TimeoutOption = TIMEOUT,
) -> None:
    """Delete a table's files whose time in the trash is over. A last check keeps what the table needs."""
    if now != bool(confirm):
        raise InvalidArgument(
            "--now and --confirm go together", hint=f"To delete everything that is marked: --now --confirm {table}"
        )
    deadline = Deadline(timeout)
    with session.connect(timeout, lasting=True) as connection:
        if now:
            connection.client.HurryTrash(pb.HurryTrashRequest(table=table, confirm=confirm))
        request = pb.MaintainTableRequest(table=table, action="empty-trash")
        with progress_report() as report:
            answer, process = maintain_once(connection, request, deadline, report, wait=wait)
        session.write(maintain_document(answer, process))
        finish(process, answer.process_id, connection.embedded)


LeaseArgument = Annotated[str, id_argument("LEASE")]
HoldOption = Annotated[
    timedelta | None, duration_option("--for", help_="How long it lasts from now on, at most 7d [default: 1d].")
]


def take_lease(
    session: Session,
    table: TableArgument,
    snapshot: Annotated[
        int | None, option(metavar="ID", help="Keep this snapshot and the chain from it to the head.")
    ] = None,
    since: Annotated[int | None, option(metavar="ID", help="Keep this snapshot and all newer ones.")] = None,
    hold: HoldOption = None,
    holder: Annotated[str, option(help="Who needs it; shown.")] = "",
    as_tag: Annotated[
        bool, typer.Option("--as-tag", help="With --snapshot: also by a tag in the table, for other tools.")
    ] = False,
) -> None:
    """Keep a snapshot from expiring for a while. It may be for a reader that will return to it.

    Other tools that expire snapshots of the table do not know of it, unless it is taken as a tag.
    """
    if (snapshot is None) == (since is None):
        raise InvalidArgument("a lease needs either --snapshot or --since")
    request = pb.TakeLeaseRequest(
        table=table,
        snapshot_id=snapshot or since or 0,
        since=since is not None,
        hold_ms=milliseconds(hold),
        holder=holder,
        as_tag=as_tag,
    )
    session.change(request, lease_detail)


def renew_lease(session: Session, lease: LeaseArgument, hold: HoldOption = None) -> None:
    """Renew a lease and its tag, counted from now. An expired lease is not found (3): its snapshot may be gone."""
    session.change(pb.RenewLeaseRequest(lease_id=lease, hold_ms=milliseconds(hold)), lease_detail)


def release_lease(session: Session, lease: LeaseArgument) -> None:
    """Release a lease, and its tag."""
    session.change(pb.ReleaseLeaseRequest(lease_id=lease), lease_released)


@list_command(LEASES, after="CURSOR")
def list_leases(session: Session, options: ListOptions, table: AnyTableArgument = "") -> None:
    """List the active leases."""
    show_list(session, options, LEASES, pb.ListLeasesRequest(table=table))
