"""Whether rewrites kept every row."""

from typing import TYPE_CHECKING

from amoro_cli.output import Block, Document, Grid
from amoro_cli.views.plans import disputed_deletes
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_count, many

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

_HEADER = ("PARTITION", "FILES", "ROWS BEFORE", "ROWS AFTER", "CHECKSUM BEFORE", "CHECKSUM AFTER", "")
_NUMBERS = frozenset({"FILES", "ROWS BEFORE", "ROWS AFTER"})
#: A narrow terminal shows counts, the mark and the verdict.
_SPARE = ("CHECKSUM AFTER", "CHECKSUM BEFORE", "FILES")
_SHOWN = 20  # equal partitions


def verification_document(found: "pb.Verification") -> Document:
    """Schema amoro.verification/v1: the fields of the verification; as text, partitions that differ come first."""
    blocks: list[Block] = [block for item in found.comparisons for block in _comparison(item)]
    if found.note:
        blocks.append(f"Nothing to compare: {found.note}.")
    if found.other_snapshots:
        listed = ", ".join(map(str, found.other_snapshots))
        blocks.append(
            f"Not compared, since others changed rows there: {many(len(found.other_snapshots), 'snapshot')} {listed}"
        )
    blocks += [f"✗ {problem}" for problem in found.problems]
    if not found.problems:
        blocks.append(
            f"files  all {format_count(found.files)} of snapshot {found.snapshot_id} exist with their sizes, "
            f"{many(found.dangling_deletes, 'dangling delete')}"
        )
    if found.comparisons:
        blocks.append(_verdict(found))
    return Document("amoro.verification/v1", encode(found), (found.table,), tuple(blocks))


def _comparison(item: "pb.Comparison") -> "list[Block]":
    by = f" by {', '.join(item.process_ids)}" if item.process_ids else ""
    differing = [partition for partition in item.partitions if not partition.equal]
    equal = [partition for partition in item.partitions if partition.equal]
    shown = [*differing, *equal[:_SHOWN]]
    blocks: list[Block] = [f"snapshot {item.before} → {item.after}{by}"]
    if shown:
        rows = tuple(_row(partition) for partition in shown)
        blocks.append(Grid(_HEADER, rows, _NUMBERS, indent=2, spare=_SPARE, elastic="PARTITION"))
    if len(equal) > _SHOWN:
        blocks.append(f"  and {many(len(equal) - _SHOWN, 'equal partition')}: see -o json")
    if item.disputed_deletes:
        blocks.append(f"  {disputed_deletes(item.disputed_deletes, 'show')}")
    if item.files_in_both:
        verb = "is" if item.files_in_both == 1 else "are"
        blocks.append(f"  {many(item.files_in_both, 'more data file')} {verb} in both, with the same deletes")
    return blocks


def _row(partition: "pb.ComparedPartition") -> tuple[str, ...]:
    place = partition.partition or "unpartitioned"
    return (
        f"{place} (spec {partition.spec_id})" if partition.spec_id else place,
        f"{format_count(partition.files_before)} → {format_count(partition.files_after)}",
        format_count(partition.rows_before),
        format_count(partition.rows_after),
        partition.checksum_before,
        partition.checksum_after,
        "=" if partition.equal else "≠",
    )


def _verdict(found: "pb.Verification") -> str:
    before, after = (sum(getattr(item, side) for item in found.comparisons) for side in ("rows_before", "rows_after"))
    if all(item.equal for item in found.comparisons):
        return f"rows   {format_count(before)} = {format_count(after)} ✓ none was lost, added or changed"
    return f"rows   {format_count(before)} before, {format_count(after)} after ✗ they differ"
