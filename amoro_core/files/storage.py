"""Stored files as their storage sees them: listed in pages, looked at, deleted many at once."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from amoro_core.model.stored import Removal, StoredFile

T = TypeVar("T")

#: Files of a page, and of a request that deletes: what S3 takes at once.
PAGE = 1000
#: What obstore reaches.
OBJECT_SCHEMES = frozenset(("s3", "oss", "gs", "abfs", "abfss", "wasb", "wasbs"))
#: Requests under way at once where each is for one file.
_AT_ONCE = 16


class Storage(Protocol):
    """One kind of storage. Paths are normalised places; every method may raise OSError."""

    def pages(self, prefix: str) -> Iterator[Sequence[StoredFile]]:
        """All files below a prefix, each with its path as the prefix is spelled; nothing where there is none."""

    def stat(self, path: str) -> StoredFile | None:
        """The file as it is now; None when it is not there."""

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """Delete files, and nothing else than files; what became of each."""


def each_at_once(work: Callable[[str], T], paths: Iterable[str]) -> dict[str, T]:
    """The work done for each path, several at a time. Raises what the work raises."""
    wanted = list(dict.fromkeys(paths))
    if len(wanted) < 2:
        return {path: work(path) for path in wanted}
    with ThreadPoolExecutor(min(_AT_ONCE, len(wanted)), thread_name_prefix="storage") as pool:
        return dict(zip(wanted, pool.map(work, wanted), strict=True))
