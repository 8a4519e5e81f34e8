"""Commands of access: amoro audit, token, user, login; and their documents."""

import sys
import webbrowser
from datetime import timedelta
from pathlib import Path
from typing import Annotated

import typer

from amoro_cli.context import Session, argument, duration_option, milliseconds, option, since_option
from amoro_cli.list_options import Column, Listing, ListOptions, list_command, listed, show_list
from amoro_cli.output import Document, OutputFormat, Pairs, tell, with_value
from amoro_cli.views.services import removed
from amoro_core.documents.formatting import format_time
from amoro_core.documents.json_documents import encode
from amoro_core.errors import InvalidArgument
from amoro_core.model.history_events import AuditOutcome
from amoro_core.model.principals import Role
from amoro_core.protocol import accounts_pb2 as accounts_pb
from amoro_core.protocol import admin_pb2 as admin_pb
from amoro_core.protocol import audit_pb2 as audit_pb

#: Schema amoro.audit/v1: `audit`, `total`, `next`. The names are numbers.
AUDIT: Listing[audit_pb.AuditEvent] = Listing(
    (
        Column("EVENT", lambda item: item.event_id, right=True),
        Column("AT", lambda item: item.happened_ms, format_time),
        Column("ACTOR", lambda item: f"{item.actor} ({item.said})" if item.said else item.actor),
        Column("ROLE", lambda item: item.role),
        Column("WAY", lambda item: item.way),
        Column("ADDRESS", lambda item: item.address or "-"),
        Column("OPERATION", lambda item: f"{item.operation} (dry run)" if item.dry_run else item.operation),
        Column("OBJECT", lambda item: item.object or "-"),
        Column("OUTCOME", lambda item: f"{item.outcome} [{item.code}]" if item.code else item.outcome),
    ),
    spare=("ADDRESS", "WAY", "ROLE", "EVENT"),
    elastic="OBJECT",
    schema="amoro.audit/v1",
    name=lambda item: str(item.event_id),
    nothing="Nothing was changed.",
)
#: Schema amoro.users/v1: `users`, `total`, `next`.
USERS: Listing[accounts_pb.User] = Listing(
    (
        Column("USER", lambda user: user.name),
        Column("ROLE", lambda user: user.role),
        Column("ON", lambda user: user.pattern or "-"),
        Column("CREATED", lambda user: user.created_ms, format_time),
    ),
    schema="amoro.users/v1",
    name=lambda user: user.name,
    nothing="No user was added; the admin token can do everything, and amoro login makes a link with it.",
)
#: Schema amoro.tokens/v1: `tokens` with `name`, `kind`, `created_at`, `pattern`, `expires_at`; `total`, `next`.
TOKENS: Listing[admin_pb.Token] = Listing(
    (
        Column("TOKEN", lambda token: token.name),
        Column("ROLE", lambda token: token.kind),
        Column("ON", lambda token: token.pattern or "-"),
        Column("CREATED", lambda token: token.created_ms, format_time),
        Column("EXPIRES", lambda token: token.expires_ms, format_time),
    ),
    schema="amoro.tokens/v1",
    name=lambda token: token.name,
    nothing="No tokens were created; those of the state directory are admin.token and enrolment.token.",
    without=("token",),
)


def audited_call(item: audit_pb.AuditEvent) -> Document:
    """Schema amoro.audited/v1: the fields of one call."""
    return Document("amoro.audited/v1", encode(item), (), ())


def user_detail(user: accounts_pb.User) -> Document:
    """Schema amoro.user/v1: `name`, `role`, `pattern`, `created_at`."""
    pairs = with_value(("name", user.name), ("role", user.role), ("on", user.pattern))
    return Document("amoro.user/v1", encode(user), (user.name,), (Pairs(pairs),))


def login_link(link: accounts_pb.LoginLink) -> Document:
    """Schema amoro.login/v1: `url`, `expires_at`. The name printed is the link itself."""
    note = f"It can be used once, until {format_time(link.expires_ms)}."
    return Document("amoro.login/v1", encode(link), (link.url,), (link.url, note))


def token_created(token: admin_pb.Token) -> Document:
    """Schema amoro.token/v1: the fields of the token. The name printed is the token itself."""
    expires = format_time(token.expires_ms) if token.expires_ms else ""
    limits = with_value(("on", token.pattern), ("expires", expires))
    pairs = (("name", token.name), ("role", token.kind), *limits, ("token", token.token))
    note = "Save it now: it is not shown again."
    return Document("amoro.token/v1", encode(token), (token.token,), (Pairs(pairs), note))


