"""Tokens that let people and optimizers in."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class TokenKind(StrEnum):
    ADMIN = "admin"  # whatever the command line does
    ENROLMENT = "enrolment"  # lets an optimizer register


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token that somebody created; of the token itself only the hash is kept."""

    name: str
    kind: TokenKind
    token_hash: str
    created_at: datetime


def hash_token(token: str) -> str:
    """How a token is kept: its SHA-256 in hexadecimal; tokens are long and random, so no salt is needed."""
    return hashlib.sha256(token.encode()).hexdigest()
