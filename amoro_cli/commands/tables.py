"""Commands of tables and their blockers: amoro table."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from amoro_cli.commands.catalogs import DryRunOption, PropertyOption, parse_properties
from amoro_cli.connection import Kind
from amoro_cli.context import (
    AnyTableArgument,
    Session,
    TableArgument,
    TablesArgument,
    argument,
    duration_option,
    id_argument,
    milliseconds,
    names_of,
    option,
)
from amoro_cli.list_options import ListOptions, gather, list_command, listed, show_list
from amoro_cli.multi_table import Outcome, is_one, raise_worst, select, tried
from amoro_cli.progress import INTERVAL, IntervalOption, Look, WatchOption, show_watched
from amoro_cli.views.outcomes import selected_document
from amoro_cli.views.tables import (
    BLOCKERS,
    FILES,
    SNAPSHOTS,
    TABLES,
    blocker_detail,
    blocker_released,
    changed_properties,
    digest_document,
    entry_detail,
    properties_document,
    sort_key,
    table_detail,
    table_health,
)
from amoro_core.model.tables import BlockedOperation, OptimizingStatus, TableState
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.journal_pb2 import GetTableDigestRequest
from amoro_core.protocol.snapshots_pb2 import (
    CreateTableRequest,
    DropTableRequest,
    RenameTableRequest,
    SetTablePropertiesRequest,
)

if TYPE_CHECKING:
    from amoro_cli.client import AdminClient


@list_command(TABLES, after="CURSOR", watch=True)
def list_tables(
    session: Session,
    options: ListOptions,
    catalog: Annotated[str, option(help="Only tables of this catalog.", autocompletion=names_of(Kind.CATALOG))] = "",
    state: Annotated[TableState | None, option(help="Only tables in this state.")] = None,
    status: Annotated[OptimizingStatus | None, option(help="Only tables in this status of Amoro's.")] = None,
    group: Annotated[str, option(help="Only tables of this optimizer group.")] = "",
    namespace: Annotated[str, option(help="Only tables of this namespace.")] = "",
    text: Annotated[str, option(help="Only tables with this in their name.")] = "",
    enabled: Annotated[
        bool | None,
        typer.Option("--optimized/--not-optimized", help="Only tables that are optimized, or that are not."),
    ] = None,
    refusal: Annotated[str, option(metavar="WORD", help="Only tables refused for this, such as location.")] = "",
    health_below: Annotated[
        int | None, option(help="Only evaluated tables with a lower score.", min=1, max=100)
    ] = None,
) -> None:
    """List the tables with their state, small files and deletes. Those that optimizing saves most files come first."""
    request = pb.ListTablesRequest(
        catalog=catalog,
        state=state or "",
        status=status or "",
        group=group,
        namespace=namespace,
        text=text,
        enabled=enabled,
        refusal=refusal,
        health_below=health_below or 0,
    )
    is_filtered = request != pb.ListTablesRequest() or bool(options.after)
    nothing = "None of the known tables matches." if is_filtered else ""
    if options.sort_by or "." not in options.after:  # a name is a place in the list by name
        request.sort, request.order = sort_key(options.sort_by)
    if request.sort:
        options = replace(options, sort_by="")
    show_list(session, options, TABLES, request, nothing)


def create(
    session: Session,
    table: TableArgument,
    columns: Annotated[
        list[str], argument(metavar="COLUMN...", help="Its columns: name and type, such as 'id long not null'.")
    ],
    partition: Annotated[
        list[str] | None, option(metavar="TRANSFORM", help="Such as day(at), bucket(16, id), region; may be repeated.")
    ] = None,
    location: Annotated[str, option(metavar="URI", help="Its place [default: below its namespace's].")] = "",
    properties: PropertyOption = None,
) -> None:
    """Create a table in an internal catalog."""
    request = CreateTableRequest(
        table=table,
        columns=columns,
        partition=partition or (),
        location=location,
        properties=parse_properties(properties or ()),
    )
    session.change(request, entry_detail("created"))


def rename(
    session: Session,
    table: TableArgument,
    to: Annotated[str, argument(metavar="NAME", help="Its new name, in the same catalog.")],
) -> None:
    """Give a table of an internal catalog another name."""
    session.change(RenameTableRequest(table=table, to=to), entry_detail("renamed"))


def drop(session: Session, table: TableArgument, dry_run: DryRunOption = False) -> None:
    """Drop a table of an internal catalog; its files stay."""
    session.change(DropTableRequest(table=table, dry_run=dry_run), entry_detail("dropped"))


def show(
    session: Session, tables: TablesArgument, watch: WatchOption = False, interval: IntervalOption = INTERVAL
) -> None:
    """Show tables: state, files, whether and why they are optimized."""
    outcomes: list[Outcome[pb.Table]] = []

    def get(client: "AdminClient", table: str) -> pb.Table:
        return client.GetTable(pb.GetTableRequest(table=table))

    def ask(client: "AdminClient") -> Look:
        if is_one(tables):
            return Look(table_detail(get(client, tables[0])))
        outcomes[:] = _each(client, tables, get)
        return Look(selected_document(outcomes, detailed=True))

    show_watched(session, ask, watch, interval)
    raise_worst(outcomes)


def enable(session: Session, tables: TablesArgument) -> None:
    """Let the coordinator optimize tables automatically. A table's own property may forbid it."""
    _change(session, tables, pb.SetTableEnabledRequest(enabled=True))


