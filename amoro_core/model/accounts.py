"""Users, and the HTTP sessions of users, tokens and people of an OpenID provider."""

import hashlib
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from time import monotonic
from urllib.parse import urlsplit

from amoro_core.errors import InvalidArgument, NotAllowed
from amoro_core.model.principals import Principal, Role, checked_pattern, is_loopback
from amoro_core.model.text_sanitizing import LONGEST_NAME, briefly, is_name

SHORTEST_PASSWORD = 12  # characters
LONGEST_PASSWORD = 1024

#: A session ends after so long without a request, and so long after its login whatever was requested.
IDLE_SESSION, LONGEST_SESSION = timedelta(hours=12), timedelta(days=7)
#: For how long a login link can be used.
LINK_LASTS = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class UserAccount:
    """A person who logs in with a password, of which only a slow hash is kept."""

    name: str
    role: Role
    pattern: str  # of the tables on which an operator may act; "": all
    password_hash: str
    created_at: datetime

    @property
    def fingerprint(self) -> str:
        """A session of the user ends when this value changes: with password, role or pattern."""
        return _digest(self.name, self.role, self.pattern, self.password_hash)


class Holder(StrEnum):
    """The kinds of accounts of an HTTP session."""

    USER = "user"
    BEARER = "token"
    PERSON = "person"  # of the OpenID provider


@dataclass(frozen=True, slots=True)
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
    """A session of a token ends when this value changes."""
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


#: People of the provider are named with it in front, and users of our own never are: nobody takes another's name.
PREFIX = "oidc:"
_ROLES = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
class RoleRule:
    """The role, and for an operator the pattern, of people whose claim has the value."""

    value: str
    role: Role
    pattern: str = ""  # of the tables on which an operator may act; "": all


@dataclass(frozen=True, slots=True)
class ProviderTerms:
    """The provider, what we are to it, and what its claims mean here."""

    issuer: str
    client_id: str
    name_claim: str
    role_claim: str
    scopes: tuple[str, ...]
    rules: tuple[RoleRule, ...]

    @property
    def fingerprint(self) -> str:
        """A session of an OIDC user ends when this value changes: with the provider's terms."""
        rules = (part for rule in self.rules for part in (rule.value, rule.role, rule.pattern))
        parts = (self.issuer, self.client_id, self.name_claim, self.role_claim, *rules)
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()

    def name_of(self, claims: Mapping[str, object]) -> str:
        """The person's name here. Raises NotAllowed for one that can't be a name, or an e-mail address not verified."""
        found = claims.get(self.name_claim)
        name = f"{PREFIX}{found}" if isinstance(found, str) and found else ""
        if not is_name(name):
            raise NotAllowed(
                f"the claim {self.name_claim} is {briefly(repr(found), 100)}, which can't be a name",
                hint=f"Names have no spaces and at most {LONGEST_NAME} characters; see oidc-name-claim in amoro.yaml.",
            )
        if self.name_claim == "email" and claims.get("email_verified") is not True:
            raise NotAllowed(
                f"the provider has not verified the e-mail address {name.removeprefix(PREFIX)}",
                hint="Verify it there, or set oidc-name-claim: sub in amoro.yaml.",
            )
        return name

    def person(self, claims: Mapping[str, object]) -> Principal:
        """The person with these claims; the first rule that one of the values fits gives the role.

        Raises NotAllowed, with the values, for one without a role here, and as `name_of`.
        """
        name, values = self.name_of(claims), list(_texts(_claim(claims, self.role_claim)))
        for rule in self.rules:
            if rule.value in values:
                return Principal(name, rule.role, rule.pattern, is_user=True)
        has = briefly(", ".join(map(repr, values)), 300) if values else "missing or empty"
        raise NotAllowed(
            f"{name} has no role here: the claim {self.role_claim} is {has}",
            hint="Ask whoever runs this coordinator to name a value in oidc-roles, or to give you one that is there.",
        )


def is_safe_url(url: str, *, beside: str = "") -> bool:
    """Whether requests to the URL are encrypted or stay on this machine.

    With `beside`, the issuer, plain HTTP on this machine is right only if the issuer has it, too.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or not url.isprintable() or " " in url or parts.username is not None or parts.fragment:
        return False
    is_near = parts.scheme == "http" and is_loopback(host)
    return parts.scheme == "https" or (is_near and (not beside or beside.startswith("http:")))


def parse_rule(text: str) -> RoleRule:
    """The rule that `VALUE=ROLE` or `VALUE=operator PATTERN` writes. Raises InvalidArgument."""
    value, _, given = text.rpartition("=")
    word, _, pattern = given.strip().partition(" ")
    role = next((one for one in _ROLES if one.value == word), None)
    if not value.strip() or role is None:
        raise InvalidArgument(
            f"{text!r} maps no value to a role", hint="Write data-team=operator, or data-team=operator sales.**."
        )
    return RoleRule(value.strip(), role, checked_pattern(pattern.strip(), role))


def _claim(claims: Mapping[str, object], name: str) -> object:
    """The claim of that name; with dots, the one within others."""
    if name in claims:
        return claims[name]
    found: object = claims
    for part in name.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Sequence):
        yield from (one for one in value if isinstance(one, str))


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """What was answered over HTTP; `content` is empty where it held a secret, which is kept nowhere."""

    status: int
    media_type: str
    location: str  # of what was begun; "": nothing
    content: bytes


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    """A request with a key that was begun; `answer` is None until it has ended."""

    key_hash: str  # of the key and of who sent it
    request_hash: str
    begun_at: datetime
    answer: KeptAnswer | None


_MOST_KEYS = 10_000


class Throttle:
    """Counts tries by key, within a sliding window; the keys that were tried longest ago are forgotten first."""

    def __init__(self, most: int, within: timedelta, clock: Callable[[], float] = monotonic) -> None:
        """`clock` gives seconds."""
        self._most = most
        self._within = within.total_seconds()
        self._clock = clock
        self._tries: dict[str, deque[float]] = {}

    def take(self, key: str) -> float:
        """Count a try; 0 if it is allowed, else the seconds until the next one is, and it does not count."""
        now = self._clock()
        tries = self._tries.pop(key, None) or deque()
        while tries and tries[0] <= now - self._within:
            tries.popleft()
        allowed = len(tries) < self._most
        if allowed:
            tries.append(now)
        self._tries[key] = tries
        if len(self._tries) > _MOST_KEYS:
            del self._tries[next(iter(self._tries))]
        return 0.0 if allowed else tries[0] + self._within - now
