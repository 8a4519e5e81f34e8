"""amoro token."""

from datetime import timedelta
from typing import Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.paging import LimitOption, after_option, window
from amoro_cli.session import OutputOption, Session, command, duration_option
from amoro_cli.views.tokens import TOKENS, token_created, token_list, token_revoked
from amoro_core.model.tokens import Role


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro token`."""
    command(
        app,
        "create",
        "amoro token create airflow --role operator --on 'sales.**' --expires 90d -o name > airflow.token",
    )(create)
    command(app, "list", "amoro token list")(list_tokens)
    command(app, "revoke", "amoro token revoke airflow")(revoke)


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The token's name.", show_default=False)]
OnOption = Annotated[
    str,
    typer.Option(
        "--on",
        metavar="PATTERN",
        help="Which tables an operator may act on, such as 'sales.db.*' or 'sales.**': * stays within a part of a "
        "name, ** does not [default: all]. It limits no reading.",
        show_default=False,
    ),
]


def create(
    session: Session,
    name: NameArgument,
    role: Annotated[
        Role,
        typer.Option(
            "--role",
            "--kind",
            help="viewer: read only; operator: also optimize, cancel, block, scale; admin: everything; enrolment: "
            "register optimizers, nothing else.",
            case_sensitive=False,
        ),
    ] = Role.ADMIN,
    on: OnOption = "",
    expires: Annotated[
        timedelta | None, duration_option("--expires", help_="How long it lasts [default: until it is revoked].")
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create a token. It is shown once and cannot be read again; -o name prints it alone."""
    with session.connect() as connection:
        write(token_created(connection.client.create_token(name, role.value, on, expires)), output)


def list_tokens(
    session: Session,
    limit: LimitOption = None,
    after: Annotated[str, after_option("NAME")] = "",
    sort_by: Annotated[str, sort_option(TOKENS)] = "",
    columns: Annotated[str, columns_option(TOKENS)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the tokens that were created, except those of the state directory itself."""
    with session.reading() as connection:
        write(token_list(connection.client.list_tokens(window(limit, after)), Arrangement(sort_by, columns)), output)


def revoke(session: Session, name: NameArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Revoke a token. Optimizers that have registered with it stay."""
    with session.connect() as connection:
        write(token_revoked(connection.client.revoke_token(name)), output)
