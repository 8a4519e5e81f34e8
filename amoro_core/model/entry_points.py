"""Entry points of installed packages: one search finds those of all groups, and reads what every package says."""

import sys
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any


def extensions(group: str) -> list[EntryPoint]:
    """The entry points of a group, in order of their names."""
    return sorted(_entry_points_on(tuple(sys.path)).select(group=group), key=lambda point: point.name)


@lru_cache(1)
def _entry_points_on(path: tuple[str, ...]) -> Any:
    """All entry points of packages on that path; their class depends on Python's version."""
    return entry_points()
