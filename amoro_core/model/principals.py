"""Who calls: roles, tokens, and the TLS files by which a coordinator and its clients authenticate each other."""

import hashlib
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from pathlib import Path

from amoro_core.errors import InvalidArgument
from amoro_core.model.tables import TableIdentifier


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
        parts += special == "."
        if special == "." and not first:
            first = text[: match.start()]
    try:
        if position != len(text) or not text:
            raise ValueError("it has invalid characters")
        return TablePattern(text, re.compile(expression, re.DOTALL), first, parts)
    except (ValueError, re.error) as error:
        raise InvalidArgument(
            f"{text!r} is not a pattern for tables",
            hint="Write one such as 'shop.*' or '*.orders'; put a part with a dot or a space in backticks.",
        ) from error


class TablePattern:
    """A pattern of table names."""

    def __init__(self, text: str, expression: re.Pattern[str], first: str, parts: int) -> None:
        """Use `parse_pattern`; `first` is the part before the first dot, `parts` how many parts are written."""
        self.text = text
        self.parts = parts
        self._expression = expression
        self._first = first

    def catalogs(self, known: Iterable[str]) -> list[str]:
        """The known catalogs that can have matching tables."""
        every = list(known)
        named = self._first.strip("`").replace("``", "`")
        if len(every) == 1 or not self._first or is_pattern(self._first):
            return every
        return [name for name in every if name == named]

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
        return not self.pattern or self.role is not Role.OPERATOR or _matcher(self.pattern).matcher(None)(table)


def anonymous(way: Channel, address: str, said: str = "") -> Principal:
    """Nobody known, who came that way: for the audit of what was refused."""
    return Principal("", Role.VIEWER, way=way, address=address, said=said)


def checked_pattern(text: str, role: Role) -> str:
    """The pattern for an account of that role. Raises InvalidArgument for one that can match no table."""
    if not text:
        return ""
    if role is not Role.OPERATOR:
        raise InvalidArgument(
            f"a pattern limits what an operator acts on; the role {role} has none",
            hint="Leave out --on, or give the role operator.",
        )
    pattern = _matcher(text)
    if pattern.parts < 3 and "**" not in text:
        raise InvalidArgument(
            f"{text!r} matches no table: a name has a catalog, a namespace and a table, and * stays within one of them",
            hint="All tables of a catalog: 'shop.**'; of a namespace: 'shop.db.*'.",
        )
    return text


@lru_cache(maxsize=256)
def _matcher(text: str) -> TablePattern:
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