def disable(session: Session, tables: TablesArgument) -> None:
    """Stop the coordinator from optimizing tables. The tables themselves are not touched."""
    _change(session, tables, pb.SetTableEnabledRequest(enabled=False))


def changed(
    session: Session,
    tables: TablesArgument,
    hint: Annotated[str, typer.Option(help="What has changed, in words, for the coordinator's log.")] = "",
) -> None:
    """Notify the coordinator of commits to tables. It refreshes them immediately instead of on schedule."""
    _change(session, tables, pb.TableChangedRequest(hint=hint))


def _change(session: Session, tables: list[str], request: pb.SetTableEnabledRequest | pb.TableChangedRequest) -> None:
    def change(client: "AdminClient", table: str) -> pb.Table:
        request.table = table
        answer: pb.Table = client.answer(request)
        return answer

    with session.connect() as connection:
        if is_one(tables):
            session.write(table_detail(change(connection.client, tables[0])))
            return
        outcomes = _each(connection.client, tables, change)
        session.write(selected_document(outcomes, detailed=False))
    raise_worst(outcomes)


def _each(
    client: "AdminClient", names: list[str], act: "Callable[[AdminClient, str], pb.Table]"
) -> list[Outcome[pb.Table]]:
    """The outcome for each selected table; an error ends only its own table."""
    selected, unlisted = select(client, names)
    return [
        *(tried(table, lambda table: act(client, table), lambda answer: str(answer.status)) for table in selected),
        *unlisted,
    ]


def properties(session: Session, table: TableArgument) -> None:
    """Show the properties that control the optimizing of a table. Each has its value, and where that comes from."""
    session.show(pb.GetTablePropertiesRequest(table=table), properties_document)


def set_properties(
    session: Session,
    table: TableArgument,
    changes: Annotated[
        list[str], argument(metavar="KEY=VALUE|KEY-", help="Properties to set, and with a minus at the end to remove.")
    ],
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only check them, and show what would change.")] = False,
) -> None:
    """Set properties of a table, or remove them, by one commit. All engines see them.

    Values of known properties are checked. Properties that Iceberg reserves, and those that move or share the table's
    files, are refused (2).
    """
    removed = [text[:-1] for text in changes if "=" not in text and text.endswith("-")]
    wanted = parse_properties([text for text in changes if "=" in text or not text.endswith("-")])
    request = SetTablePropertiesRequest(table=table, properties=wanted, removed_properties=removed, dry_run=dry_run)
    session.change(request, lambda answer: changed_properties(answer, dry_run))


