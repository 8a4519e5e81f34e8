"""Manifests kept in memory for the time of one operation, which would otherwise read the same ones several times."""

from collections.abc import Callable
from dataclasses import replace

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core.iceberg.manifests import Manifest, read_manifest

ManifestReader = Callable[[FileIO, ManifestFile], Manifest]

#: Of all kept manifests together; an entry takes a few KB.
MAX_ENTRIES = 20_000


class ManifestCache:
    """Manifests that were read once. They are immutable, so that one that was whole and right stays so."""

    def __init__(self, max_entries: int = MAX_ENTRIES) -> None:
        self._room = max_entries
        self._kept: dict[tuple[object, ...], Manifest] = {}

    def read(self, io: FileIO, file: ManifestFile) -> Manifest:
        """The manifest as `read_manifest` gives it. A failure is not kept, nor what there is no room for."""
        # What entries inherit belongs to the key, too.
        key = (
            file.manifest_path,
            file.manifest_length,
            file.content,
            file.partition_spec_id,
            file.sequence_number,
            file.added_snapshot_id,
        )
        found = self._kept.get(key)
        if found is not None:
            return replace(found, file=file)
        found = read_manifest(io, file)
        # The first ones stay: in a table with more of them, always letting the oldest go would keep none to any use.
        if len(found.entries) <= self._room:
            self._room -= len(found.entries)
            self._kept[key] = found
        return found
