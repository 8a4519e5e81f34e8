"""SQL conditions in requests and table properties, in the grammar of Amoro's parser."""

import re

from pyiceberg.expressions import BooleanExpression
from pyiceberg.expressions.visitors import bind
from pyiceberg.schema import Schema

from amoro_core.iceberg.nanosecond_literals import compare_nanoseconds
from amoro_core.model.texts import briefly

#: The grammar of a condition, as a hint.
GRAMMAR = (
    "Write a condition on top-level columns with =, <>, <, <=, >, >=, BETWEEN, IN, IS NULL, NOT, AND, OR "
    "and constants like 5, 'text', '2026-01-31', '2026-01-31T00:00:00'."
)

compare_nanoseconds()

#: The string constants of a condition; splits it into these and the text between them.
_CONSTANT = re.compile(r"('(?:[^']|'')*')")
_TYPED = re.compile(r"\b(?:date|timestamp|time)\s*$", re.IGNORECASE)


def parse_condition(text: str, schema: Schema) -> BooleanExpression:
    """The condition, unbound.

    Raises ValueError for one that is malformed, names a column that the schema lacks, or compares it with a value of
    another type.
    """
    from pyiceberg.expressions.parser import parse  # with pyparsing, for those who have conditions

    # Whatever parser or binding raise (pyparsing's, pydantic's and built-in errors), the condition is at fault.
    try:
        expression = parse(_plain(text))
        if not isinstance(expression, BooleanExpression):
            raise TypeError("it is a value, not a condition")
        bind(schema, expression, case_sensitive=True)
    except Exception as error:
        raise ValueError(_told(error)) from error
    return expression


def _told(error: Exception) -> str:
    """What is wrong with a condition; the parser's own messages consist of its grammar."""
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    text, at = getattr(error, "pstr", None), getattr(error, "loc", None)  # pyparsing's
    if isinstance(text, str) and isinstance(at, int):
        rest = text[at:].strip()
        found = f"'{briefly(rest, 40)}'" if rest else "the end"
        return f"expected a condition, found {found} at character {at + 1}"
    field = re.match(r"Could not find field with name (.*?)(?:, case_sensitive=\w+)?$", str(error))
    return f"the table has no column {field[1]}" if field else briefly(str(error) or type(error).__name__)


def _plain(text: str) -> str:
    """The condition without syntax of Amoro's parser that pyiceberg's lacks: DATE '…', TIMESTAMP '…', `names`."""
    parts = _CONSTANT.split(text)
    between = [part.replace("`", '"') for part in parts[::2]]
    between[:-1] = [_TYPED.sub("", part) for part in between[:-1]]
    constants = [*parts[1::2], ""]
    return "".join(part + constant for part, constant in zip(between, constants, strict=True))
