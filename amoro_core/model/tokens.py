"""Tokens that let people and optimizers in."""

import hashlib
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Role(StrEnum):
    """What a token lets its bearer do."""

    VIEWER = "viewer"  # look
    OPERATOR = "operator"  # and let tables be optimized or not, and optimizers go
    ADMIN = "admin"  # and whatever else the command line does
    ENROLMENT = "enrolment"  # let an optimizer register, nothing else

    def allows(self, needed: "Role") -> bool:
        """Whether who has this role may do what needs that one."""
        return self is needed or (self in _RANKS and needed in _RANKS and _RANKS.index(self) > _RANKS.index(needed))


_RANKS = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token that somebody created; of the token itself only the hash is kept."""

    name: str
    role: Role
    token_hash: str
    created_at: datetime


def hash_token(token: str) -> str:
    """How a token is kept: its SHA-256 in hexadecimal; tokens are long and random, so no salt is needed."""
    return hashlib.sha256(token.encode()).hexdigest()
