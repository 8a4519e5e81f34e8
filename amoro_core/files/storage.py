"""Storage operations on files: listing in pages, stat, and bulk deletion."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

from amoro_core.model.paths import AZURE_SCHEMES
from amoro_core.model.stored import EVERYWHERE, KeyRange, Removal, StoredFile

T = TypeVar("T")

#: Files in a page, and in a delete request: the limit of S3.
PAGE = 1000
#: Schemes supported by obstore.
OBJECT_SCHEMES = AZURE_SCHEMES | {"s3", "oss", "gs"}
#: Concurrent requests where each is for one file.
_AT_ONCE = 16


class Storage(Protocol):
    """One kind of storage. Paths are normalised locations; every method may raise OSError."""

    def pages(self, prefix: str, within: KeyRange = EVERYWHERE) -> Iterator[Sequence[StoredFile]]:
        """All files below a prefix, their paths spelled as the prefix is; nothing when there are none.

        Only files in the range are returned, and of the others as few as possible are requested.
        """

    def stat(self, path: str) -> StoredFile | None:
        """The file's present state; None when it does not exist."""

    def delete_many(self, paths: Sequence[str]) -> Mapping[str, Removal]:
        """Delete files, nothing but files, and return the outcome of each."""

    def move(self, source: str, target: str) -> Removal:
        """Rename a file; folders above the target are made.

        MOVED, also when only the target exists: it was moved before. CHANGED when both do: the target is another file,
        and neither is touched. ABSENT when neither exists.
        """


def each_at_once(work: Callable[[str], T], paths: Iterable[str]) -> dict[str, T]:
    """The result of `work` for each path, several run concurrently. Raises what `work` raises."""
    wanted = list(dict.fromkeys(paths))
    if len(wanted) < 2:
        return {path: work(path) for path in wanted}
    with ThreadPoolExecutor(min(_AT_ONCE, len(wanted)), thread_name_prefix="storage") as pool:
        return dict(zip(wanted, pool.map(work, wanted), strict=True))
