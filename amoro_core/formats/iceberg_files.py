"""An Iceberg table's files in its storage: search, guard and deletion."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from datetime import datetime

from amoro_core.files.inventory import inventory
from amoro_core.files.io import FileAccess
from amoro_core.files.path_keys import Keys, Place
from amoro_core.files.table_uuids import table_uuids
from amoro_core.formats.iceberg_loaded import LoadedIcebergTable
from amoro_core.iceberg.ground import ground
from amoro_core.iceberg.guarding import Guard
from amoro_core.iceberg.in_flight import uncommitted
from amoro_core.iceberg.metadata import read_locations, write_locations
from amoro_core.iceberg.reachable import named, named_in_ranges, sampled
from amoro_core.maintaining.places import Ground, Named
from amoro_core.maintaining.trash import Trash, root_of, trash_of
from amoro_core.model.config import effective_properties
from amoro_core.model.stored import Reach, Removal, StoredFile


class IcebergFiles(LoadedIcebergTable):
    """The roles `Searchable` and `Sweepable` of an Iceberg table."""

    def ground(self) -> Ground:
        """The locations of the table's files, with the catalog's properties of equal names."""
        metadata, grant = self._table.metadata, self._grant()
        readable, writable = read_locations(metadata, grant), write_locations(metadata, grant)
        return ground(self._table, readable, writable, dict(self._config.properties))

    def named(self) -> Named:
        """Everything that any snapshot references, including removed files."""
        return named(self._table)

    def named_in_ranges(self, cuts: Sequence[str]) -> Sequence[Mapping[Place, Keys]]:
        """The same as keys, apart for each range of paths."""
        return named_in_ranges(self._table, cuts)

    def sampled(self) -> Sequence[str]:
        """Some of the files that it names, from all over it."""
        return sampled(self._table)

    def pages(self, place: str) -> Iterator[Sequence[StoredFile]]:
        """All files below a place, in pages."""
        return self._access(self._table).pages(place)

    def remove_empty_folders(self, place: str, before: datetime) -> int:
        """Remove empty folders below the place that were changed before that moment; how many."""
        return self._access(self._table).remove_empty_folders(place, before)

    def inventory(self, path: str) -> Iterator[Sequence[StoredFile]]:
        """The files of an inventory, used instead of listing."""
        return inventory(self._access(self._table), path)

    def uncommitted(self, manifests: Iterable[StoredFile]) -> Set[str]:
        """Flink's manifests that are not committed yet, and the files that they name."""
        return uncommitted(self._table.io, manifests)

    def table_uuids(self, paths: Iterable[str]) -> Mapping[str, str]:
        """The table UUID in each metadata file."""
        return table_uuids(self._access(self._table), paths)

    def reach(self) -> Reach:
        """Where its files lie, for those who delete them elsewhere."""
        metadata, grant = self._table.metadata, self._grant()
        return Reach(metadata.location, read_locations(metadata, grant), write_locations(metadata, grant))

    def guard(self, sequence_number: int = 0) -> Guard:
        """The guard, which checks which files the table references; it shares no code with scans and plans."""
        return Guard(self._load, self._table, sequence_number)

    def stat_many(self, paths: Iterable[str]) -> Mapping[str, StoredFile | None]:
        """The present state of each file in its storage; None for one that does not exist or is not a file."""
        return self._access(self._newest).stat_many(paths)

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, Removal]:
        """Delete files below the table's write locations, and return the outcome of each."""
        return self._access(self._newest).delete_many(paths)

    def trash(self) -> Trash | None:
        """Where its files are moved instead of being deleted; None: they are deleted."""
        metadata = self._newest.metadata
        properties = effective_properties(dict(self._config.properties), metadata.properties)
        found = trash_of(properties, self._identifier, metadata.location)
        if found is not None:
            self._grant().refuse(metadata.location, found.root)
        return found

    def trash_access(self, folder: str) -> FileAccess:
        """Access to the table's files and to those in a trash, as far as an administrator allows it."""
        return self._access(self._newest, root_of(folder))
