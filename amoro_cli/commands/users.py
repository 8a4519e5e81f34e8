"""amoro user."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from amoro_cli.arranging import columns_option, sort_option
from amoro_cli.commands.tokens import OnOption
from amoro_cli.listing import Arrangement
from amoro_cli.output import OutputFormat, write
from amoro_cli.paging import LimitOption, after_option, window
from amoro_cli.session import OutputOption, Session, command
from amoro_cli.views.users import USERS, user_detail, user_list, user_removed
from amoro_core.errors import InvalidArgument
from amoro_core.model.tokens import Role

NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]
PasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="The file whose first line is the password, of 12 characters or more [default: asked for].",
        show_default=False,
    ),
]
_ROLES = "viewer: read only; operator: also optimize, cancel, block, scale; admin: everything."


def register(app: typer.Typer) -> None:
    """Add the commands of `amoro user`."""
    command(app, "add", "amoro user add ann --role operator --on 'sales.**'")(add)
    command(app, "list", "amoro user list")(list_users)
    command(app, "update", "amoro user update ann --role admin")(update)
    command(app, "password", "amoro user password ann")(password)
    command(app, "remove", "amoro user remove ann")(remove)


def add(
    session: Session,
    name: NameArgument,
    role: Annotated[Role, typer.Option("--role", help=_ROLES, case_sensitive=False)] = Role.VIEWER,
    on: OnOption = "",
    password_file: PasswordOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Add a user, who logs in to the pages with a password."""
    given = _password(password_file)
    with session.connect() as connection:
        write(user_detail(connection.client.add_user(name, role.value, on, given)), output)


def list_users(
    session: Session,
    limit: LimitOption = None,
    after: Annotated[str, after_option("NAME")] = "",
    sort_by: Annotated[str, sort_option(USERS)] = "",
    columns: Annotated[str, columns_option(USERS)] = "",
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """List the users."""
    with session.reading() as connection:
        write(user_list(connection.client.list_users(window(limit, after)), Arrangement(sort_by, columns)), output)


def update(
    session: Session,
    name: NameArgument,
    role: Annotated[
        Role | None, typer.Option("--role", help=f"{_ROLES} [default: as it is]", case_sensitive=False)
    ] = None,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="PATTERN",
            help="Which tables an operator may act on; '**': all [default: as it is].",
            show_default=False,
        ),
    ] = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Give a user another role or pattern. The user's sessions end."""
    if role is None and on is None:
        raise InvalidArgument("nothing to change was given", hint="Give --role or --on.")
    with session.connect() as connection:
        write(user_detail(connection.client.update_user(name, role.value if role else "", on)), output)


def password(
    session: Session,
    name: NameArgument,
    password_file: PasswordOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Give a user another password. The user's sessions end."""
    given = _password(password_file)
    with session.connect() as connection:
        write(user_detail(connection.client.set_password(name, given)), output)


def remove(session: Session, name: NameArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Remove a user. The user's sessions end."""
    with session.connect() as connection:
        write(user_removed(connection.client.remove_user(name)), output)


def _password(file: Path | None) -> str:
    if file is None:
        if not sys.stdin.isatty():
            raise InvalidArgument("there is no terminal to ask for the password", hint="Give --password-file FILE.")
        return str(typer.prompt("Password", hide_input=True, confirmation_prompt=True, err=True))
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"{file} can't be read: {getattr(error, 'strerror', '') or 'not UTF-8'}") from error
    return lines[0] if lines else ""
