"""Tokens."""

from typing import TYPE_CHECKING

from amoro_cli.encoding import encode
from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Document, Pairs
from amoro_cli.paging import Part
from amoro_cli.quantities import format_time
from amoro_cli.views.lists import list_document

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def token_created(made: "pb.Token") -> Document:
    """Schema amoro.token/v1: `name`, `kind`, `created_at`, `token`. The name printed is the token itself."""
    pairs = (("name", made.name), ("role", made.kind), ("token", made.token))
    kept = "Save it now: it is not shown again."
    return Document("amoro.token/v1", encode(made), (made.token,), (Pairs(pairs), kept))


TOKENS: "Listing[pb.Token]" = Listing(
    (
        Column("TOKEN", lambda token: token.name),
        Column("ROLE", lambda token: token.kind),
        Column("CREATED", lambda token: format_time(token.created_ms), lambda token: token.created_ms),
    )
)


def token_list(part: "Part[pb.Token]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.tokens/v1: `tokens` with `name`, `kind`, `created_at`; `total`, `next`."""
    nothing = "No tokens were created; those of the state directory are admin.token and enrolment.token."
    return list_document(
        "amoro.tokens/v1", TOKENS, part, arrangement, lambda token: token.name, nothing, without=("token",)
    )


def token_revoked(revoked: "pb.RevokeTokenResponse") -> Document:
    """Schema amoro.removed/v1: `name`."""
    return Document("amoro.removed/v1", encode(revoked), (revoked.name,), (f"Token {revoked.name} is revoked.",))
