"""amoro audit."""

from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.paging import after_option, window
from amoro_cli.session import Session, command, duration_option
from amoro_cli.views.audit import AUDIT, audit_line, audit_list
from amoro_core.model.audit import AuditFilter, AuditOutcome


class AuditFormat(StrEnum):
    """How the audit is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    WIDE = "wide"
    JSONL = "jsonl"


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro audit`."""
    command(app, "list", "amoro audit list --since 1d --outcome refused")(list_audit)


def list_audit(
    session: Session,
    actor: Annotated[
        str, typer.Option(metavar="NAME", help="Only calls of this user or token.", show_default=False)
    ] = "",
    operation: Annotated[
        str, typer.Option(metavar="NAME", help="Only this operation, such as OptimizeTable.", show_default=False)
    ] = "",
    object_: Annotated[
        str, typer.Option("--object", metavar="NAME", help="Only what acts on this.", show_default=False)
    ] = "",
    outcome: Annotated[
        AuditOutcome | None,
        typer.Option(help="Only calls that ended so; begun: no end is known.", case_sensitive=False),
    ] = None,
    since: Annotated[
        timedelta | None, duration_option("--since", help_="Only calls of so long ago or later, such as 1d.")
    ] = None,
    limit: Annotated[int, typer.Option(help="How many to list at most, newest first.", min=1, max=1_000_000_000)] = 20,
    after: Annotated[str, after_option("NEXT")] = "",
    sort_by: Annotated[str, sort_option(AUDIT)] = "",
    columns: Annotated[str, columns_option(AUDIT)] = "",
    output: Annotated[
        AuditFormat,
        typer.Option(
            "--output",
            "-o",
            help="The format: jsonl is one line of JSON for each call; json, yaml and jsonl are stable and exact.",
            case_sensitive=False,
        ),
    ] = AuditFormat.TABLE,
) -> None:
    """List who has changed what, the newest first; refused calls and dry runs, too.

    Parameters are told without secrets. Calls are kept for 400 days.
    """
    oldest = datetime.now(UTC) - since if since is not None else None
    wanted = AuditFilter(actor, operation, object_, outcome, oldest)
    with session.reading() as connection:
        part = connection.client.list_audit(wanted, window(limit, after))
    if output is AuditFormat.JSONL:
        for item in part.items:
            typer.echo(audit_line(item))
        return
    write(audit_list(part, Arrangement(sort_by, columns)), OutputFormat(output.value))
