"""Caches of manifests: of entries for one operation, and of all live files for the next look at a table."""

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from operator import itemgetter
from typing import TypeVar

from pyiceberg.io import FileIO
from pyiceberg.manifest import MANIFEST_LIST_FILE_SCHEMAS, ManifestContent, ManifestFile

from amoro_core.iceberg.manifest.avro import RECORD_VERSION, first_row_id_of
from amoro_core.iceberg.manifest.reading import Manifest, read_manifest
from amoro_core.model.files import DeleteFile, DeleteIdentity
from amoro_core.scan.columns import ColumnPart
from amoro_core.scan.live_files import LiveFiles, ManifestIndex

ManifestReader = Callable[[FileIO, ManifestFile], Manifest]

#: Of all cached manifests together; an entry takes a few kB.
MAX_ENTRIES = 20_000


class ManifestCache:
    """Manifests that were read once. They are immutable, so a valid one stays valid."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._room = max_entries
        self._kept: dict[Key, Manifest] = {}

    def read(self, io: FileIO, file: ManifestFile) -> Manifest:
        """The manifest as from `read_manifest`. Failures are not cached, nor manifests for which there is no room."""
        key = key_of(file)
        result = self._kept.get(key)
        if result is not None:
            return replace(result, file=file)
        result = read_manifest(io, file)
        # The first ones are kept: with more manifests than room, evicting the oldest would never hit.
        if len(result.entries) <= self._room:
            self._room -= len(result.entries)
            self._kept[key] = result
        return result


#: Tables with fewer live files are not cached: reading them is as fast.
LEAST_FILES = 2_000
#: Estimated bytes beside the columns: for each data file (indexes, numbers) and delete file.
_BYTES_OF_FILE, _BYTES_OF_DELETE = 100, 2_000

#: The manifest-list fields of the cache key, the path first.
_FIELDS = (
    "manifest_path",
    "manifest_length",
    "partition_spec_id",
    "sequence_number",
    "added_snapshot_id",
    "added_files_count",
    "existing_files_count",
)
_IN_LISTS = [field.name for field in MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION].fields]
_values = itemgetter(*map(_IN_LISTS.index, _FIELDS))  # of a record of a list, at once

Key = tuple[object, ...]
T = TypeVar("T")


def key_of(listed: ManifestFile, types: Iterable[str] = ()) -> Key:
    """The identity of a manifest: all that decides what is read from it, inherited and promoted values included.
    `types`: those of the partition's fields, as text, where values of partitions are read by them."""
    return (*_values(listed._data), listed.content == ManifestContent.DATA, first_row_id_of(listed), *types)


def path_of(key: Key) -> str:
    """The path of the key's manifest."""
    return str(key[0])


#: The data files with their deletes, and the dangling deletes.
Matched = tuple[LiveFiles, tuple[DeleteFile, ...]]


@dataclass(frozen=True, slots=True)
class TableManifests:
    """The manifests of one state of a table, and the files matched from them."""

    data: Mapping[Key, ColumnPart] = field(default_factory=dict)
    deletes: Mapping[Key, tuple[DeleteFile, ...]] = field(default_factory=dict)
    unpartitioned: frozenset[int] = frozenset()  # specs whose equality deletes are global
    matched: Matched | None = None

    @property
    def homes(self) -> ManifestIndex:
        """Which manifests hold which files."""
        by_delete: dict[DeleteIdentity, tuple[str, ...]] = {}
        for key, deletes in self.deletes.items():
            for delete in deletes:
                by_delete[delete.identity] = (*by_delete.get(delete.identity, ()), path_of(key))
        return ManifestIndex(tuple(map(path_of, self.data)), by_delete)

    def has_same_manifests(self, manifests: "TableManifests") -> bool:
        """Whether these are its manifests, as they were read then."""
        return (
            self.unpartitioned == manifests.unpartitioned
            and self.deletes.keys() == manifests.deletes.keys()
            and self.data.keys() == manifests.data.keys()
            and all(self.data[key] is column_part for key, column_part in manifests.data.items())
        )

    @property
    def size_bytes(self) -> int:
        """About how much memory it takes."""
        columns = sum(column_part.size_bytes for column_part in self.data.values())
        deletes = sum(map(len, self.deletes.values())) * _BYTES_OF_DELETE
        return columns + self.files * _BYTES_OF_FILE + deletes

    @property
    def files(self) -> int:
        """The number of live data files."""
        return sum(int(column_part.batch.num_rows) for column_part in self.data.values())


NO_MANIFESTS = TableManifests()


class TableManifestCache:
    """The manifests of tables, the least recently used table dropped first. For several threads."""

    def __init__(self, most_bytes: int, least_files: int = LEAST_FILES) -> None:
        """`most_bytes` limits, as estimated, all tables together; smaller tables than `least_files` are not kept."""
        self._most_bytes, self._least_files = most_bytes, least_files
        self._tables: OrderedDict[str, tuple[TableManifests, int]] = OrderedDict()
        self._lock = threading.Lock()

    def find(self, table_uuid: str) -> TableManifests:
        """The manifests of the table; `NO_MANIFESTS` without any."""
        with self._lock:
            if table_uuid not in self._tables:
                return NO_MANIFESTS
            self._tables.move_to_end(table_uuid)
            return self._tables[table_uuid][0]

    def keep(self, table_uuid: str, table: TableManifests) -> None:
        """Replace the manifests of the table, if it is of a size to be cached."""
        size = table.size_bytes if table.files >= self._least_files else None
        with self._lock:
            self._tables.pop(table_uuid, None)
            if size is None or size > self._most_bytes:
                return
            self._tables[table_uuid] = table, size
            while sum(size for _, size in self._tables.values()) > self._most_bytes:
                self._tables.popitem(last=False)
