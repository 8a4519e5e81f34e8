"""Access: roles, tokens, users, OpenID terms, and the TLS files of a coordinator and its clients."""

import hashlib
import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from pathlib import Path
from time import monotonic
from urllib.parse import urlsplit

from amoro_core.errors import InvalidArgument, NotAllowed
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.text_sanitizing import LONGEST_NAME, Secret, briefly, is_name


class Role(StrEnum):
    """The permissions of a token."""

    VIEWER = "viewer"  # read
    OPERATOR = "operator"  # also control optimizing and optimizers
    ADMIN = "admin"  # also everything else that the command line does
    ENROLMENT = "enrolment"  # register an optimizer, nothing else

    def allows(self, needed: "Role") -> bool:
        return self is needed or (self in _RANKS and needed in _RANKS and _RANKS.index(self) > _RANKS.index(needed))


_RANKS = (Role.VIEWER, Role.OPERATOR, Role.ADMIN)


@dataclass(frozen=True, slots=True)
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


_WILD = frozenset("*?[")
_PIECE = re.compile(r"`((?:[^`]|``)+)`(?!`)|(\[!?\]?[^\]`\s]*\])|(\*\*|[*?.])|([^`\s\[])")
#: Separates the parts of a name; no name contains it.
_DOT = "\x1f"


def is_pattern(text: str) -> bool:
    """Whether a text names tables by a pattern: it has *, ? or [ outside of backticks."""
    return bool(_WILD & set(re.sub(r"`(?:[^`]|``)*`", "", text)))


def parse_pattern(text: str, *, within_parts: bool = False) -> "TablePattern":
    """The pattern in the text.

    `*` matches any characters, dots between parts included, `?` one, `[abc]` and `[!abc]` one of a set; a part in
    backticks matches itself. `within_parts`: `*` stays within a part, `**` does not. Raises InvalidArgument.
    """
    expression, first, position, parts = "", "", 0, 1
    literal, characters, is_wild = 0, 0, False
    some_chars = f"[^{_DOT}]*" if within_parts else ".*"
    while match := _PIECE.match(text, position):
        quoted, some, special, plain = match.groups()
        if quoted is not None:
            expression += re.escape(quoted.replace("``", "`"))
        elif some is not None:
            body = re.sub(r"([^\w!-])", r"\\\1", some[1:-1])
            expression += f"[^{body[1:]}{_DOT}]" if body.startswith("!") else f"[{body}]"
        elif special is not None:
            expression += {"*": some_chars, "**": ".*", "?": f"[^{_DOT}]", ".": _DOT}[special]
        else:
            expression += re.escape(plain)
        position = match.end()
        characters += len(quoted.replace("``", "`")) if quoted is not None else plain is not None
        is_wild |= some is not None or special in ("*", "**", "?")
        if special == ".":
            literal, is_wild = literal + (not is_wild), False
        parts += special == "."
        if special == "." and not first:
            first = text[: match.start()]
    try:
        if position != len(text) or not text:
            raise ValueError("it has invalid characters")
        rank = (literal + (not is_wild), characters)
        return TablePattern(text, re.compile(expression, re.DOTALL), first, parts, rank)
    except (ValueError, re.error) as error:
        raise InvalidArgument(
            f"{text!r} is not a pattern for tables",
            hint="Write one such as 'shop.*' or '*.orders'; put a part with a dot or a space in backticks.",
        ) from error


class TablePattern:
    """A pattern of table names."""

    def __init__(self, text: str, expression: re.Pattern[str], first: str, parts: int, rank: tuple[int, int]) -> None:
        """Use `parse_pattern`; `first` is the part before the first dot, `parts` how many parts are written, `rank` how
        specific it is: literal parts, then literal characters."""
        self.text = text
        self.parts = parts
        self.rank = rank
        self._expression = expression
        self._first = first

    def catalogs(self, names: Iterable[str]) -> list[str]:
        """The known catalogs that can have matching tables."""
        catalogs = list(names)
        named = self._first.strip("`").replace("``", "`")
        if len(catalogs) == 1 or not self._first or is_pattern(self._first):
            return catalogs
        return [name for name in catalogs if name == named]

    def matcher(self, only_catalog: str | None) -> Callable[[TableIdentifier], bool]:
        """A predicate of tables; the pattern may omit the name of the only known catalog."""

        def matches(table: TableIdentifier) -> bool:
            if self._expression.fullmatch(_DOT.join((table.catalog, *table.in_catalog))):
                return True
            return table.catalog == only_catalog and bool(self._expression.fullmatch(_DOT.join(table.in_catalog)))

        return matches


class Channel(StrEnum):
    """The way by which a call came."""

    GRPC = "grpc"
    REST = "rest"
    PAGE = "page"
    MCP = "mcp"
    LOCAL = "local"  # of the coordinator's own process


@dataclass(frozen=True, slots=True)
class Principal:
    """An account that was authenticated, for one call or one HTTP session."""

    name: str
    role: Role
    pattern: str = ""  # of the tables on which an operator may act; "": all
    way: Channel = Channel.GRPC
    address: str = ""  # from where the call came; "": not known
    is_user: bool = False  # else a token
    said: str = ""  # the person's name as the client states it; it is not authenticated

    @property
    def title(self) -> str:
        """The account in words, as "the token airflow"."""
        return f"the {'user' if self.is_user else 'token'} {self.name}"

    @property
    def caller(self) -> str:
        """The account in words, with the person's name if the client states one."""
        return f"user {self.said} with {self.title}" if self.said else self.title

    def may_act_on(self, table: TableIdentifier) -> bool:
        """Whether the pattern admits the table; it limits operators alone."""
        return not self.pattern or self.role is not Role.OPERATOR or table_pattern(self.pattern).matcher(None)(table)


