"""Documents of the audit, users and tokens."""

from amoro_cli.list_options import Column, Listing
from amoro_cli.output import Document, Pairs, with_value
from amoro_core.documents.formatting import format_time
from amoro_core.documents.json_documents import encode
from amoro_core.protocol import accounts_pb2 as accounts_pb
from amoro_core.protocol import admin_pb2 as admin_pb
from amoro_core.protocol import audit_pb2 as pb

#: Schema amoro.audit/v1: `audit`, `total`, `next`. The names are numbers.
AUDIT: Listing[pb.AuditEvent] = Listing(
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


def audited_call(item: pb.AuditEvent) -> Document:
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
