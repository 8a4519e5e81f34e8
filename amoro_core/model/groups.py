"""The properties of an optimizer group that have a meaning here; any others are free for people and tools."""

import difflib
from collections.abc import Callable, Collection, Iterable

from amoro_core.errors import InvalidArgument
from amoro_core.model.quantities import parse_memory
from amoro_core.records import record

MEMORY = "memory"
MAX_INPUT_PER_THREAD = "max-input-file-size-per-thread"
TABLE_METRICS = "table-metrics"
KEYS = (MEMORY, MAX_INPUT_PER_THREAD, TABLE_METRICS)
_CLOSE = 0.83  # similarity: thred suggests threads, my-address does not suggest address
_MIB = 1024 * 1024
DEFAULT_MAX_INPUT_BYTES = 512 * _MIB


@record
class GroupConfig:
    """The typed properties of a group, in bytes."""

    memory_per_thread: int | None = None  # the minimum that an optimizer of the group must offer
    max_input_per_thread: int = DEFAULT_MAX_INPUT_BYTES  # of one process
    has_table_metrics: bool = False  # Prometheus is told of each of its tables


@record
class Capacity:
    """The capacity of a group."""

    threads: int
    max_input_per_thread: int


def parse_group(properties: Iterable[tuple[str, str]]) -> GroupConfig:
    """The configuration in the properties. Raises InvalidArgument naming key and value.

    As in Amoro, a bare number means megabytes for `memory` and bytes for `max-input-file-size-per-thread`; both may
    have a unit.
    """
    known = dict(properties)
    memory = _parsed(known, MEMORY, _megabytes)
    most = _parsed(known, MAX_INPUT_PER_THREAD, parse_memory)
    told = known.get(TABLE_METRICS, "false").strip().lower()
    if told not in ("true", "false"):
        raise InvalidArgument(f"{TABLE_METRICS} has the malformed value {known[TABLE_METRICS]!r}: it is true or false")
    return GroupConfig(memory, most or DEFAULT_MAX_INPUT_BYTES, told == "true")


def refuse_misspelt(keys: Iterable[str], known: Collection[str]) -> None:
    """Raise InvalidArgument for a key that is almost a known one; any others are free for people and tools."""
    for key in keys:
        if key not in known and (close := difflib.get_close_matches(key, known, n=1, cutoff=_CLOSE)):
            raise InvalidArgument(f"the property {key!r} is not known", hint=f"Did you mean {close[0]}?")


def _parsed(properties: dict[str, str], key: str, parse: Callable[[str], int]) -> int | None:
    if key not in properties:
        return None
    try:
        return parse(properties[key])
    except ValueError as error:
        raise InvalidArgument(f"{key} has the malformed value {properties[key]!r}: {error}") from error


def _megabytes(text: str) -> int:
    return parse_memory(f"{text}MB" if text.strip().isdecimal() else text)