def anonymous(way: Channel, address: str, stated: str = "") -> Principal:
    """Nobody known, who came that way: for the audit of what was refused."""
    return Principal("", Role.VIEWER, way=way, address=address, said=stated)


def checked_pattern(text: str, role: Role) -> str:
    """The pattern for an account of that role. Raises InvalidArgument for one that can match no table."""
    if not text:
        return ""
    if role is not Role.OPERATOR:
        raise InvalidArgument(
            f"a pattern limits what an operator acts on; the role {role} has none",
            hint="Leave out --on, or give the role operator.",
        )
    pattern = table_pattern(text)
    if pattern.parts < 3 and "**" not in text:
        raise InvalidArgument(
            f"{text!r} matches no table: a name has a catalog, a namespace and a table, and * stays within one of them",
            hint="All tables of a catalog: 'shop.**'; of a namespace: 'shop.db.*'.",
        )
    return text


@lru_cache(maxsize=256)
def table_pattern(text: str) -> TablePattern:
    """The pattern of an account's or a listener's tables. Raises InvalidArgument."""
    return parse_pattern(text, within_parts=True)


SECURE = "grpcs://"  # before HOST:PORT: encrypted, also without a CA file


@dataclass(frozen=True, slots=True)
class Trust:
    """Files in PEM; with any of them the channel is encrypted. Without a CA file public authorities are trusted."""

    ca_file: Path | None = None
    certificate_file: Path | None = None  # of the client, for a coordinator that asks for one
    key_file: Path | None = None


PLAIN = Trust()  # unencrypted, except for an address with grpcs://


@dataclass(frozen=True, slots=True)
class Certificates:
    """Files in PEM: the coordinator's certificate chain, its key, and the authority of its clients."""

    certificate: Path
    key: Path
    client_ca: Path | None = None  # with it only clients with a certificate of this authority are let in


_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1", "[::1]"})


def is_loopback(host: str) -> bool:
    """Whether the host is reachable from this machine only."""
    return host in _LOOPBACK


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


#: Names of the provider's users begin with it, those of our own users never do: names cannot collide.
PREFIX = "oidc:"


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
        return _digest(*parts)

    def name_of(self, claims: Mapping[str, object]) -> str:
        """The person's name here. Raises NotAllowed for one that can't be a name, or an e-mail address not verified."""
        value = claims.get(self.name_claim)
        name = f"{PREFIX}{value}" if isinstance(value, str) and value else ""
        if not is_name(name):
            raise NotAllowed(
                f"the claim {self.name_claim} is {briefly(repr(value), 100)}, which can't be a name",
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


def is_safe_url(url: str, *, issuer: str = "") -> bool:
    """Whether requests to the URL are encrypted or stay on this machine.

    With `issuer`, plain HTTP on this machine is right only if the issuer has it, too.
    """
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return False
    if not host or not url.isprintable() or " " in url or parts.username is not None or parts.fragment:
        return False
    is_near = parts.scheme == "http" and is_loopback(host)
    return parts.scheme == "https" or (is_near and (not issuer or issuer.startswith("http:")))


def parse_rule(text: str) -> RoleRule:
    """The rule that `VALUE=ROLE` or `VALUE=operator PATTERN` writes. Raises InvalidArgument."""
    value, _, given = text.rpartition("=")
    word, _, pattern = given.strip().partition(" ")
    role = next((rank for rank in _RANKS if rank.value == word), None)
    if not value.strip() or role is None:
        raise InvalidArgument(
            f"{text!r} maps no value to a role", hint="Write data-team=operator, or data-team=operator sales.**."
        )
    return RoleRule(value.strip(), role, checked_pattern(pattern.strip(), role))


def _claim(claims: Mapping[str, object], name: str) -> object:
    """The claim of that name; with dots, the one within others."""
    if name in claims:
        return claims[name]
    value: object = claims
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Sequence):
        yield from (item for item in value if isinstance(item, str))


@dataclass(frozen=True, slots=True)
class StoredAnswer:
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
    answer: StoredAnswer | None


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


_LONGEST_TOKEN = 1024
_LONGEST_TOKEN_FILE = 64 * 1024  # bytes read of a file, which may be an endless device


def parse_token(text: str) -> Secret:
    """The token, stripped of spaces. Raises ValueError with the reason, without showing the token."""
    token = text.strip()
    if not token:
        raise ValueError("it is empty")
    if not token.isascii() or not token.isprintable() or " " in token or len(token) > _LONGEST_TOKEN:
        raise ValueError("it holds something other than one token")
    return Secret(token)


def read_token(path: Path) -> Secret:
    """The token in the file, which may be a pipe. Raises ValueError with the reason, OSError."""
    with path.open("rb") as file:
        return parse_token(file.read(_LONGEST_TOKEN_FILE).decode("latin-1"))


def given_token(file: Path | None, text: str, kind: str) -> Secret | None:
    """The token in the file, else in a text, which is AMORO_TOKEN's; None for "". Raises InvalidArgument."""
    try:
        if file is not None:
            return read_token(file)
        return parse_token(text) if text else None
    except (OSError, ValueError) as error:
        source = "AMORO_TOKEN" if file is None else f"The token file {file}"
        message = f"{source} can't be used: {token_problem(error)}"
        raise InvalidArgument(message, hint=f"It must hold the {kind} token and nothing else.") from error


def token_problem(error: OSError | ValueError) -> str:
    """What is wrong with a token or its file, as the end of a sentence."""
    if isinstance(error, FileNotFoundError):
        return "it does not exist"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
