"""Commands of tables and their blockers: amoro table."""

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.connection import Kind
from amoro_cli.context import (
    AnyTableArgument,
    OutputOption,
    Session,
    TableArgument,
    TablesArgument,
    duration_option,
    milliseconds,
    names_of,
)
from amoro_cli.list_options import (
    Arrangement,
    LimitOption,
    ListRange,
    after_option,
    columns_option,
    gather,
    listed,
    pages,
    sort_option,
    window,
)
from amoro_cli.multi_table import Outcome, each, failure_of_all, is_one, select
from amoro_cli.output import OutputFormat, write
from amoro_cli.progress import INTERVAL, IntervalOption, Look, Showing, WatchOption, show_list, show_watched
from amoro_cli.views.outcomes import selected_document
from amoro_cli.views.tables import (
    BLOCKERS,
    FILES,
    SNAPSHOTS,
    TABLES,
    blocker_detail,
    blocker_list,
    blocker_released,
    digest_document,
    properties_document,
    sort_key,
    table_detail,
    table_files,
    table_health,
    table_list,
    table_snapshots,
)
from amoro_core.model.paging import Window
from amoro_core.model.tables import BlockedOperation, OptimizingStatus
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.journal_pb2 import GetTableDigestRequest

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


def list_tables(
    session: Session,
    catalog: Annotated[
        str,
        typer.Option(help="Only tables of this catalog.", show_default=False, autocompletion=names_of(Kind.CATALOG)),
    ] = "",
    status: Annotated[
        OptimizingStatus | None,
        typer.Option(help="Only tables in this status.", case_sensitive=False, show_default=False),
    ] = None,
    group: Annotated[str, typer.Option(help="Only tables of this optimizer group.", show_default=False)] = "",
    namespace: Annotated[str, typer.Option(help="Only tables of this namespace.", show_default=False)] = "",
    text: Annotated[str, typer.Option(help="Only tables with this in their name.", show_default=False)] = "",
    enabled: Annotated[
        bool | None,
        typer.Option("--optimized/--not-optimized", help="Only tables that are optimized, or that are not."),
    ] = None,
    refusal: Annotated[
        str, typer.Option(metavar="WORD", help="Only tables that are refused for this.", show_default=False)
    ] = "",
    health_below: Annotated[
        int | None, typer.Option(help="Only evaluated tables with a lower score.", min=1, max=100, show_default=False)
    ] = None,
    limit: LimitOption = None,
    after: Annotated[str, after_option("CURSOR")] = "",
    sort_by: Annotated[str, sort_option(TABLES)] = "",
    columns: Annotated[str, columns_option(TABLES)] = "",
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the tables with their status and health."""
    wanted = pb.ListTablesRequest(
        catalog=catalog,
        status=status or "",
        group=group,
        namespace=namespace,
        text=text,
        enabled=enabled,
        refusal=refusal,
        health_below=health_below or 0,
    )
    some = wanted != pb.ListTablesRequest() or bool(after)
    key, direction = sort_key(sort_by)
    wanted.sort, wanted.order = key, direction
    arrangement = Arrangement("" if key else sort_by, columns)
    show_list(
        session,
        lambda client: _table_pages(client, wanted, window(limit, after)),
        lambda part: table_list(part, arrangement, of_some=some),
        Showing(output, watch, interval, is_whole=bool(arrangement.sort_by)),
    )


def show(
    session: Session,
    tables: TablesArgument,
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show tables: status, health, files, and who decides whether they are optimized."""
    found: list[Outcome[pb.Table]] = []

    def ask(client: "AdminClient") -> Look:
        if is_one(tables):
            return Look(table_detail(_get(client, tables[0])))
        found[:] = _each(client, tables, lambda table: _get(client, table))
        return Look(selected_document(found, detailed=True))

    show_watched(session, ask, output, watch, interval)
    _end(found)


def enable(session: Session, tables: TablesArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Let the coordinator optimize tables automatically, unless a table's own property forbids it."""
    _set_enabled(session, tables, True, output)


def disable(session: Session, tables: TablesArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Stop the coordinator from optimizing tables. The tables themselves are not touched."""
    _set_enabled(session, tables, False, output)


def changed(
    session: Session,
    tables: TablesArgument,
    hint: Annotated[str, typer.Option(help="What has changed, in words, for the coordinator's log.")] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Notify the coordinator of commits to tables: it refreshes them immediately instead of on schedule."""
    with session.connect() as connection:
        client = connection.client

        def changed_one(table: str) -> pb.Table:
            return client.TableChanged(pb.TableChangedRequest(table=table, hint=hint))

        if is_one(tables):
            write(table_detail(changed_one(tables[0])), output)
            return
        found = _each(client, tables, changed_one)
        write(selected_document(found, detailed=False), output)
    _end(found)


def properties(session: Session, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Show every property that controls the optimizing of a table, its value, and where it comes from."""
    with session.reading() as connection:
        write(
            properties_document(connection.client.GetTableProperties(pb.GetTablePropertiesRequest(table=table))), output
        )


def health(session: Session, table: TableArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Evaluate a table now and show the parts of its health score, and how fragmented it is. Nothing is planned."""
    with session.reading() as connection:
        write(table_health(connection.client.GetTableHealth(pb.GetTableHealthRequest(table=table))), output)


def sizes(
    session: Session,
    table: TableArgument,
    partitions: Annotated[int, typer.Option(help="How many partitions to show at most.", min=0, max=200)] = 10,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show how large a table's files are, and the partitions most in need, as its last evaluation found them.

    Nothing is read from the table. Kept are the 200 partitions most in need.
    """
    with session.reading() as connection:
        found = connection.client.GetTableDigest(GetTableDigestRequest(table=table))
        write(digest_document(found, partitions), output)


def files(
    session: Session,
    table: TableArgument,
    limit: Annotated[int, typer.Option(help="How many to list at most.", min=1, max=1_000_000)] = 100,
    after: Annotated[str, after_option("PATH")] = "",
    sort_by: Annotated[str, sort_option(FILES)] = "",
    columns: Annotated[str, columns_option(FILES)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the live data and delete files of a table, by partition."""
    with session.reading() as connection:
        client, request = connection.client, pb.ListTableFilesRequest(table=table)

        def ask(page: pb.ListTableFilesRequest) -> pb.ListTableFilesResponse:
            answer = client.ListTableFiles(page)
            request.snapshot_id = answer.snapshot_id  # further pages are of the same snapshot
            return answer

        first, found = gather(window(limit, after), ask, request, lambda answer: answer.files)
        write(table_files(table, first.snapshot_id, found, Arrangement(sort_by, columns)), output)


def snapshots(
    session: Session,
    table: TableArgument,
    limit: Annotated[int, typer.Option(help="How many to list at most, newest first.", min=1, max=1_000_000)] = 20,
    after: Annotated[str, after_option("SNAPSHOT")] = "",
    sort_by: Annotated[str, sort_option(SNAPSHOTS)] = "",
    columns: Annotated[str, columns_option(SNAPSHOTS)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the snapshots that a table still has, newest first, and which of them Amoro committed."""
    with session.reading() as connection:
        client, request = connection.client, pb.ListSnapshotsRequest(table=table)
        found = listed(window(limit, after), client.ListSnapshots, request, lambda answer: answer.snapshots)
        write(table_snapshots(table, found, Arrangement(sort_by, columns)), output)


def _set_enabled(session: Session, tables: list[str], enabled: bool, output: OutputFormat) -> None:
    with session.connect() as connection:
        client = connection.client

        def set_one(table: str) -> pb.Table:
            return client.SetTableEnabled(pb.SetTableEnabledRequest(table=table, enabled=enabled))

        if is_one(tables):
            write(table_detail(set_one(tables[0])), output)
            return
        found = _each(client, tables, set_one)
        write(selected_document(found, detailed=False), output)
    _end(found)


def _get(client: "AdminClient", table: str) -> pb.Table:
    return client.GetTable(pb.GetTableRequest(table=table))


def _table_pages(client: "AdminClient", wanted: pb.ListTablesRequest, window: Window) -> Iterator[ListRange[pb.Table]]:
    for _, part in pages(window, client.ListTables, wanted, lambda answer: answer.tables):
        yield part


def _each(client: "AdminClient", names: list[str], act: "Callable[[str], pb.Table]") -> "list[Outcome[pb.Table]]":
    meant, unlisted = select(client, names)
    return [*each(meant, act, lambda table: str(table.status)), *unlisted]


def _end(found: "list[Outcome[pb.Table]]") -> None:
    failure = failure_of_all(found)
    if failure is not None:
        raise failure


BlockerArgument = Annotated[
    str,
    typer.Argument(metavar="BLOCKER", help="Its id, or a unique prefix of six characters or more.", show_default=False),
]
HoldOption = Annotated[
    timedelta | None,
    duration_option("--for", help_="How long it lasts from now on, at most 1d; then it expires by itself."),
]


def block(
    session: Session,
    table: TableArgument,
    operations: Annotated[
        list[BlockedOperation] | None,
        typer.Option(
            "--operation",
            case_sensitive=False,
            help="What is kept off the table; may be repeated [default: optimize].",
            show_default=False,
        ),
    ] = None,
    hold: HoldOption = None,
    reason: Annotated[str, typer.Option("--reason", help="Shown to whoever is blocked.", show_default=False)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Block optimizing, or batch writers that ask, on a table for a while.

    It is refused while a process is active on the table (5), and while another blocker covers the same operation (5).
    """
    with session.connect() as connection:
        request = pb.BlockTableRequest(
            table=table, operations=operations or (), hold_ms=milliseconds(hold), reason=reason
        )
        write(blocker_detail(connection.client.BlockTable(request)), output)


def renew(
    session: Session, blocker: BlockerArgument, hold: HoldOption = None, output: OutputOption = OutputFormat.TABLE
) -> None:
    """Renew a blocker for as long as it was taken for, from now on. One that has expired is not found (3)."""
    with session.connect() as connection:
        request = pb.RenewBlockerRequest(blocker_id=blocker, hold_ms=milliseconds(hold))
        write(blocker_detail(connection.client.RenewBlocker(request)), output)


def unblock(session: Session, blocker: BlockerArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Release a blocker."""
    with session.connect() as connection:
        write(blocker_released(connection.client.ReleaseBlocker(pb.ReleaseBlockerRequest(blocker_id=blocker))), output)


def blockers(
    session: Session,
    table: AnyTableArgument = "",
    limit: LimitOption = None,
    after: Annotated[str, after_option("BLOCKER")] = "",
    sort_by: Annotated[str, sort_option(BLOCKERS)] = "",
    columns: Annotated[str, columns_option(BLOCKERS)] = "",
    watch: WatchOption = False,
    interval: IntervalOption = INTERVAL,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the active blockers."""

    def ask(client: "AdminClient") -> Look:
        request = pb.ListBlockersRequest(table=table)
        part = listed(window(limit, after), client.ListBlockers, request, lambda answer: answer.blockers)
        return Look(blocker_list(part, Arrangement(sort_by, columns)))

    show_watched(session, ask, output, watch, interval)
