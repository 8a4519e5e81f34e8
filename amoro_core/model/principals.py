"""Who calls: an account with its role, the tables on which it may act, and the way by which it came."""

from enum import StrEnum
from functools import lru_cache

from amoro_core.errors import InvalidArgument
from amoro_core.model.patterns import TablePattern, parse_pattern
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.tokens import Role
from amoro_core.records import record


class Way(StrEnum):
    """The way by which a call came."""

    GRPC = "grpc"
    REST = "rest"
    PAGE = "page"
    MCP = "mcp"
    LOCAL = "local"  # of the coordinator's own process


@record
class Principal:
    """An account that was authenticated, for one call or one HTTP session."""

    name: str
    role: Role
    pattern: str = ""  # of the tables on which an operator may act; "": all
    way: Way = Way.GRPC
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


def stranger(way: Way, address: str, said: str = "") -> Principal:
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
