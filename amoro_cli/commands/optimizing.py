"""Commands on rows: amoro plan, optimize, verify, cluster, sql."""

import sys
from datetime import timedelta
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from amoro_cli.connection import Connection
from amoro_cli.context import (
    TIMEOUT,
    OptionalTablesArgument,
    Session,
    TableArgument,
    TablesArgument,
    TimeoutOption,
    WaitOption,
    default,
    duration_option,
    option,
    option_parser,
    text_of,
)
from amoro_cli.list_options import split_names
from amoro_cli.multi_table import MultiTableRun, is_one, plan_each, raise_worst, ranked, select
from amoro_cli.output import OutputFormat, write
from amoro_cli.progress import progress_report
from amoro_cli.query_logs import learn_from
from amoro_cli.views.outcomes import optimized_document, plans_document, rows_document
from amoro_cli.views.plans import (
    cluster_options,
    clustering_document,
    learned_document,
    optimize_command,
    plan_document,
    suggested_document,
    verification_document,
)
from amoro_cli.views.processes import optimize_document
from amoro_cli.wait import Deadline, finish, optimize_once, optimize_request, plan_request, verify_table
from amoro_core.documents.json_documents import rows_csv
from amoro_core.errors import InvalidArgument, VerificationFailed
from amoro_core.model.clustering import Strategy
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol.operations import READING


class RequestedType(StrEnum):
    """Types that can be requested."""

    MINOR = "minor"
    MAJOR = "major"
    FULL = "full"
    CLUSTER = "cluster"


TypeOption = Annotated[
    RequestedType | None, option("--type", help="What to rewrite, whether or not it is due [default: what is due now].")
]
WhereOption = Annotated[
    str,
    option(
        metavar="CONDITION",
        help="Only partitions that can hold matching rows, by partition columns, such as \"dt >= '2026-01-31'\".",
    ),
]
ColumnsOption = Annotated[
    str, option(metavar="A,B", help="With --type cluster: the columns to order rows by, or auto.")
]
StrategyOption = Annotated[Strategy | None, option(help="With --type cluster: how several columns become one order.")]
PartitionsOption = Annotated[
    str, option(metavar="CHOICE", help="With --type cluster: all, recent:N, recent:N,skip:M, selected or rolling:K.")
]
FullOption = Annotated[bool, typer.Option("--full", help="With --type cluster: also what is clustered already.")]
ForceOption = Annotated[bool, typer.Option("--force", help="With --type full: also rewrite healthy files.")]


def plan(
    session: Session,
    tables: OptionalTablesArgument = None,
    type_: TypeOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="List every partition, with the reason.")] = False,
    force: ForceOption = False,
    where: WhereOption = "",
    columns: ColumnsOption = "",
    strategy: StrategyOption = None,
    partitions: PartitionsOption = "",
    full: FullOption = False,
) -> None:
    """Show what optimizing would rewrite now, and why. Nothing is changed.

    Several tables, or those of all catalogs when none is named, are ranked by the number of files that it would save,
    as `amoro table list` ranks them.
    """
    request = _request(type_, force, where, columns, strategy=strategy, partitions=partitions, full=full)
    with session.reading(lasting=True) as connection:
        _write_plans(session, connection, tables or [], request, explain)


