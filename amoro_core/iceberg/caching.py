"""A cache of manifests for one operation, which would otherwise read the same ones several times."""

from collections.abc import Callable
from dataclasses import replace

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core.iceberg.manifests import Manifest, read_manifest
from amoro_core.iceberg.row_ids import first_row_id_of

ManifestReader = Callable[[FileIO, ManifestFile], Manifest]

#: Of all cached manifests together; an entry takes a few kB.
MAX_ENTRIES = 20_000


class ManifestCache:
    """Manifests that were read once. They are immutable, so a valid one stays valid."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._room = max_entries
        self._kept: dict[tuple[object, ...], Manifest] = {}

    def read(self, io: FileIO, file: ManifestFile) -> Manifest:
        """The manifest as from `read_manifest`. Failures are not cached, nor manifests for which there is no room."""
        # Values that entries inherit are part of the key.
        key = (
            file.manifest_path,
            file.manifest_length,
            file.content,
            file.partition_spec_id,
            file.sequence_number,
            file.added_snapshot_id,
            first_row_id_of(file),
        )
        found = self._kept.get(key)
        if found is not None:
            return replace(found, file=file)
        found = read_manifest(io, file)
        # The first ones are kept: with more manifests than room, evicting the oldest would never hit.
        if len(found.entries) <= self._room:
            self._room -= len(found.entries)
            self._kept[key] = found
        return found
