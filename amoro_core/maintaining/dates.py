"""Patterns for dates as Java's `DateTimeFormatter` writes them, as far as names of tags and of partitions need them."""

import re
from calendar import monthrange
from datetime import datetime
from typing import NamedTuple

#: A quoted text (in which '' is one quote), a run of one letter, or anything else but letters and quotes.
_TOKEN = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|([^A-Za-z']+)")
_WIDTHS = {
    "yyyy": "{0.year:04d}",
    "yy": "{1:02d}",
    "MM": "{0.month:02d}",
    "dd": "{0.day:02d}",
    "HH": "{0.hour:02d}",
    "mm": "{0.minute:02d}",
    "ss": "{0.second:02d}",
}
_DIGITS = {run: f"[0-9]{{{len(run)}}}" for run in _WIDTHS}
#: From the greatest part of a moment to the least.
_WIDTHS_IN_ORDER = ("yyyy", "MM", "dd", "HH", "mm", "ss")


class DatePattern:
    """A pattern of the letters yyyy, yy, MM, dd, HH, mm, ss, and of other text; letters of text stand in quotes."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError for a pattern with other letters, or with a quote that is not closed."""
        self.pattern = pattern
        tokens = _tokens(pattern)
        self._parts = [_WIDTHS[token.text] if token.is_letters else _escaped(token.text) for token in tokens]
        self._letters = [token.text for token in tokens if token.is_letters]
        groups = (f"({_DIGITS[token.text]})" if token.is_letters else re.escape(token.text) for token in tokens)
        self._form = re.compile("".join(groups), re.ASCII)

    def format(self, moment: datetime) -> str:
        """The moment in the pattern's form, in the zone that it has."""
        return "".join(part.format(moment, moment.year % 100) for part in self._parts)

    def read(self, text: str) -> datetime | None:
        """The moment that a text in the pattern's form names, without a zone; None for any other text.

        Of a month the last day, of a year its last, where the pattern has no days; of a day its beginning.
        """
        found = self._form.fullmatch(text)
        numbers = () if found is None else map(int, found.groups())
        said = dict(zip(self._letters, numbers, strict=False))  # nothing where there are no numbers
        if len(said) < len(self._letters):
            return None  # no such text, or a pattern that says something twice
        year = said.get("yyyy", said.get("yy", -1) + 2000 if "yy" in said else None)
        if year is None or not 0 < year <= 9999:
            return None
        month = said.get("MM", 12)
        try:
            day = said.get("dd", monthrange(year, month)[1])
            return datetime(year, month, day, said.get("HH", 0), said.get("mm", 0), said.get("ss", 0))
        except ValueError:  # the 30th of February, and the like
            return None

    @property
    def keeps_order(self) -> bool:
        """Whether later moments are greater texts, so that the greatest text of many names the latest moment."""
        return self._letters == list(_WIDTHS_IN_ORDER[: len(self._letters)]) and bool(self._letters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatePattern) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"DatePattern({self.pattern!r})"


class _Token(NamedTuple):
    text: str
    is_letters: bool


def _tokens(pattern: str) -> list[_Token]:
    found: list[_Token] = []
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise ValueError(f"the quote at character {position + 1} is not closed")
        quoted, letter, other = match.groups()
        if letter is not None:
            found.append(_Token(_known(match[0]), is_letters=True))
        elif quoted == "":
            found.append(_Token("'", is_letters=False))  # '' outside of a quoted text
        else:
            text = other if other is not None else quoted.replace("''", "'")
            found.append(_Token(text, is_letters=False))
        position = match.end()
    return found


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _known(run: str) -> str:
    if run not in _WIDTHS:
        raise ValueError(f"{run} is none of {', '.join(_WIDTHS)}; letters that are text stand in quotes: '{run}'")
    return run
