"""Users, and the HTTP sessions of users, tokens and people of an OpenID provider."""

import hashlib
from datetime import datetime, timedelta
from enum import StrEnum

from amoro_core.errors import InvalidArgument
from amoro_core.model.tokens import Role
from amoro_core.records import record

SHORTEST_PASSWORD = 12  # characters
LONGEST_PASSWORD = 1024

#: A session ends after so long without a request, and so long after its login whatever was requested.
IDLE_SESSION, LONGEST_SESSION = timedelta(hours=12), timedelta(days=7)
#: For how long a login link can be used.
LINK_LASTS = timedelta(minutes=10)


@record
class UserAccount:
    """A person who logs in with a password, of which only a slow hash is kept."""

    name: str
    role: Role
    pattern: str  # of the tables on which an operator may act; "": all
    password_hash: str
    created_at: datetime

    @property
    def fingerprint(self) -> str:
        """What a session of the user depends on: another password, role or pattern ends it."""
        return _digest(self.name, self.role, self.pattern, self.password_hash)


class Holder(StrEnum):
    """What an HTTP session stands for."""

    USER = "user"
    BEARER = "token"
    PERSON = "person"  # of the OpenID provider


@record
class HttpSession:
    """A login of a browser; only the hash of its id is kept."""

    session_hash: str
    holder: Holder
    name: str
    fingerprint: str  # of account or terms at the login: when they are others, the session has ended
    created_at: datetime
    seen_at: datetime
    role: Role | None = None  # of a person, as it was at the login: nothing else here knows of them
    pattern: str = ""

    def has_ended(self, now: datetime) -> bool:
        """Whether it is too long since the login or the last request."""
        return now - self.seen_at >= IDLE_SESSION or now - self.created_at >= LONGEST_SESSION


def token_fingerprint(token_hash: str, role: Role, pattern: str) -> str:
    """What a session of a token depends on."""
    return _digest(token_hash, role, pattern)


def require_password(password: str) -> str:
    """The password. Raises InvalidArgument for one that is too short or too long, without showing it."""
    if not SHORTEST_PASSWORD <= len(password) <= LONGEST_PASSWORD:
        raise InvalidArgument(
            f"a password has {SHORTEST_PASSWORD} to {LONGEST_PASSWORD} characters; this one has {len(password)}",
            hint="A few words that belong to no sentence are easy to remember.",
        )
    return password


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()