def optimize(
    session: Session,
    tables: TablesArgument,
    type_: TypeOption = None,
    wait: WaitOption = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    force: ForceOption = False,
    where: WhereOption = "",
    columns: ColumnsOption = "",
    strategy: StrategyOption = None,
    partitions: PartitionsOption = "",
    full: FullOption = False,
    schedule_only: Annotated[
        bool, typer.Option("--schedule-only", help="With --type cluster: only store the plan, for amoro process start.")
    ] = False,
    timeout: TimeoutOption = TIMEOUT,
) -> None:
    """Optimize a table, or each of several, once.

    Without a running coordinator it runs in this process, which waits for the end.

    Exit status: 0 committed or nothing to do, 1 failed, 2 wrong usage, 3 not found, 4 not allowed, 5 conflict or partly
    committed, 6 refused, 7 the commit's outcome is unknown, 124 not ended within --timeout (it goes on). For several
    tables it is the worst, in the order 1, 4, 2, 3, 6, 7, 5, 124, 0.
    """
    deadline, cluster = Deadline(timeout), {"strategy": strategy, "full": full, "schedule_only": schedule_only}
    request = _request(type_, force, where, columns, partitions=partitions, **cluster)
    if dry_run:
        with session.reading(lasting=True) as connection:
            _write_plans(session, connection, tables, request, False, deadline)
        return
    with session.connect(timeout, lasting=True) as connection:
        if not is_one(tables):
            _optimize_several(session, connection, tables, request, deadline, wait)
            return
        request.table = tables[0]
        with progress_report() as report:
            answer, process = optimize_once(connection, request, deadline, report, wait=wait)
        session.write(optimize_document(answer.plan, answer.process_id, process))
        verb, word = ("Start", "start") if schedule_only else ("Follow", "show")
        finish(process, answer.process_id, connection.embedded, f"{verb} it with: amoro process {word}")


def _request(
    kind: RequestedType | None, force: bool, where: str, columns: str, **options: Any
) -> pb.OptimizeTableRequest:
    """The request for any table. Raises InvalidArgument for options of clustering without its type."""
    cluster = pb.ClusterOptions(columns=split_names(columns), **options)
    request = optimize_request(kind or "", force, where, cluster)
    if kind is not RequestedType.CLUSTER and (given := cluster_options(request)):
        raise InvalidArgument(f"{given[0]} needs --type cluster", hint="Add: --type cluster")
    return request


def _optimize_several(
    session: Session,
    connection: Connection,
    names: list[str],
    request: pb.OptimizeTableRequest,
    deadline: Deadline,
    wait: bool,
) -> None:
    selected, unlisted = select(connection.client, names)
    with progress_report() as report:
        run = MultiTableRun(connection, request, deadline, report, wait=wait)
        try:
            run.optimize(selected)
        except KeyboardInterrupt:
            if run.outcomes:
                session.write(optimized_document(run.outcomes))
            raise
    outcomes = [*run.outcomes, *unlisted]
    session.write(optimized_document(outcomes))
    raise_worst(outcomes)


def _write_plans(
    session: Session,
    connection: Connection,
    names: list[str],
    request: pb.OptimizeTableRequest,
    explain: bool,
    deadline: Deadline | None = None,
) -> None:
    def plan_one(table: str) -> pb.Plan:
        timeout = deadline.seconds if deadline else READING.total_seconds()
        return connection.client.PlanTable(plan_request(table, request), timeout=timeout)

    if is_one(names):
        planned = plan_one(names[0])
        session.write(plan_document(planned, optimize_command(planned.table, request), explain))
        return
    selected, unlisted = select(connection.client, names)
    outcomes = ranked([*plan_each(selected, plan_one), *unlisted])
    session.write(plans_document(outcomes, request, explain))
    raise_worst(outcomes)


def show(session: Session, table: TableArgument) -> None:
    """Show how well a table is clustered, and what comes next. Fewer files for a point query are better."""
    session.show(pb.ShowClusteringRequest(table=table), clustering_document, lasting=True)


def suggest(session: Session, table: TableArgument) -> None:
    """Suggest columns to cluster a table by, each with the reason.

    It also shows what self-optimizing.cluster.columns=auto chooses.
    """
    session.show(pb.SuggestColumnsRequest(table=table), suggested_document, lasting=True)


