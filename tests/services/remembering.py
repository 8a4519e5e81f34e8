"""A format of coordinators that look at tables by difference, as `amoro up` does at large ones."""

import atexit
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestFile

from amoro_core.formats.iceberg import IcebergFormat
from amoro_core.iceberg.manifest.columns import ColumnCache, Listed
from amoro_core.iceberg.manifest.decoding import DecodingWorkers
from amoro_core.iceberg.manifest.manifest_cache import KnownTables
from amoro_core.scan.columns import ColumnPart

DECODED = "manifests decoded by a worker"
_ROOM = 2**30


def remembering(home: Path, counts: Counter[str]) -> IcebergFormat:
    """Every table counts as large: kept in memory, cached on disk, decoded in another process, which is counted."""

    def read(io: FileIO, manifests: Sequence[tuple[ManifestFile, Listed]]) -> Iterator[ColumnPart | None]:
        counts[DECODED] += len(manifests)
        return _workers().read(io, manifests)

    return IcebergFormat(ColumnCache(home / "cache", _ROOM, least_files=1), KnownTables(_ROOM, least_files=0), read)


@cache
def _workers() -> DecodingWorkers:
    made = DecodingWorkers(1, least_files=0)
    atexit.register(made.close)
    return made
