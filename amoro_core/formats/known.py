"""Facts about a table's files, read once for all attempts of a commit: files are immutable."""

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from amoro_core.errors import DataFileMissing, TableRefused, UnreadableFile
from amoro_core.files.row_lookup import Place, RowsNotFound
from amoro_core.formats.port import Rewritable
from amoro_core.model.commits import FileFacts, Group, Head, PlanRecord
from amoro_core.model.files import DataFile, DeleteFile, DeleteIdentity
from amoro_core.model.paths import normalise
from amoro_core.positions import PositionSet
from amoro_core.validating.looking_up import to_look_up
from amoro_core.validating.reading import to_read
from amoro_core.validating.sight import Found, Positions, Read, Sight, every_input, look

_UNREADABLE = (DataFileMissing, UnreadableFile, TableRefused)

#: Larger delete files are not read to learn what they name: a position takes eight bytes of memory.
MAX_NAMING_BYTES = 64 * 1024 * 1024
MAX_NAMING_ROWS = 5_000_000


class KnownFiles:
    """Facts about files that were read; failures are not cached."""

    def __init__(self) -> None:
        self._facts: dict[str, FileFacts] = {}
        self._positions: dict[DeleteIdentity, tuple[frozenset[str], Positions]] = {}  # with the paths asked for
        self._left_out: dict[int, Mapping[int, PositionSet]] = {}
        self._places: dict[int, dict[Place, Place | None]] = {}  # by task; None: the row is in no output

    def facts(self, table: Rewritable, path: str) -> FileFacts:
        """Like the table's `file_facts`."""
        if path not in self._facts:
            self._facts[path] = table.file_facts(path)
        return self._facts[path]

    def look(self, table: Rewritable, record: PlanRecord, head: Head) -> Sight:
        """The head as seen from the plan, with what `to_read` asks for but what is too large or unreadable."""
        sight = look(record, head)
        deletes, groups = to_read(sight)
        inputs = (given.data for group in record.groups for given in every_input(group))
        positions = self.positions(table, deletes, inputs)
        left_out: dict[int, Mapping[int, PositionSet]] = {}
        for group in groups:
            if group.number not in self._left_out:
                with suppress(*_UNREADABLE):
                    self._left_out[group.number] = table.left_out(group)
            if group.number in self._left_out:
                left_out[group.number] = self._left_out[group.number]
        sight = replace(sight, read=Read(positions, left_out))
        found = {group.number: self._found(table, group, rows) for group, rows in to_look_up(sight)}
        return replace(sight, read=Read(positions, left_out, found))

    def _found(self, table: Rewritable, group: Group, wanted: Mapping[int, PositionSet]) -> Found:
        """Where these rows of the inputs are in the outputs; those that were found before are not looked up again."""
        count = sum(len(positions) for positions in wanted.values())
        if group.look_up is not None and count > group.look_up.most_rows:
            return Found(problem=f"they are {count}, and at most {group.look_up.most_rows} are looked up")
        known = self._places.setdefault(group.number, {})
        places = [(at, position) for at, positions in wanted.items() for position in positions.ascending().tolist()]
        left = _by_file(place for place in places if place not in known)
        try:
            found = table.look_up(group, left, _by_file(place for place in known.values() if place is not None))
        except RowsNotFound as error:
            return Found(problem=str(error))
        except _UNREADABLE as error:
            return Found(problem=error.message)
        known.update({place: found.get(place) for place in places if place not in known})
        return Found(_by_file(there for place in places if (there := known[place]) is not None))

    def positions(
        self, table: Rewritable, deletes: Iterable[DeleteFile], files: Iterable[DataFile]
    ) -> dict[DeleteIdentity, Positions]:
        """What each position delete deletes of these files, without deletes that are too large or unreadable."""
        rows = {normalise(file.path): file.record_count for file in files}
        found: dict[DeleteIdentity, Positions] = {}
        for delete in deletes:
            asked, positions = self._positions.get(delete.identity, (None, {}))
            if (asked is None or not rows.keys() <= asked) and _is_small(delete):
                # Groups that are committed one after the other ask for other files each.
                with suppress(*_UNREADABLE):
                    asked, positions = frozenset(rows), table.positions(delete, rows)
                    self._positions[delete.identity] = asked, positions
            if asked is not None and rows.keys() <= asked:
                found[delete.identity] = positions
        return found


def _by_file(places: Iterable[Place]) -> dict[int, PositionSet]:
    found: dict[int, list[int]] = {}
    for at, position in places:
        found.setdefault(at, []).append(position)
    return {at: PositionSet.of(positions) for at, positions in sorted(found.items())}


def _is_small(delete: DeleteFile) -> bool:
    return delete.size_bytes <= MAX_NAMING_BYTES and delete.record_count <= MAX_NAMING_ROWS