@list_command(AUDIT, after="NEXT", limit=20, newest_first=True)
def list_audit(
    session: Session,
    options: ListOptions,
    actor: Annotated[str, option(metavar="NAME", help="Only calls of this user or token.")] = "",
    operation: Annotated[str, option(metavar="NAME", help="Only this operation, such as OptimizeTable.")] = "",
    object_: Annotated[str, option("--object", metavar="NAME", help="Only what acts on this.")] = "",
    outcome: Annotated[AuditOutcome | None, option(help="Only calls that ended so; begun: no end is known.")] = None,
    since: Annotated[int | None, since_option("Only calls of that time or later.")] = None,
) -> None:
    """List who changed what, the newest first. Refused calls and dry runs are included.

    Parameters are shown without secrets. Calls are kept for 400 days.
    """
    request = audit_pb.ListAuditRequest(
        actor=actor, operation=operation, object=object_, outcome=outcome or "", since_ms=since or 0
    )
    with session.reading() as connection:
        part = listed(connection.client, options.window, request)
    if session.output is OutputFormat.JSONL:
        for item in part.items:
            session.write(audited_call(item))
        return
    session.write(AUDIT.document(part, options))


NameArgument = Annotated[str, argument(metavar="NAME", help="The token's name.")]
OnOption = Annotated[
    str,
    option(
        metavar="PATTERN",
        help="Which tables an operator may act on, such as 'sales.db.*' or 'sales.**': * stays within a part of a "
        "name, ** does not [default: all]. Reading is not limited.",
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
    ],
    on: OnOption = "",
    expires: Annotated[
        timedelta | None, duration_option(help_="How long it lasts [default: until it is revoked].")
    ] = None,
) -> None:
    """Create a token. It is shown once and cannot be read again; -o name prints it alone."""
    request = admin_pb.CreateTokenRequest(name=name, kind=role.value, pattern=on, lasts_ms=milliseconds(expires))
    session.change(request, token_created)


@list_command(TOKENS, after="NAME")
def list_tokens(session: Session, options: ListOptions) -> None:
    """List the tokens that were created. Those of the state directory itself are not among them."""
    show_list(session, options, TOKENS, admin_pb.ListTokensRequest())


def revoke(session: Session, name: NameArgument) -> None:
    """Revoke a token. Optimizers that have registered with it stay."""
    session.change(admin_pb.RevokeTokenRequest(name=name), removed("Token", "revoked"))


UserNameArgument = Annotated[str, argument(metavar="NAME", help="The user's name.")]
PasswordOption = Annotated[
    Path | None,
    option(
        metavar="FILE", help="The file whose first line is the password, of 12 characters or more [default: prompt]."
    ),
]
_OF_USERS = "<viewer|operator|admin>"
_ROLES = "viewer: read only; operator: also optimize, cancel, block, scale; admin: everything."


def add(
    session: Session,
    name: UserNameArgument,
    role: Annotated[Role, typer.Option(metavar=_OF_USERS, help=_ROLES, case_sensitive=False)] = Role.VIEWER,
    on: OnOption = "",
    password_file: PasswordOption = None,
) -> None:
    """Add a user, who logs in to the dashboard with a password."""
    request = accounts_pb.AddUserRequest(name=name, role=role.value, pattern=on, password=_password(password_file))
    session.change(request, user_detail)


@list_command(USERS, after="NAME")
def list_users(session: Session, options: ListOptions) -> None:
    """List the users."""
    show_list(session, options, USERS, accounts_pb.ListUsersRequest())


def update(
    session: Session,
    name: UserNameArgument,
    role: Annotated[
        Role | None, typer.Option(metavar=_OF_USERS, help=f"{_ROLES} [default: as it is]", case_sensitive=False)
    ] = None,
    on: Annotated[
        str | None,
        option(metavar="PATTERN", help="Which tables an operator may act on; '**': all [default: as it is]."),
    ] = None,
) -> None:
    """Give a user another role or pattern. The user's sessions end."""
    if role is None and on is None:
        raise InvalidArgument("nothing to change was given", hint="Give --role or --on.")
    session.change(accounts_pb.UpdateUserRequest(name=name, role=role or "", pattern=on), user_detail)


def password(session: Session, name: UserNameArgument, password_file: PasswordOption = None) -> None:
    """Give a user another password. The user's sessions end."""
    session.change(accounts_pb.SetPasswordRequest(name=name, password=_password(password_file)), user_detail)


def remove(session: Session, name: UserNameArgument) -> None:
    """Remove a user. The user's sessions end."""
    session.change(accounts_pb.RemoveUserRequest(name=name), removed("User"))


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
) -> None:
    """Print a link that logs a browser in to the dashboard, once. It has the rights of the admin token."""
    with session.connect() as connection:
        link = connection.client.MakeLoginLink(accounts_pb.MakeLoginLinkRequest())
        session.write(login_link(link))
        if browser and not webbrowser.open(link.url):
            tell("No browser was found on this machine: open the link yourself.")
