"""Tokens."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from amoro_cli.encoding import encode, encode_all
from amoro_cli.output import Document, Grid, Pairs
from amoro_cli.quantities import format_time

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def token_created(made: "pb.Token") -> Document:
    """Schema amoro.token/v1: `name`, `kind`, `created_at`, `token`. The name printed is the token itself."""
    pairs = (("name", made.name), ("kind", made.kind), ("token", made.token))
    kept = "Keep it now: it is not shown again."
    return Document("amoro.token/v1", encode(made), (made.token,), (Pairs(pairs), kept))


def token_list(tokens: "Sequence[pb.Token]") -> Document:
    """Schema amoro.tokens/v1: `tokens` with `name`, `kind`, `created_at`."""
    bodies = [{key: value for key, value in body.items() if key != "token"} for body in encode_all(tokens)]
    names = tuple(token.name for token in tokens)
    if not tokens:
        nothing = "No tokens were created; those of the state directory are admin.token and enrolment.token."
        return Document("amoro.tokens/v1", {"tokens": bodies}, names, (nothing,))
    grid = Grid(
        ("TOKEN", "KIND", "CREATED"),
        tuple((token.name, token.kind, format_time(token.created_ms)) for token in tokens),
    )
    return Document("amoro.tokens/v1", {"tokens": bodies}, names, (grid,))


def token_revoked(revoked: "pb.RevokeTokenResponse") -> Document:
    """Schema amoro.removed/v1: `name`."""
    return Document("amoro.removed/v1", encode(revoked), (revoked.name,), (f"Token {revoked.name} is revoked.",))
