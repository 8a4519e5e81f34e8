"""Upgrades of tables' formats."""

from typing import TYPE_CHECKING

from amoro_cli.output import Block, Document
from amoro_core.documents.encoding import encode

if TYPE_CHECKING:
    from amoro_core.protocol import snapshots_pb2 as pb


def upgrade_document(upgrade: "pb.TableUpgrade") -> Document:
    """Schema amoro.upgrade/v1: the fields of the answer."""
    said = "upgraded from" if upgrade.is_done else "would be upgraded from"
    blocks: list[Block] = [f"{upgrade.table}: {said} format {upgrade.before} to {upgrade.after}"]
    blocks += [f"  {note}" for note in upgrade.notes]
    return Document("amoro.upgrade/v1", encode(upgrade), (upgrade.table,), tuple(blocks))
