"""Ids of rows in manifests of format 3: what entries inherit, and what a new manifest list assigns.

A data file's rows have the ids from its `first_row_id` on. The order of inheritance is that of Iceberg's Java library
(`ManifestReader`), and what a list assigns that of its `ManifestListWriter`.
"""

from collections.abc import Iterable, Iterator, Sequence
from copy import copy

from pyiceberg.manifest import (
    DATA_FILE_TYPE,
    MANIFEST_LIST_FILE_SCHEMAS,
    ManifestContent,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
)
from pyiceberg.table.metadata import TableMetadata, TableMetadataV3

from amoro_core.errors import TableRefused
from amoro_core.iceberg.avro import RECORD_VERSION
from amoro_core.records import record

#: The first format whose rows have ids.
ROW_IDS_SINCE = 3

#: The indexes of the fields 520 in entries of manifest lists, and 142 in data files.
_IN_LIST = [field.field_id for field in MANIFEST_LIST_FILE_SCHEMAS[RECORD_VERSION].fields].index(520)
_IN_FILE = [field.field_id for field in DATA_FILE_TYPE[RECORD_VERSION].fields].index(142)


def first_row_id_of(manifest: ManifestFile) -> int | None:
    """The first row id of a data manifest, which its entries without one inherit; None: its rows have none.

    pyiceberg's own records of manifest lists lack the field.
    """
    values = manifest._data
    found: int | None = values[_IN_LIST] if len(values) > _IN_LIST else None
    return found


def with_first_row_id(manifest: ManifestFile, first_row_id: int | None) -> ManifestFile:
    """A copy of the manifest with that first row id."""
    done = copy(manifest)
    done._data = [*manifest._data[:_IN_LIST], first_row_id]
    return done


def has_no_row_id(entry: ManifestEntry) -> bool:
    """Whether the entry's file has no first row id."""
    return entry.data_file[_IN_FILE] is None


def set_row_id(entry: ManifestEntry, first_row_id: int | None) -> None:
    """Let the entry's file have that first row id."""
    entry.data_file[_IN_FILE] = first_row_id


def inherit_row_ids(entries: Iterable[ManifestEntry], manifest: ManifestFile) -> Iterator[ManifestEntry]:
    """All entries of the manifest, in its order, each changed to have its file's first row id.

    Files that are not deleted and have no id take the next one, which begins with the manifest's and grows by their
    rows. In a manifest without an id no file has one, whatever its entry says.
    """
    upcoming = first_row_id_of(manifest)
    for entry in entries:
        file = entry.data_file
        if upcoming is None:
            if file[_IN_FILE] is not None:
                file[_IN_FILE] = None
        elif entry.status != ManifestEntryStatus.DELETED and file[_IN_FILE] is None:
            file[_IN_FILE] = upcoming
            upcoming += file.record_count
        yield entry


def first_new_row_id(metadata: TableMetadata) -> int | None:
    """The first row id of the table's next snapshot; None before format 3. Raises TableRefused("metadata")."""
    if not isinstance(metadata, TableMetadataV3):
        return None
    row_id: int | None = metadata.next_row_id
    if row_id is None:
        raise TableRefused(
            f"the table's metadata of format {metadata.format_version} lacks next-row-id", reason="metadata"
        )
    return row_id


@record
class Assigned:
    """A manifest list's entries with their first row ids, and the number of ids assigned to them."""

    first_row_ids: tuple[int | None, ...]
    rows: int


def assign_row_ids(manifests: Sequence[ManifestFile], first_row_id: int) -> Assigned:
    """The first row ids of the manifests of a new list, the table's next one being `first_row_id`.

    Data manifests keep theirs; those without one take the next, which grows by their added and existing rows. Delete
    manifests have none. It may skip ids, never give one twice. Raises ValueError for a data manifest without an id of
    which the number of rows is not known.
    """
    upcoming, given = first_row_id, list[int | None]()
    for one in manifests:
        known = first_row_id_of(one)
        if one.content != ManifestContent.DATA:
            given.append(None)
        elif known is not None:
            given.append(known)
        else:
            if one.added_rows_count is None or one.existing_rows_count is None:
                raise ValueError(f"the number of rows of the manifest {one.manifest_path} is not known")
            given.append(upcoming)
            upcoming += one.added_rows_count + one.existing_rows_count
    return Assigned(tuple(given), upcoming - first_row_id)
