"""Patterns for dates as Java's `DateTimeFormatter` writes them, as far as names of tags and of partitions need them."""

import re
from datetime import datetime

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


class DatePattern:
    """A pattern of the letters yyyy, yy, MM, dd, HH, mm, ss, and of other text; letters of text stand in quotes."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError for a pattern with other letters, or with a quote that is not closed."""
        self.pattern = pattern
        self._parts = _parts(pattern)

    def format(self, moment: datetime) -> str:
        """The moment in the pattern's form, in the zone that it has."""
        return "".join(part.format(moment, moment.year % 100) for part in self._parts)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DatePattern) and other.pattern == self.pattern

    def __hash__(self) -> int:
        return hash(self.pattern)

    def __repr__(self) -> str:
        return f"DatePattern({self.pattern!r})"


def _parts(pattern: str) -> list[str]:
    parts: list[str] = []
    position = 0
    while position < len(pattern):
        match = _TOKEN.match(pattern, position)
        if match is None:
            raise ValueError(f"the quote at character {position + 1} is not closed")
        quoted, letter, other = match.groups()
        if letter is not None:
            parts.append(_of_letters(match[0]))
        elif quoted == "":
            parts.append("'")  # '' outside of a quoted text
        else:
            text = other if other is not None else quoted.replace("''", "'")
            parts.append(text.replace("{", "{{").replace("}", "}}"))
        position = match.end()
    return parts


def _of_letters(run: str) -> str:
    if run not in _WIDTHS:
        raise ValueError(f"{run} is none of {', '.join(_WIDTHS)}; letters that are text stand in quotes: '{run}'")
    return _WIDTHS[run]
