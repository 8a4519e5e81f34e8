"""Access tokens of users and optimizers."""

import hashlib
from datetime import datetime
from enum import StrEnum

from amoro_core.records import record


class Role(StrEnum):
    """The permissions of a token."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # also control optimizing and optimizers
    ADMIN = "admin"  # also everything else that the command line does
    ENROLMENT = "enrolment"  # register an optimizer, nothing else

    def allows(self, needed: "Role") -> bool:
        """Whether this role includes the needed one."""
        return self is needed or (self in _RANKS and needed in _RANKS and _RANKS.index(self) > _RANKS.index(needed))


_RANKS = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@record
class AccessToken:
    """A created token; only its hash is kept."""

    name: str
    role: Role
    token_hash: str
    created_at: datetime
    pattern: str = ""  # of the tables on which an operator may act; "": all
    expires_at: datetime | None = None


def hash_token(token: str) -> str:
    """The stored form of a token: its SHA-256 in hexadecimal. Tokens are long and random, so no salt is needed."""
    return hashlib.sha256(token.encode()).hexdigest()
