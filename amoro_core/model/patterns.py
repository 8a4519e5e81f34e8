"""Patterns for names of tables: `shop.*`, `*.orders`, ``shop.db.`two words`_?``."""

import re
from collections.abc import Callable, Iterable

from amoro_core.errors import InvalidArgument
from amoro_core.model.tables import TableIdentifier

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
