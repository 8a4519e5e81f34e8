"""amoro plan, amoro optimize."""

import sys
from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.connection import Connection
from amoro_cli.output import OutputFormat, write
from amoro_cli.progress import progress_report
from amoro_cli.session import OutputOption, Session, TableArgument, command, duration_option
from amoro_cli.views.plans import optimize_command, plan_document
from amoro_cli.views.processes import optimize_document
from amoro_cli.waiting import Deadline, failure_of, optimize_once
from amoro_core.model.tables import OptimizingType

TypeOption = Annotated[
    OptimizingType | None,
    typer.Option(
        "--type",
        case_sensitive=False,
        help="What to rewrite, whatever counts and intervals say [default: what is due now].",
        show_default=False,
    ),
]
ForceOption = Annotated[bool, typer.Option("--force", help="With --type full: healthy files too.")]


def register(app: typer.Typer) -> None:
    command(app, "plan", "amoro plan sales.db.orders --explain")(plan)
    command(app, "optimize", "amoro optimize sales.db.orders --type major --wait")(optimize)


def plan(
    session: Session,
    table: TableArgument,
    type_: TypeOption = None,
    explain: Annotated[bool, typer.Option("--explain", help="List every partition, with the reason.")] = False,
    force: ForceOption = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Show what optimizing would rewrite now, and why. Nothing is changed."""
    with session.connect() as connection:
        _write_plan(connection, table, type_, force, explain, output)


def optimize(
    session: Session,
    table: TableArgument,
    type_: TypeOption = None,
    wait: Annotated[bool, typer.Option("--wait", help="Wait for the commit and print the receipt.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the plan.")] = False,
    force: ForceOption = False,
    timeout: Annotated[
        timedelta, duration_option("--timeout", help_="How long to wait at most: for the lock, a busy table, the end.")
    ] = "10m",  # type: ignore[assignment]
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Optimize one table once.

    Where no coordinator runs it is done in this process, and waited for.

    Exit status: 0 committed or nothing to do, 1 failed, 2 wrong usage, 3 not found, 4 not allowed, 5 conflict or partly
    committed, 6 refused, 7 the commit's outcome is unknown, 124 not ended within --timeout (it goes on).
    """
    deadline = Deadline(timeout)
    with session.connect(timeout, lasting=True) as connection:
        if dry_run:
            _write_plan(connection, table, type_, force, False, output)
            return
        with progress_report() as report:
            answer, process = optimize_once(connection, table, type_ or "", force, deadline, report, wait=wait)
        write(optimize_document(answer.plan, answer.process_id, process), output)
        if process is None:
            if answer.process_id:
                print(f"Follow it with: amoro process show {answer.process_id}", file=sys.stderr)  # noqa: T201
            return
        failure = failure_of(process, connection.embedded)
        if failure is not None:
            raise failure


def _write_plan(
    connection: Connection, table: str, type_: OptimizingType | None, force: bool, explain: bool, output: OutputFormat
) -> None:
    planned = connection.client.plan_table(table, type_ or "", force)
    write(plan_document(planned, optimize_command(planned.table, type_ or "", force), explain), output)
