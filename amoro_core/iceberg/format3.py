"""Format 3 where pyiceberg refuses it: writing its metadata, the checks of a new snapshot, and the upgrade to it.

Catalogs whose metadata files the client writes (SQL, Hive, Glue) apply updates by pyiceberg's functions; REST servers
apply them by themselves.
"""

from typing import Literal

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1, TableMetadataV3
from pyiceberg.table.update import (
    AddSnapshotUpdate,
    UpgradeFormatVersionUpdate,
    _apply_table_update,
    _TableMetadataUpdateContext,
)
from pyiceberg.typedef import IcebergBaseModel

UPGRADED: Literal[3] = 3


def write_format_3() -> None:
    """Let pyiceberg write metadata of format 3, as it does that of others, in the whole process; once is enough."""
    TableMetadataV3.model_dump_json = IcebergBaseModel.model_dump_json  # type: ignore[method-assign]


class ExactSnapshot(AddSnapshotUpdate):
    """The addition of a snapshot as Java's library checks it.

    pyiceberg compares sequence numbers in format 2 only; without `added-rows` it sets the table's next row id to null.
    """


@_apply_table_update.register(ExactSnapshot)
def _(update: ExactSnapshot, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    snapshot = update.snapshot
    if isinstance(base_metadata, TableMetadataV3):
        if snapshot.first_row_id is None or snapshot.added_rows is None or base_metadata.next_row_id is None:
            raise ValueError(f"snapshot {snapshot.snapshot_id} lacks its row ids")
        if (snapshot.sequence_number or 0) <= base_metadata.last_sequence_number:
            raise CommitFailedException(
                f"snapshot {snapshot.snapshot_id} has the sequence number {snapshot.sequence_number}, and the table's "
                f"last one is {base_metadata.last_sequence_number}"
            )
        if snapshot.first_row_id < base_metadata.next_row_id:
            raise CommitFailedException(
                f"snapshot {snapshot.snapshot_id} has row ids from {snapshot.first_row_id} on, and the table's "
                f"next one is {base_metadata.next_row_id}"
            )
    return _add_snapshot(update, base_metadata, context)


_add_snapshot = _apply_table_update.dispatch(AddSnapshotUpdate)


class ExactUpgrade(UpgradeFormatVersionUpdate):
    """The upgrade of a table's format to 3, which pyiceberg refuses."""


@_apply_table_update.register(ExactUpgrade)
def _(update: ExactUpgrade, base_metadata: TableMetadata, context: _TableMetadataUpdateContext) -> TableMetadata:
    if update.format_version != UPGRADED or base_metadata.format_version >= UPGRADED:
        raise ValueError(f"a table of format {base_metadata.format_version} can't become {update.format_version}")
    context.add_update(update)
    return upgraded(base_metadata)


def upgraded(metadata: TableMetadata) -> TableMetadataV3:
    """The metadata of format 1 or 2 in format 3: no file has row ids before the next commit gives them."""
    before = metadata.to_v2() if isinstance(metadata, TableMetadataV1) else metadata
    return TableMetadataV3(**{**before.model_dump(by_alias=True), "format-version": UPGRADED, "next-row-id": 0})