def learn(
    session: Session,
    table: TableArgument,
    spark_event_log: Annotated[
        Path | None,
        option(
            metavar="DIR",
            help="Event logs of Spark: a file, or a directory with nothing else; plain, or compressed by zstd.",
        ),
    ] = None,
    queries: Annotated[
        Path | None,
        option(
            metavar="FILE",
            help='Queries of today, a JSON object a line: {"columns": ["id"], "operator": "eq", "weight": 12}; '
            "operators: eq, range, in, prefix.",
        ),
    ] = None,
) -> None:
    """Learn which columns queries filter by. self-optimizing.cluster.columns=auto chooses by them.

    A log counts once, however often it is read; queries of a file count each time. Values in filters are neither sent
    nor kept.
    """
    with session.connect() as connection:
        session.write(learned_document(learn_from(connection.client, table, spark_event_log, queries)))


_VERIFY_TIMEOUT = default("1h")


def _snapshot(text: str) -> int:
    """A snapshot's id: a positive number of 64 bits."""
    word = text.strip()
    if word.isascii() and word.isdecimal() and len(word) <= 19 and 0 < int(word) < 2**63:
        return int(word)
    raise ValueError(f"{text!r} is not the id of a snapshot. See: amoro table snapshots TABLE")


_snapshot_option = partial(option, metavar="SNAPSHOT", parser=option_parser(_snapshot))


def verify(
    session: Session,
    table: TableArgument,
    before: Annotated[
        int | None, _snapshot_option(help="The older snapshot [default: the parent of the newer one].")
    ] = None,
    after: Annotated[
        int | None,
        _snapshot_option(help="The newer snapshot [default: the last optimizing commit; with --before, the head]."),
    ] = None,
    timeout: Annotated[timedelta, duration_option(help_="How long reading may take.")] = _VERIFY_TIMEOUT,
) -> None:
    """Prove that optimizing lost, added or changed no row. Both sides of a rewrite are read and compared.

    The rows of each partition are counted and checksummed from the files, with deletes applied, independent of what the
    rewrite reported. Files in both snapshots are not read. Where others wrote between --before and --after, each
    rewrite is compared with its own parent snapshot. It also checks that every live file exists.

    Exit status: 0 every row is there, or nothing to compare; 1 a difference, or a file that can't be read.
    """
    with session.reading(lasting=True) as connection:
        verification = verify_table(connection.client, table, before, after, timeout)
    session.write(verification_document(verification))
    if not verification.sound:
        raise VerificationFailed(
            f"{verification.table} did not pass the verification",
            hint="Don't expire its snapshots; roll the table back and report this. See: amoro table snapshots",
        )


class ResultFormat(StrEnum):
    """How rows are printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"


class Engine(StrEnum):
    """What answers a statement."""

    DUCKDB = "duckdb"
    SPARK = "spark"


def sql(
    session: Session,
    statement: Annotated[str | None, option("--execute", "-e", metavar="TEXT", help="The statement.")] = None,
    file: Annotated[
        Path | None, option("--file", "-f", metavar="FILE", help="The file that has it; - is stdin.")
    ] = None,
    limit: Annotated[int | None, option(metavar="N", min=1, help="Rows to show at most.")] = None,
    engine: Annotated[Engine, typer.Option(help="spark: any statement, by administrators.")] = Engine.DUCKDB,
    output: Annotated[ResultFormat, typer.Option("--output", "-o", help="The format.")] = ResultFormat.TABLE,
) -> None:
    """Answer one SELECT, or DESCRIBE a table. Tables are named catalog.namespace.table, and only read.

    The coordinator answers in a process of its own, by DuckDB, with deletes applied. Its setting terminal.enabled
    allows that, terminal.result-limit is the most rows, terminal.spark-connect the server for --engine spark. Ctrl-C
    cancels the statement.
    """
    if (statement is None) is (file is None):
        raise InvalidArgument("One statement is needed", hint="Give it with either -e TEXT or -f FILE.")
    text = statement if file is None else text_of(file)
    request = pb.RunStatementRequest(statement=text or "", limit=limit or 0, engine=engine.value)
    with session.connect(lasting=True) as connection:
        result = connection.client.RunStatement(request)
    if output is ResultFormat.CSV:
        sys.stdout.write(rows_csv(result))
    else:
        write(rows_document(result), OutputFormat(output.value))
