"""A format of coordinators that look at tables by difference, as `amoro up` does at large ones."""

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.manifest.columns import Listed, read_here
from amoro_core.iceberg.manifest.manifest_cache import TableManifestCache
from amoro_core.scan.columns import ColumnPart

DECODED = "manifests decoded"
_ROOM = 2**30


def remembering(home: Path, counts: Counter[str]) -> IcebergFormat:
    """Every table counts as large: kept in memory; manifests that are decoded are counted."""

    def read(io: FileIO, manifests: Sequence[tuple[ManifestFile, Listed]]) -> Iterator[ColumnPart | None]:
        counts[DECODED] += len(manifests)
        return read_here(io, manifests)

    return IcebergFormat(TableManifestCache(_ROOM, least_files=0), read)
