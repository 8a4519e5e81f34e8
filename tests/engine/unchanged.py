"""What was read of small local files, for tests that read the same ones again and again."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from functools import lru_cache
from typing import TypeVar

T = TypeVar("T")

#: So many files of at most so many bytes.
MOST, LARGEST_BYTES = 4096, 64 << 10


def once(read: Callable[[str], T]) -> Callable[[str], T]:
    """The function, which reads a small local file again only when it has changed or another one is there.

    Nobody may change what it returns. Raises FileNotFoundError for a file that is gone, whatever was read of it before.
    """

    @lru_cache(MOST)
    def read_once(path: str, _: tuple[int, ...]) -> T:
        return read(path)

    def read_unless_known(path: str) -> T:
        place = local_path(path)
        if "://" in place:
            return read(path)
        stat = os.stat(place)
        if stat.st_size > LARGEST_BYTES:
            return read(path)
        return read_once(path, (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))

    return read_unless_known


def local_path(location: str) -> str:
    """The path of a local file's URI, with one slash or three; a plain path is itself."""
    return re.sub(r"^file:(//)?(?=/)", "", location)
