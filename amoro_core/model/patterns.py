"""Patterns for names of tables: `shop.*`, `*.orders`, ``shop.db.`two words`_?``."""

import re
from collections.abc import Callable, Iterable

from amoro_core.errors import InvalidArgument
from amoro_core.model.tables import TableIdentifier

_WILD = frozenset("*?[")
_PIECE = re.compile(r"`((?:[^`]|``)+)`(?!`)|(\[!?\]?[^\]`\s]*\])|([*?.])|([^`\s\[])")
#: Stands between the parts of a name; no name has it.
_DOT = "\x1f"


def is_pattern(text: str) -> bool:
    """Whether a text names tables by a pattern: it has *, ? or [ outside of backticks."""
    return bool(_WILD & set(re.sub(r"`(?:[^`]|``)*`", "", text)))


def parse_pattern(text: str) -> "TablePattern":
    """The pattern that the text writes down.

    `*` stands for any characters, dots between parts included, `?` for one, `[abc]` and `[!abc]` for one of some; a
    part in backticks stands for itself. Raises InvalidArgument.
    """
    expression, first, position = "", "", 0
    while match := _PIECE.match(text, position):
        quoted, some, special, plain = match.groups()
        if quoted is not None:
            expression += re.escape(quoted.replace("``", "`"))
        elif some is not None:
            body = re.sub(r"([^\w!-])", r"\\\1", some[1:-1])
            expression += f"[^{body[1:]}{_DOT}]" if body.startswith("!") else f"[{body}]"
        elif special is not None:
            expression += {"*": ".*", "?": f"[^{_DOT}]", ".": _DOT}[special]
        else:
            expression += re.escape(plain)
        position = match.end()
        if special == "." and not first:
            first = text[: match.start()]
    try:
        if position != len(text) or not text:
            raise ValueError("it has characters that do not belong there")
        return TablePattern(text, re.compile(expression, re.DOTALL), first)
    except (ValueError, re.error) as error:
        raise InvalidArgument(
            f"{text!r} is not a pattern for tables",
            hint="Write one such as 'shop.*' or '*.orders'; put a part with a dot or a space in backticks.",
        ) from error


class TablePattern:
    """Says of tables whether they are meant."""

    def __init__(self, text: str, expression: re.Pattern[str], first: str) -> None:
        """Use `parse_pattern`; `first` is what stands before the first dot."""
        self.text = text
        self._expression = expression
        self._first = first

    def catalogs(self, known: Iterable[str]) -> list[str]:
        """The catalogs among the known ones that can have tables that are meant."""
        every = list(known)
        named = self._first.strip("`").replace("``", "`")
        if len(every) == 1 or not self._first or is_pattern(self._first):
            return every
        return [name for name in every if name == named]

    def matcher(self, only_catalog: str | None) -> Callable[[TableIdentifier], bool]:
        """A test for tables; the name of the only known catalog may be left out of the pattern."""

        def matches(table: TableIdentifier) -> bool:
            if self._expression.fullmatch(_DOT.join((table.catalog, *table.in_catalog))):
                return True
            return table.catalog == only_catalog and bool(self._expression.fullmatch(_DOT.join(table.in_catalog)))

        return matches
