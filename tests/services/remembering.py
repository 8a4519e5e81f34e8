"""A format of coordinators that look at tables by difference, as `amoro up` does at large ones."""

from collections import Counter
from pathlib import Path

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.manifest.columns import read_columns
from amoro_core.iceberg.manifest.manifest_cache import TableManifestCache
from amoro_core.iceberg.manifest.reading import PartitionTypes
from amoro_core.scan.columns import ColumnPart

DECODED = "manifests decoded"
_ROOM = 2**30


def remembering(home: Path, counts: Counter[str]) -> IcebergFormat:
    """Every table counts as large: kept in memory; manifests that are decoded are counted."""

    def read(io: FileIO, manifest: ManifestFile, types: PartitionTypes) -> ColumnPart | None:
        counts[DECODED] += 1
        return read_columns(io, manifest, types)

    return IcebergFormat(TableManifestCache(_ROOM, least_files=0), read)
