"""Facts about a table's files, read once for all attempts of a commit: files are immutable."""

from collections.abc import Iterable

from amoro_core.errors import DataFileMissing, TableRefused, UnreadableFile
from amoro_core.formats.port import Rewritable
from amoro_core.model.commits import FileFacts
from amoro_core.model.files import DeleteFile, DeleteIdentity

#: Larger delete files are not read to learn what they name: a position takes eight bytes of memory.
MAX_NAMING_BYTES = 64 * 1024 * 1024
MAX_NAMING_ROWS = 5_000_000


class KnownFiles:
    """Facts about files that were read; failures are not cached."""

    def __init__(self) -> None:
        self._facts: dict[str, FileFacts] = {}
        self._named: dict[DeleteIdentity, frozenset[str]] = {}

    def facts(self, table: Rewritable, path: str) -> FileFacts:
        """Like the table's `file_facts`."""
        if path not in self._facts:
            self._facts[path] = table.file_facts(path)
        return self._facts[path]

    def named(self, table: Rewritable, deletes: Iterable[DeleteFile]) -> dict[DeleteIdentity, frozenset[str]]:
        """The paths named by each position delete, without those that are too large or unreadable."""
        found: dict[DeleteIdentity, frozenset[str]] = {}
        for delete in deletes:
            if delete.identity not in self._named and _is_small(delete):
                try:
                    self._named[delete.identity] = table.named_paths(delete)
                except (DataFileMissing, UnreadableFile, TableRefused):
                    continue
            if delete.identity in self._named:
                found[delete.identity] = self._named[delete.identity]
        return found


def _is_small(delete: DeleteFile) -> bool:
    return delete.size_bytes <= MAX_NAMING_BYTES and delete.record_count <= MAX_NAMING_ROWS
