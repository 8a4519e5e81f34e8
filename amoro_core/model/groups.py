"""What an optimizer group's properties mean to us; any others are for people and tools."""

import difflib
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from amoro_core.errors import InvalidArgument
from amoro_core.model.quantities import parse_memory

MEMORY = "memory"
MAX_INPUT_PER_THREAD = "max-input-file-size-per-thread"
KEYS = (MEMORY, MAX_INPUT_PER_THREAD)
_CLOSE = 0.83  # thred is threads, my-address is not address
_MIB = 1024 * 1024
DEFAULT_MAX_INPUT_BYTES = 512 * _MIB


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The typed properties of a group, in bytes."""

    memory_per_thread: int | None = None  # the least that an optimizer of the group must offer
    max_input_per_thread: int = DEFAULT_MAX_INPUT_BYTES  # of one process


@dataclass(frozen=True, slots=True)
class Capacity:
    """What a group can work on at a time."""

    threads: int
    max_input_per_thread: int


def parse_group(properties: Iterable[tuple[str, str]]) -> GroupConfig:
    """The configuration that the properties say. Raises InvalidArgument that names key and value.

    As in Amoro a plain number is megabytes for `memory` and bytes for `max-input-file-size-per-thread`; both may have
    a unit.
    """
    known = dict(properties)
    memory = _parsed(known, MEMORY, _megabytes)
    most = _parsed(known, MAX_INPUT_PER_THREAD, parse_memory)
    return GroupConfig(memory, most or DEFAULT_MAX_INPUT_BYTES)


def refuse_misspelt(keys: Iterable[str], known: Collection[str]) -> None:
    """Raise InvalidArgument for a key that is almost a known one; any others are for people and tools."""
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
