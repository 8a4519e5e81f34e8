"""An Iceberg table's files as they are stored: searched, guarded and deleted."""

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set

from amoro_core.files.inventory import inventory
from amoro_core.formats.iceberg_loaded import LoadedIcebergTable
from amoro_core.iceberg.ground import ground, table_uuids
from amoro_core.iceberg.guarding import Guard
from amoro_core.iceberg.in_flight import uncommitted
from amoro_core.iceberg.metadata import write_locations
from amoro_core.iceberg.reachable import named
from amoro_core.maintaining.places import Ground, Named
from amoro_core.model.stored import Removal, StoredFile


class IcebergFiles(LoadedIcebergTable):
    """What an Iceberg table answers as `Searchable` and `Sweepable`."""

    def ground(self) -> Ground:
        """Where the table's files lie, with what its catalog says of equal names."""
        return ground(self._table, write_locations(self._table.metadata, self._grant()), dict(self._config.properties))

    def named(self) -> Named:
        """Everything that any snapshot names, removed files too."""
        return named(self._table)

    def pages(self, place: str) -> Iterator[Sequence[StoredFile]]:
        """All files below a place, in pages."""
        return self._access(self._table).pages(place)

    def inventory(self, path: str) -> Iterator[Sequence[StoredFile]]:
        """The files of a list that is gone by instead."""
        return inventory(self._access(self._table), path)

    def uncommitted(self, manifests: Iterable[StoredFile]) -> Set[str]:
        """Flink's manifests that are not committed yet, and the files that they name."""
        return uncommitted(self._table.io, manifests)

    def table_uuids(self, paths: Iterable[str]) -> Mapping[str, str]:
        """Of which table each metadata file is."""
        return table_uuids(self._access(self._table), paths)

    def guard(self, sequence_number: int = 0) -> Guard:
        """What says which files the table reaches; it shares no code with scans and plans."""
        return Guard(self._load, self._table, sequence_number)

    def stat_many(self, paths: Iterable[str]) -> Mapping[str, StoredFile | None]:
        """Each file as its storage has it now; None for one that is not there, or no file."""
        return self._access(self._newest).stat_many(paths)

    def delete_many(self, paths: Iterable[str]) -> Mapping[str, Removal]:
        """Delete files below the table's write locations; what became of each."""
        return self._access(self._newest).delete_many(paths)
