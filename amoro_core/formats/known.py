"""Facts about a table's files, read once for all attempts of a commit: files are immutable."""

from collections.abc import Iterable, Mapping
from contextlib import suppress

from amoro_core.errors import DataFileMissing, TableRefused, UnreadableFile
from amoro_core.formats.port import Rewritable
from amoro_core.model.commits import FileFacts, Head, PlanRecord
from amoro_core.model.files import DeleteFile, DeleteIdentity
from amoro_core.model.paths import normalise
from amoro_core.positions import PositionSet
from amoro_core.validating.joining import to_decide
from amoro_core.validating.sight import Positions, Read, every_input

_UNREADABLE = (DataFileMissing, UnreadableFile, TableRefused)

#: Larger delete files are not read to learn what they name: a position takes eight bytes of memory.
MAX_NAMING_BYTES = 64 * 1024 * 1024
MAX_NAMING_ROWS = 5_000_000


class KnownFiles:
    """Facts about files that were read; failures are not cached."""

    def __init__(self) -> None:
        self._facts: dict[str, FileFacts] = {}
        self._named: dict[DeleteIdentity, frozenset[str]] = {}
        self._positions: dict[DeleteIdentity, Positions] = {}  # on inputs of the one plan that this is for
        self._left_out: dict[int, Mapping[int, PositionSet]] = {}

    def facts(self, table: Rewritable, path: str) -> FileFacts:
        """Like the table's `file_facts`."""
        if path not in self._facts:
            self._facts[path] = table.file_facts(path)
        return self._facts[path]

    def read(self, table: Rewritable, record: PlanRecord, head: Head) -> Read:
        """What `to_decide` asks for, without what is too large or unreadable."""
        deletes, groups = to_decide(record, head)
        inputs = (given.data for group in record.groups for given in every_input(group))
        wanted = {normalise(data.path): data.record_count for data in inputs}
        positions: dict[DeleteIdentity, Positions] = {}
        for delete in deletes:
            if delete.identity not in self._positions and _is_small(delete):
                with suppress(*_UNREADABLE):
                    self._positions[delete.identity] = table.positions(delete, wanted)
            if delete.identity in self._positions:
                positions[delete.identity] = self._positions[delete.identity]
        left_out: dict[int, Mapping[int, PositionSet]] = {}
        for group in groups:
            if group.number not in self._left_out:
                with suppress(*_UNREADABLE):
                    self._left_out[group.number] = table.left_out(group)
            if group.number in self._left_out:
                left_out[group.number] = self._left_out[group.number]
        return Read(positions, left_out)

    def named(self, table: Rewritable, deletes: Iterable[DeleteFile]) -> dict[DeleteIdentity, frozenset[str]]:
        """The paths named by each position delete, without those that are too large or unreadable."""
        found: dict[DeleteIdentity, frozenset[str]] = {}
        for delete in deletes:
            if delete.identity not in self._named and _is_small(delete):
                with suppress(*_UNREADABLE):
                    self._named[delete.identity] = table.named_paths(delete)
            if delete.identity in self._named:
                found[delete.identity] = self._named[delete.identity]
        return found


def _is_small(delete: DeleteFile) -> bool:
    return delete.size_bytes <= MAX_NAMING_BYTES and delete.record_count <= MAX_NAMING_ROWS
