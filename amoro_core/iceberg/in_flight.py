"""Files that Flink has written but not committed yet: its own manifests beside the table's, and the files they name.

A job restored from a checkpoint commits them, maybe days later; if one is removed, the job can never start again.
"""

from collections.abc import Iterable

from pyiceberg.io import FileIO
from pyiceberg.manifest import UNASSIGNED_SEQ, ManifestContent, ManifestFile

from amoro_core.errors import CatalogUnavailable, DataFileMissing
from amoro_core.iceberg.manifests import read_manifest
from amoro_core.model.stored import StoredFile


def uncommitted(file_io: FileIO, manifests: Iterable[StoredFile]) -> set[str]:
    """The manifests, and the files that they name.

    Raises CatalogUnavailable for one that has vanished meanwhile: its files may be committed since the table was
    loaded. Raises UnreadableFile for one that can't be read.
    """
    found: set[str] = set()
    for one in manifests:
        file = ManifestFile.from_args(
            manifest_path=one.path,
            manifest_length=one.size_bytes,
            partition_spec_id=0,
            content=ManifestContent.DATA,
            sequence_number=UNASSIGNED_SEQ,
            min_sequence_number=UNASSIGNED_SEQ,
            added_snapshot_id=0,
        )
        try:
            found.update(entry.data_file.file_path for entry in read_manifest(file_io, file).entries)
        except DataFileMissing as error:
            raise CatalogUnavailable(f"Flink has committed or removed {one.path} meanwhile") from error
        found.add(one.path)
    return found