def health(session: Session, table: TableArgument) -> None:
    """Evaluate a table now and show the parts of its health score. Nothing is planned."""
    session.show(pb.GetTableHealthRequest(table=table), table_health)


def sizes(
    session: Session,
    table: TableArgument,
    partitions: Annotated[int, typer.Option(help="How many partitions to show at most.", min=0, max=200)] = 10,
) -> None:
    """Show sizes of files, and partitions that need optimizing.

    They are those of the table's last evaluation: it is not read. The 200 partitions that need it most are kept.
    """
    session.show(GetTableDigestRequest(table=table), lambda digest: digest_document(digest, partitions))


@list_command(FILES, after="PATH", limit=100)
def files(session: Session, options: ListOptions, table: TableArgument) -> None:
    """List the live data and delete files of a table, by partition."""
    with session.reading() as connection:
        first, part = gather(connection.client, options.window, pb.ListTableFilesRequest(table=table))
    before = {"table": table, "snapshot_id": first.snapshot_id or None}
    session.write(FILES.document(part, options, before=before))


@list_command(SNAPSHOTS, after="SNAPSHOT", limit=20, newest_first=True)
def snapshots(session: Session, options: ListOptions, table: TableArgument) -> None:
    """List the snapshots that a table still has, newest first. It shows which of them Amoro committed."""
    with session.reading() as connection:
        part = listed(connection.client, options.window, pb.ListSnapshotsRequest(table=table))
    session.write(SNAPSHOTS.document(part, options, before={"table": table}))


BlockerArgument = Annotated[str, id_argument("BLOCKER")]


def block(
    session: Session,
    table: TableArgument,
    operations: Annotated[
        list[BlockedOperation] | None, option("--operation", help="What to block; may be repeated [default: optimize].")
    ] = None,
    hold: Annotated[
        timedelta | None,
        duration_option("--for", help_="How long it lasts, at most 1d [default: 1m, or what blocker-timeout says]."),
    ] = None,
    where: Annotated[
        str, option(metavar="CONDITION", help="Only partitions in which it may hold, such as day = '2026-11-30'.")
    ] = "",
    yields: Annotated[bool, option("--yield", help="Let processes that run give way, there or as a whole.")] = False,
    reason: Annotated[str, option(help="Shown to whoever is blocked.")] = "",
) -> None:
    """Block optimizing, or batch writers that ask, for a while.

    It is refused while a process is active on the table (5), and while another blocker covers the same operation (5).
    With a condition self-optimizing.conflict-granularity says whether a process that runs refuses it.
    """
    request = pb.BlockTableRequest(
        table=table, operations=operations, hold_ms=milliseconds(hold), reason=reason, condition=where, yields=yields
    )
    session.change(request, blocker_detail)


def renew(
    session: Session,
    blocker: BlockerArgument,
    hold: Annotated[
        timedelta | None, duration_option("--for", help_="How long from now on, at most 1d [default: as before].")
    ] = None,
) -> None:
    """Renew a blocker for as long as it was taken for, from now on. One that has expired is not found (3)."""
    session.change(pb.RenewBlockerRequest(blocker_id=blocker, hold_ms=milliseconds(hold)), blocker_detail)


def unblock(session: Session, blocker: BlockerArgument) -> None:
    """Release a blocker."""
    session.change(pb.ReleaseBlockerRequest(blocker_id=blocker), blocker_released)


@list_command(BLOCKERS, after="BLOCKER", watch=True)
def blockers(session: Session, options: ListOptions, table: AnyTableArgument = "") -> None:
    """List the active blockers."""
    show_list(session, options, BLOCKERS, pb.ListBlockersRequest(table=table))
