"""Date patterns of Java's `DateTimeFormatter`, as far as names of tags and of partitions need them."""

import re
from calendar import monthrange
from datetime import datetime
from typing import NamedTuple

#: A quoted text (in which '' is a quote), a run of one letter, or anything but letters and quotes.
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
#: From the most to the least significant part.
_WIDTHS_IN_ORDER = ("yyyy", "MM", "dd", "HH", "mm", "ss")


class DatePattern:
    """A pattern of the letters yyyy, yy, MM, dd, HH, mm, ss, and of other text, whose letters must be quoted."""

    def __init__(self, pattern: str) -> None:
        """Raises ValueError for a pattern with other letters, or with an unclosed quote."""
        self.pattern = pattern
        tokens = _tokens(pattern)
        self._parts = [_WIDTHS[token.text] if token.is_letters else _escaped(token.text) for token in tokens]
        self._letters = [token.text for token in tokens if token.is_letters]
        groups = (f"({_DIGITS[token.text]})" if token.is_letters else re.escape(token.text) for token in tokens)
        self._form = re.compile("".join(groups), re.ASCII)

    def format(self, moment: datetime) -> str:
        """The moment formatted by the pattern, in its own zone."""
        return "".join(part.format(moment, moment.year % 100) for part in self._parts)

    def read(self, text: str) -> datetime | None:
        """The moment in a text of the pattern, without a zone; None for any other text.

        Without days in the pattern it is the last day of the month or year; without hours, the beginning of the day.
        """
        found = self._form.fullmatch(text)
        numbers = () if found is None else map(int, found.groups())
        said = dict(zip(self._letters, numbers, strict=False))  # empty without numbers
        if len(said) < len(self._letters):
            return None  # another text, or a pattern with a repeated part
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
        """Whether later moments give greater strings, so that the greatest of many strings is the latest moment."""
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
