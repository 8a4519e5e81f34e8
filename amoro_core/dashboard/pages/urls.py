"""Addresses of pages, and commands that do the same."""

import shlex
from collections.abc import Mapping
from urllib.parse import quote, urlencode


def to(*parts: str, **query: str | int) -> str:
    """The path of a page from its parts, which are percent-encoded, with a query of what is not ""."""
    path = "/" + "/".join(quote(part, safe="") for part in parts)
    return path + with_query(query)


def with_query(query: Mapping[str, str | int]) -> str:
    """The query with its question mark, without parameters that are ""; "" without any."""
    given = {key: value for key, value in query.items() if value != ""}
    return f"?{urlencode(given)}" if given else ""


def to_table(name: str, table_id: int, *parts: str, **query: str | int) -> str:
    """The path of a table's page or of one below it: by the name, or by the number where the name has a slash.

    Servers decode %2F before they find the route, so that such a name would be two parts of the path. Without
    a number (0) it is searched for.
    """
    if "/" in name and not table_id:
        return to("tables", text=name)
    return to("tables", str(table_id) if "/" in name else name, *parts, **query)


def command(*words: str) -> str:
    """A command line as a shell takes it."""
    return shlex.join(words)


def within(path: str) -> str:
    """The path if it leads to a page of this site, else "/": where a login may lead is the visitor's own word."""
    is_own = path.startswith("/") and not path.startswith(("//", "/\\")) and path.isprintable()
    return path if is_own else "/"
