"""Documents of the audit, users and tokens."""

import json
from typing import TYPE_CHECKING

from amoro_cli.list_options import DEFAULT_ARRANGEMENT, Arrangement, Column, Listing, ListRange, list_document
from amoro_cli.output import Document, Pairs
from amoro_core.documents.formatting import format_time
from amoro_core.documents.json_documents import encode

if TYPE_CHECKING:
    from amoro_core.protocol import accounts_pb2 as accounts_pb
    from amoro_core.protocol import admin_pb2 as admin_pb
    from amoro_core.protocol import audit_pb2 as pb


AUDIT: "Listing[pb.AuditEvent]" = Listing(
    (
        Column("EVENT", lambda item: str(item.event_id), lambda item: item.event_id, right=True),
        Column("AT", lambda item: format_time(item.happened_ms), lambda item: item.happened_ms),
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
)


def audit_list(part: "ListRange[pb.AuditEvent]", arrangement: Arrangement = DEFAULT_ARRANGEMENT) -> Document:
    """Schema amoro.audit/v1: `audit`, `total`, `next`. The names are numbers."""
    nothing = "Nothing was changed."
    return list_document("amoro.audit/v1", AUDIT, part, arrangement, lambda item: str(item.event_id), nothing)


def audit_line(item: "pb.AuditEvent") -> str:
    """Schema amoro.audited/v1: the call as one line of JSON, in ASCII."""
    return json.dumps({"schema": "amoro.audited/v1", **encode(item)})


USERS: "Listing[accounts_pb.User]" = Listing(
    (
        Column("USER", lambda user: user.name),
        Column("ROLE", lambda user: user.role),
        Column("ON", lambda user: user.pattern or "-"),
        Column("CREATED", lambda user: format_time(user.created_ms), lambda user: user.created_ms),
    )
)


def user_detail(user: "accounts_pb.User") -> Document:
    """Schema amoro.user/v1: `name`, `role`, `pattern`, `created_at`."""
    pairs = (("name", user.name), ("role", user.role), *((("on", user.pattern),) if user.pattern else ()))
    return Document("amoro.user/v1", encode(user), (user.name,), (Pairs(pairs),))


def user_list(part: "ListRange[accounts_pb.User]", arrangement: Arrangement = DEFAULT_ARRANGEMENT) -> Document:
    """Schema amoro.users/v1: `users`, `total`, `next`."""
    nothing = "No user was added; the admin token can do everything, and amoro login makes a link with it."
    return list_document("amoro.users/v1", USERS, part, arrangement, lambda user: user.name, nothing)


def user_removed(removed: "accounts_pb.RemoveUserResponse") -> Document:
    """Schema amoro.removed/v1: `name`."""
    return Document("amoro.removed/v1", encode(removed), (removed.name,), (f"User {removed.name} is removed.",))


def login_link(link: "accounts_pb.LoginLink") -> Document:
    """Schema amoro.login/v1: `url`, `expires_at`. The name printed is the link itself."""
    note = f"It can be used once, until {format_time(link.expires_ms)}."
    return Document("amoro.login/v1", encode(link), (link.url,), (link.url, note))


def token_created(made: "admin_pb.Token") -> Document:
    """Schema amoro.token/v1: `name`, `kind`, `created_at`, `token`, `pattern`, `expires_at`.

    The name printed is the token itself.
    """
    limits = (("on", made.pattern), ("expires", format_time(made.expires_ms) if made.expires_ms else ""))
    known = (pair for pair in limits if pair[1])
    pairs = (("name", made.name), ("role", made.kind), *known, ("token", made.token))
    kept = "Save it now: it is not shown again."
    return Document("amoro.token/v1", encode(made), (made.token,), (Pairs(pairs), kept))


TOKENS: "Listing[admin_pb.Token]" = Listing(
    (
        Column("TOKEN", lambda token: token.name),
        Column("ROLE", lambda token: token.kind),
        Column("ON", lambda token: token.pattern or "-"),
        Column("CREATED", lambda token: format_time(token.created_ms), lambda token: token.created_ms),
        Column("EXPIRES", lambda token: format_time(token.expires_ms), lambda token: token.expires_ms),
    )
)


def token_list(part: "ListRange[admin_pb.Token]", arrangement: Arrangement = DEFAULT_ARRANGEMENT) -> Document:
    """Schema amoro.tokens/v1: `tokens` with `name`, `kind`, `created_at`, `pattern`, `expires_at`; `total`, `next`."""
    nothing = "No tokens were created; those of the state directory are admin.token and enrolment.token."
    return list_document(
        "amoro.tokens/v1", TOKENS, part, arrangement, lambda token: token.name, nothing, without=("token",)
    )


def token_revoked(revoked: "admin_pb.RevokeTokenResponse") -> Document:
    """Schema amoro.removed/v1: `name`."""
    return Document("amoro.removed/v1", encode(revoked), (revoked.name,), (f"Token {revoked.name} is revoked.",))
