"""How well a table is clustered."""

from typing import TYPE_CHECKING

from amoro_cli.output import Block, Document
from amoro_cli.views.plans import nothing_to_do
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes, format_count, many

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

#: Columns that are shown of a report; JSON has all.
_MOST_SHOWN = 20


def clustering_document(found: "pb.Clustering") -> Document:
    """Schema amoro.clustering/v1: the fields of the answer; `next` is the plan that would be made now."""
    return Document("amoro.clustering/v1", encode(found), (found.table,), tuple(_blocks(found)))


def suggested_document(found: "pb.SuggestedColumns") -> Document:
    """Schema amoro.suggested/v1: the fields of the answer."""
    blocks: list[Block] = [f"{found.table}  {many(found.files, 'file')}"]
    for one in found.columns:
        met = f"a point query reads {one.files_met:.3g} files; " if one.files_met else ""
        blocks.append(f"  {one.column}: {met}{one.reason}")
    if not found.columns:
        blocks.append("  the table itself speaks for no column")
    each = ", ".join(f"{one.column} {one.saved:.0%}" for one in found.auto.columns)
    blocks.append(
        f"  auto: {found.auto.strategy}({each}), {found.auto_reason}" if each else f"  auto: {found.auto_reason}"
    )
    return Document("amoro.suggested/v1", encode(found), (found.table,), tuple(blocks))


def learned_document(found: "pb.LearnedScans") -> Document:
    """Schema amoro.learned/v1: the fields of the answer."""
    blocks: list[Block] = [f"{found.table}: learned from {many(found.scans, 'scan')}{_days(found)}"]
    blocks += [f"  {one.column}: filtered by {many(one.scans, 'scan')}" for one in found.columns[:_MOST_SHOWN]]
    if len(found.columns) > _MOST_SHOWN:
        blocks.append(f"  and {many(len(found.columns) - _MOST_SHOWN, 'column')} more")
    if found.unfiltered_scans:
        blocks.append(f"  no column of the table: {many(found.unfiltered_scans, 'scan')}")
    if found.old_scans:
        blocks.append(f"  {many(found.old_scans, 'scan')} left out: older than 30 d")
    blocks.append(
        f"  {many(found.recent_scans, 'scan')} of the last 7 d are known; self-optimizing.cluster.columns=auto needs "
        f"{format_count(found.enough_scans)}"
    )
    return Document("amoro.learned/v1", encode(found), (found.table,), tuple(blocks))


def _days(found: "pb.LearnedScans") -> str:
    if not found.first_day:
        return ""
    return f" of {found.first_day}" + (f" to {found.last_day}" if found.last_day != found.first_day else "")


def _blocks(found: "pb.Clustering") -> "list[Block]":
    sealed = f"{many(found.sealed_groups, 'sealed group')} ({format_bytes(found.sealed_bytes)})"
    still_open = f"{format_count(found.open_groups)} open ({format_bytes(found.open_bytes)})"
    unclustered = f"{format_bytes(found.unclustered_bytes)} unclustered"
    blocks: list[Block] = [
        f"{found.table}  {found.layout or 'no layout'}  {many(found.files, 'file')}, {format_bytes(found.bytes)}: "
        f"{sealed}, {still_open}, {unclustered}"
    ]
    if found.columns:
        reads = ", ".join(
            f"{one.column} {one.all_files:.3g}" + (f" (ideal {one.ideal:.3g})" if one.ideal else "")
            for one in found.columns
        )
        blocks.append(f"  a point query reads, of {many(found.files, 'file')}: {reads}")
    blocks += [f"  {one.column}: {one.note}" for one in found.columns if one.note]
    blocks += [f"  {note}" for note in found.next.notes]
    if found.next.type:
        chosen = [one for one in found.next.partitions if one.tasks]
        size = sum(one.input_bytes for one in chosen)
        blocks.append(
            f"  next: {many(found.next.tasks, 'group')}, {format_bytes(size)}, about "
            f"{found.next.cpu_ms / 60_000:.2g} CPU min: {found.next.reason}"
        )
    else:
        blocks += [f"  {line}" for line in nothing_to_do(found.next)]
    blocks += [f"  waits for its start: amoro process start {process_id}" for process_id in found.waiting]
    return blocks
