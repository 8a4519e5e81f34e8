"""Commands of pending deletions and leases: amoro trash, lease."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.context import (
    AnyTableArgument,
    OutputOption,
    Session,
    TableArgument,
    default,
    duration_option,
    milliseconds,
)
from amoro_cli.list_options import (
    Arrangement,
    LimitOption,
    after_option,
    columns_option,
    gather,
    listed,
    sort_option,
    window,
)
from amoro_cli.output import OutputFormat, tell, write
from amoro_cli.progress import progress_report
from amoro_cli.views.maintenance import (
    LEASES,
    TRASH,
    lease_detail,
    lease_list,
    lease_released,
    maintain_document,
    trash_detail,
    trash_list,
    trash_restored,
)
from amoro_cli.wait import Deadline, failure_of, maintain_once
from amoro_core.errors import InvalidArgument
from amoro_core.protocol import admin_pb2 as pb

ProcessArgument = Annotated[
    str,
    typer.Argument(metavar="PROCESS", help="Its id, or a unique prefix of six characters or more.", show_default=False),
]
_TIMEOUT = default("10m")
_EMPTYING = "empty-trash"


def list_(
    session: Session,
    table: AnyTableArgument = "",
    limit: LimitOption = None,
    after: Annotated[str, after_option("CURSOR")] = "",
    sort_by: Annotated[str, sort_option(TRASH)] = "",
    columns: Annotated[str, columns_option(TRASH)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the condemned files that are not deleted yet, by process."""
    with session.reading() as connection:
        client, request = connection.client, pb.ListTrashRequest(table=table)
        found = listed(window(limit, after), client.ListTrash, request, lambda answer: answer.trash)
        write(trash_list(found, Arrangement(sort_by, columns)), output)


def show(
    session: Session,
    process: ProcessArgument,
    limit: Annotated[int, typer.Option("--limit", min=1, max=1_000_000_000, help="Files to show at most.")] = 1000,
    after: Annotated[str, after_option("CURSOR")] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show the files that a process has condemned, each with its reason."""
    with session.reading() as connection:
        client, request = connection.client, pb.ShowTrashRequest(process_id=process)
        first, found = gather(window(limit, after), client.ShowTrash, request, lambda answer: answer.files)
        write(trash_detail(first, found), output)


def restore(session: Session, process: ProcessArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Restore the files that a process has condemned: they stay. Files being deleted can't be restored (5)."""
    with session.connect() as connection:
        write(trash_restored(connection.client.RestoreTrash(pb.RestoreTrashRequest(process_id=process))), output)


def empty(
    session: Session,
    table: TableArgument,
    now: Annotated[
        bool, typer.Option("--now", help="Delete everything condemned, without waiting for its time.")
    ] = False,
    confirm: Annotated[
        str, typer.Option("--confirm", help="With --now: the table's full name.", show_default=False)
    ] = "",
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the end and print the receipt.")] = False,
    timeout: Annotated[
        timedelta,
        duration_option("--timeout", help_="How long to wait at most, for the lock, a busy table and the end."),
    ] = _TIMEOUT,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Delete the condemned files of a table that are due. Each batch is checked once more against the table."""
    if now != bool(confirm):
        raise InvalidArgument(
            "--now and --confirm go together", hint=f"To delete everything condemned at once: --now --confirm {table}"
        )
    deadline = Deadline(timeout)
    with session.connect(timeout, lasting=True) as connection:
        if now:
            connection.client.HurryTrash(pb.HurryTrashRequest(table=table, confirm=confirm))
        wanted = pb.MaintainTableRequest(table=table, action=_EMPTYING)
        with progress_report() as report:
            answer, process = maintain_once(connection, wanted, deadline, report, wait=wait)
        write(maintain_document(answer, process), output)
        if process is None:
            if answer.process_id:
                tell(f"Follow it with: amoro process show {answer.process_id}")
            return
        failure = failure_of(process, connection.embedded)
        if failure is not None:
            raise failure


LeaseArgument = Annotated[str, typer.Argument(metavar="LEASE", help="Its id, or a unique prefix.", show_default=False)]
HoldOption = Annotated[
    timedelta | None, duration_option("--for", help_="How long it lasts from now on, at most 7d [default: 1d].")
]


def take(
    session: Session,
    table: TableArgument,
    snapshot: Annotated[
        int | None,
        typer.Option("--snapshot", help="Keep this snapshot and the chain from it to the head.", show_default=False),
    ] = None,
    since: Annotated[
        int | None, typer.Option("--since", help="Keep this snapshot and all newer ones.", show_default=False)
    ] = None,
    hold: HoldOption = None,
    holder: Annotated[str, typer.Option("--holder", help="Who needs it; shown.", show_default=False)] = "",
    as_tag: Annotated[
        bool, typer.Option("--as-tag", help="With --snapshot: also by a tag in the table, for other tools.")
    ] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Keep a snapshot from expiring for a while, such as for a reader that will return to it.

    Other tools that expire snapshots of the table do not know of it, unless it is taken as a tag.
    """
    if (snapshot is None) == (since is None):
        raise InvalidArgument("a lease needs either --snapshot or --since")
    snapshot_id = snapshot if snapshot is not None else since
    with session.connect() as connection:
        request = pb.TakeLeaseRequest(
            table=table,
            snapshot_id=snapshot_id or 0,
            since=since is not None,
            hold_ms=milliseconds(hold),
            holder=holder,
            as_tag=as_tag,
        )
        write(lease_detail(connection.client.TakeLease(request)), output)


def renew(
    session: Session, lease: LeaseArgument, hold: HoldOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Renew a lease and its tag, counted from now. An expired lease is not found (3): its snapshot may be gone."""
    with session.connect() as connection:
        request = pb.RenewLeaseRequest(lease_id=lease, hold_ms=milliseconds(hold))
        write(lease_detail(connection.client.RenewLease(request)), output)


def release(session: Session, lease: LeaseArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Release a lease, and its tag."""
    with session.connect() as connection:
        write(lease_released(connection.client.ReleaseLease(pb.ReleaseLeaseRequest(lease_id=lease))), output)


def list_leases(
    session: Session,
    table: AnyTableArgument = "",
    limit: LimitOption = None,
    after: Annotated[str, after_option("CURSOR")] = "",
    sort_by: Annotated[str, sort_option(LEASES)] = "",
    columns: Annotated[str, columns_option(LEASES)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the active leases."""
    with session.reading() as connection:
        client, request = connection.client, pb.ListLeasesRequest(table=table)
        found = listed(window(limit, after), client.ListLeases, request, lambda answer: answer.leases)
        write(lease_list(found, Arrangement(sort_by, columns)), output)
