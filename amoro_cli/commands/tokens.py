"""amoro token."""

from typing import Annotated

import typer

from amoro_cli.output import OutputFormat, write
from amoro_cli.session import OutputOption, Session, command
from amoro_cli.views.tokens import token_created, token_list, token_revoked
from amoro_core.model.tokens import TokenKind


def register(app: typer.Typer) -> None:
    command(app, "create", "amoro token create airflow --kind admin -o name > airflow.token")(create)
    command(app, "list", "amoro token list")(list_tokens)
    command(app, "revoke", "amoro token revoke airflow")(revoke)


NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="What the token is called.", show_default=False)]


def create(
    session: Session,
    name: NameArgument,
    kind: Annotated[
        TokenKind,
        typer.Option("--kind", help="admin: for the command line; enrolment: for optimizers.", case_sensitive=False),
    ] = TokenKind.ADMIN,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Create a token. It is shown once and cannot be read again; -o name prints it alone."""
    with session.connect() as connection:
        write(token_created(connection.client.create_token(name, kind.value)), output)


def list_tokens(session: Session, output: OutputOption = OutputFormat.TABLE) -> None:
    """List the tokens that were created, without those of the state directory itself."""
    with session.connect() as connection:
        write(token_list(connection.client.list_tokens()), output)


def revoke(session: Session, name: NameArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Let a token count no more. Optimizers that have registered with it stay."""
    with session.connect() as connection:
        write(token_revoked(connection.client.revoke_token(name)), output)
