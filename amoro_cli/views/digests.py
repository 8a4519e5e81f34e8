"""Tables' files in figures."""

from typing import TYPE_CHECKING

from amoro_cli.listing import Column, Listing
from amoro_cli.output import Block, Document, Pairs
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes, format_count, format_time

if TYPE_CHECKING:
    from amoro_core.protocol import journal_pb2 as pb

SIZES: "Listing[pb.SizeBin]" = Listing(
    (
        Column("FROM", lambda item: format_bytes(item.from_bytes), lambda item: item.from_bytes, right=True),
        Column("DATA FILES", lambda item: format_count(item.data_files), lambda item: item.data_files, right=True),
        Column("BYTES", lambda item: format_bytes(item.data_bytes), lambda item: item.data_bytes, right=True),
        Column(
            "POSITION DELETES",
            lambda item: format_count(item.position_delete_files),
            lambda item: item.position_delete_files,
            right=True,
        ),
        Column(
            "EQUALITY DELETES",
            lambda item: format_count(item.equality_delete_files),
            lambda item: item.equality_delete_files,
            right=True,
        ),
    )
)

PARTITIONS: "Listing[pb.PartitionDigest]" = Listing(
    (
        Column("PARTITION", lambda item: item.path or "-"),
        Column("HEALTH", lambda item: str(item.health), lambda item: item.health, right=True),
        Column("DUE", lambda item: item.due or "-"),
        Column("FILES", lambda item: format_count(item.data_files), lambda item: item.data_files, right=True),
        Column("SMALL", lambda item: format_count(item.small_files), lambda item: item.small_files, right=True),
        Column(
            "DELETES",
            lambda item: format_count(item.position_delete_files + item.equality_delete_files),
            lambda item: item.position_delete_files + item.equality_delete_files,
            right=True,
        ),
        Column("SIZE", lambda item: format_bytes(item.data_bytes), lambda item: item.data_bytes, right=True),
        Column("WHY", lambda item: item.reason),
    ),
    spare=("SIZE", "SMALL"),
    elastic="WHY",
)


def digest_document(digest: "pb.TableDigest", partitions: int) -> Document:
    """Schema amoro.digest/v1: the fields of the digest; for people that many partitions. The names are partitions."""
    names = tuple(one.path for one in digest.partitions)
    return Document("amoro.digest/v1", encode(digest), names, tuple(_blocks(digest, partitions)))


def _blocks(digest: "pb.TableDigest", partitions: int) -> "list[Block]":
    if not digest.read_ms:
        return [f"The files of {digest.table} were not read yet: it is evaluated at its next refresh."]
    head = Pairs(
        (
            ("table", digest.table),
            ("snapshot", str(digest.snapshot_id) if digest.snapshot_id else "-"),
            ("read", format_time(digest.read_ms)),
            ("target", format_bytes(digest.target_bytes)),
            ("partitions", format_count(digest.partitions_total)),
        )
    )
    used = [one for one in digest.sizes if one.data_files or one.position_delete_files or one.equality_delete_files]
    shown = digest.partitions[:partitions]
    blocks: list[Block] = [head, "", SIZES.grid(used) if used else "No files."]
    if shown:
        blocks += ["", PARTITIONS.grid(shown)]
    if digest.partitions_total > len(shown):
        blocks.append(f"and {format_count(digest.partitions_total - len(shown))} more partitions")
    return blocks
