"""Condemned files and leases."""

from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Block, Document, Pairs
from amoro_cli.paging import Part
from amoro_cli.views.lists import list_document
from amoro_core.documents.encoding import encode, encode_all
from amoro_core.documents.quantities import format_bytes, format_count, format_time, many

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


TRASH: "Listing[pb.Trash]" = Listing(
    (
        Column("PROCESS", lambda item: item.process_id),
        Column("TABLE", lambda item: item.table),
        Column("ACTION", lambda item: item.action),
        Column("FILES", lambda item: format_count(item.files), lambda item: item.files, right=True),
        Column("BYTES", lambda item: format_bytes(item.bytes), lambda item: item.bytes, right=True),
        Column("DELETED AT", lambda item: format_time(item.purge_ms), lambda item: item.purge_ms),
    ),
    spare=("ACTION",),
)
FILES: "Listing[pb.CondemnedFile]" = Listing(
    (
        Column("KIND", lambda item: item.kind),
        Column("BYTES", lambda item: format_bytes(item.size_bytes), lambda item: item.size_bytes, right=True),
        Column("REASON", lambda item: item.reason),
        Column("STATUS", lambda item: item.status),
        Column("PATH", lambda item: item.moved_to or item.path),
    ),
    spare=("STATUS", "REASON"),
    elastic="PATH",
)
LEASES: "Listing[pb.Lease]" = Listing(
    (
        Column("LEASE", lambda item: item.lease_id),
        Column("TABLE", lambda item: item.table),
        Column("SNAPSHOT", lambda item: str(item.snapshot_id)),
        Column("SINCE", lambda item: "since" if item.since else "-"),
        Column("TAG", lambda item: item.tag or "-"),
        Column("HOLDER", lambda item: item.holder),
        Column("EXPIRES", lambda item: format_time(item.expires_ms), lambda item: item.expires_ms),
    ),
    spare=("SINCE", "TAG"),
    elastic="HOLDER",
)


def trash_list(part: "Part[pb.Trash]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.trash/v1: `trash`, by process, `total`, `next`. The names are ids of processes."""
    return list_document(
        "amoro.trash/v1", TRASH, part, arrangement, lambda item: item.process_id, "Nothing is condemned."
    )


def trash_detail(answer: "pb.ShowTrashResponse", part: "Part[pb.CondemnedFile]") -> Document:
    """Schema amoro.trashed/v1: `trash`, its `files` with their reasons, `next` and `total`. The names are paths."""
    trash = answer.trash
    deleting = f", {format_count(trash.deleting_files)} of them being deleted" if trash.deleting_files else ""
    pairs = (
        ("process", f"{trash.process_id} ({trash.action})"),
        ("table", trash.table),
        ("files", f"{format_count(trash.files)}, {format_bytes(trash.bytes)}{deleting}"),
        ("deleted at", format_time(trash.purge_ms)),
    )
    restore = f"To keep them: amoro trash restore {trash.process_id}"
    blocks: list[Block] = [Pairs(pairs), FILES.grid(list(part.items), AS_EVER), *part.rest, restore]
    body = {**encode(answer), "files": encode_all(part.items), **part.keys}
    return Document("amoro.trashed/v1", body, tuple(file.path for file in part.items), tuple(blocks))


def trash_restored(trash: "pb.Trash") -> Document:
    """Schema amoro.restored/v1: what was restored."""
    text = f"Restored {many(trash.files, 'file')} of {trash.table} ({format_bytes(trash.bytes)})."
    return Document("amoro.restored/v1", encode(trash), (trash.process_id,), (text,))


def lease_list(part: "Part[pb.Lease]", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.leases/v1: `leases`, `total`, `next`. The names are ids."""
    return list_document(
        "amoro.leases/v1", LEASES, part, arrangement, lambda item: item.lease_id, "No snapshot is leased."
    )


def lease_detail(lease: "pb.Lease") -> Document:
    """Schema amoro.lease/v1: the fields of the lease."""
    kept = f"{lease.snapshot_id} and all newer ones" if lease.since else str(lease.snapshot_id)
    pairs = (
        ("lease", lease.lease_id),
        ("table", lease.table),
        ("snapshot", kept),
        *((("tag", lease.tag),) if lease.tag else ()),
        ("holder", lease.holder),
        ("expires", format_time(lease.expires_ms)),
    )
    hold_on = f"It expires by itself. To keep it, renew it in time: amoro lease renew {lease.lease_id}"
    return Document("amoro.lease/v1", encode(lease), (lease.lease_id,), (Pairs(pairs), hold_on))


def lease_released(lease: "pb.Lease") -> Document:
    """Schema amoro.lease/v1: the fields of the released lease."""
    text = f"Lease {lease.lease_id} is released; snapshot {lease.snapshot_id} of {lease.table} may expire."
    return Document("amoro.lease/v1", encode(lease), (lease.lease_id,), (text,))
