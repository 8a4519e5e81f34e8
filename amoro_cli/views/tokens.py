"""Tokens."""

from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Document, Pairs
from amoro_cli.paging import Part
from amoro_cli.views.lists import list_document
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_time

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def token_created(made: "pb.Token") -> Document:
    """Schema amoro.token/v1: `name`, `kind`, `created_at`, `token`, `pattern`, `expires_at`.

    The name printed is the token itself.
    """
    limits = (("on", made.pattern), ("expires", format_time(made.expires_ms) if made.expires_ms else ""))
    known = (pair for pair in limits if pair[1])
    pairs = (("name", made.name), ("role", made.kind), *known, ("token", made.token))
    kept = "Save it now: it is not shown again."
    return Document("amoro.token/v1", encode(made), (made.token,), (Pairs(pairs), kept))


TOKENS: "Listing[pb.Token]" = Listing(
    (
        Column("TOKEN", lambda token: token.name),
        Column("ROLE", lambda token: token.kind),
        Column("ON", lambda token: token.pattern or "-"),
        Column("CREATED", lambda token: format_time(token.created_ms), lambda token: token.created_ms),
        Column("EXPIRES", lambda token: format_time(token.expires_ms), lambda token: token.expires_ms),
    )
)


def token_list(part: "Part[pb.Token]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.tokens/v1: `tokens` with `name`, `kind`, `created_at`, `pattern`, `expires_at`; `total`, `next`."""
    nothing = "No tokens were created; those of the state directory are admin.token and enrolment.token."
    return list_document(
        "amoro.tokens/v1", TOKENS, part, arrangement, lambda token: token.name, nothing, without=("token",)
    )


def token_revoked(revoked: "pb.RevokeTokenResponse") -> Document:
    """Schema amoro.removed/v1: `name`."""
    return Document("amoro.removed/v1", encode(revoked), (revoked.name,), (f"Token {revoked.name} is revoked.",))
