"""Commands of access: amoro audit, token, user, login."""

import sys
import webbrowser
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from amoro_cli.context import OutputOption, Session, duration_option, milliseconds, milliseconds_ago
from amoro_cli.list_options import Arrangement, LimitOption, after_option, columns_option, listed, sort_option, window
from amoro_cli.output import OutputFormat, write
from amoro_cli.views.access import (
    AUDIT,
    TOKENS,
    USERS,
    audit_line,
    audit_list,
    login_link,
    token_created,
    token_list,
    token_revoked,
    user_detail,
    user_list,
    user_removed,
)
from amoro_core.errors import InvalidArgument
from amoro_core.model.history_events import AuditOutcome
from amoro_core.model.principals import Role
from amoro_core.protocol import accounts_pb2 as accounts
from amoro_core.protocol import admin_pb2 as pb
from amoro_core.protocol import audit_pb2 as audit_pb


class AuditFormat(StrEnum):
    """How the audit is printed."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"
    WIDE = "wide"
    JSONL = "jsonl"


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
    """List who changed what, the newest first, including refused calls and dry runs.

    Parameters are shown without secrets. Calls are kept for 400 days.
    """
    wanted = audit_pb.ListAuditRequest(
        actor=actor,
        operation=operation,
        object=object_,
        outcome=outcome or "",
        since_ms=milliseconds_ago(since),
    )
    with session.reading() as connection:
        part = listed(window(limit, after), connection.client.ListAudit, wanted, lambda answer: answer.events)
    if output is AuditFormat.JSONL:
        for item in part.items:
            typer.echo(audit_line(item))
        return
    write(audit_list(part, Arrangement(sort_by, columns)), OutputFormat(output.value))


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
    request = pb.CreateTokenRequest(name=name, kind=role.value, pattern=on, lasts_ms=milliseconds(expires))
    with session.connect() as connection:
        write(token_created(connection.client.CreateToken(request)), output)


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
        client, request = connection.client, pb.ListTokensRequest()
        part = listed(window(limit, after), client.ListTokens, request, lambda answer: answer.tokens)
    write(token_list(part, Arrangement(sort_by, columns)), output)


def revoke(session: Session, name: NameArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Revoke a token. Optimizers that have registered with it stay."""
    with session.connect() as connection:
        write(token_revoked(connection.client.RevokeToken(pb.RevokeTokenRequest(name=name))), output)


UserNameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The user's name.", show_default=False)]
PasswordOption = Annotated[
    Path | None,
    typer.Option(
        "--password-file",
        metavar="FILE",
        help="The file whose first line is the password, of 12 characters or more [default: prompt].",
        show_default=False,
    ),
]
_ROLES = "viewer: read only; operator: also optimize, cancel, block, scale; admin: everything."


def add(
    session: Session,
    name: UserNameArgument,
    role: Annotated[Role, typer.Option("--role", help=_ROLES, case_sensitive=False)] = Role.VIEWER,
    on: OnOption = "",
    password_file: PasswordOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Add a user, who logs in to the pages with a password."""
    request = accounts.AddUserRequest(name=name, role=role.value, pattern=on, password=_password(password_file))
    with session.connect() as connection:
        write(user_detail(connection.client.AddUser(request)), output)


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
        client, request = connection.client, accounts.ListUsersRequest()
        part = listed(window(limit, after), client.ListUsers, request, lambda answer: answer.users)
    write(user_list(part, Arrangement(sort_by, columns)), output)


def update(
    session: Session,
    name: UserNameArgument,
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
        write(
            user_detail(
                connection.client.UpdateUser(accounts.UpdateUserRequest(name=name, role=role or "", pattern=on))
            ),
            output,
        )


def password(
    session: Session,
    name: UserNameArgument,
    password_file: PasswordOption = None,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Give a user another password. The user's sessions end."""
    request = accounts.SetPasswordRequest(name=name, password=_password(password_file))
    with session.connect() as connection:
        write(user_detail(connection.client.SetPassword(request)), output)


def remove(session: Session, name: UserNameArgument, output: OutputOption = OutputFormat.TABLE) -> None:
    """Remove a user. The user's sessions end."""
    with session.connect() as connection:
        write(user_removed(connection.client.RemoveUser(accounts.RemoveUserRequest(name=name))), output)


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


def login(
    session: Session,
    browser: Annotated[bool, typer.Option("--browser", help="Open the link in this machine's browser, too.")] = False,
    output: OutputOption = OutputFormat.TABLE,
) -> None:
    """Print a link that logs a browser in to the pages, once, with the rights of the admin token."""
    with session.connect() as connection:
        link = connection.client.MakeLoginLink(accounts.MakeLoginLinkRequest())
        write(login_link(link), output)
        if browser and not webbrowser.open(link.url):
            raise InvalidArgument("no browser was found on this machine", hint="Open the link yourself.")
