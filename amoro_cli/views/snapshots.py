"""Snapshots compared, and what the next expiry takes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from amoro_cli.listing import AS_EVER, Arrangement, Column, Listing
from amoro_cli.output import Block, Document, Grid
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes, format_count, format_time, many

if TYPE_CHECKING:
    from amoro_core.protocol import snapshots_pb2 as pb

FATES: "Listing[pb.SnapshotFate]" = Listing(
    (
        Column("SNAPSHOT", lambda one: str(one.snapshot_id)),
        Column("COMMITTED", lambda one: format_time(one.committed_ms), lambda one: one.committed_ms),
        Column("NEXT", lambda one: "goes" if one.goes else "stays"),
        Column("WHY", lambda one: one.reason),
    ),
    elastic="WHY",
)

_FIGURES: tuple[tuple[str, str, Callable[[int], str]], ...] = (
    ("data files", "data_files", format_count),
    ("delete files", "delete_files", format_count),
    ("rows", "records", format_count),
    ("position deletes", "position_deletes", format_count),
    ("equality deletes", "equality_deletes", format_count),
    ("size", "bytes", format_bytes),
)


def comparison_document(found: "pb.SnapshotComparison") -> Document:
    """Schema amoro.comparison/v1: `before` and `after` with their totals, and how one led to the other."""
    before, after = found.before, found.after
    rows = [("committed", format_time(before.committed_ms), format_time(after.committed_ms), "")]
    rows.append(("operation", before.operation, after.operation, ""))
    for title, name, write in _FIGURES:
        first, second = getattr(before.totals, name), getattr(after.totals, name)
        rows.append((title, _told(first, write), _told(second, write), _difference(first, second, write)))
    titles = ("", str(before.snapshot_id), str(after.snapshot_id), "DIFFERENCE")
    led = f"{many(found.commits, 'commit')} from one to the other, {format_count(found.own_commits)} of them Amoro's"
    line = led if found.is_ancestor else "The first did not lead to the second."
    blocks: tuple[Block, ...] = (Grid(titles, tuple(rows), frozenset(titles[1:])), line)
    return Document("amoro.comparison/v1", encode(found), (str(before.snapshot_id), str(after.snapshot_id)), blocks)


def retention_document(found: "pb.Retention", arrangement: Arrangement = AS_EVER) -> Document:
    """Schema amoro.retention/v1: `snapshots` and `refs` with their fates. The names are the snapshots that go."""
    going = [one for one in found.snapshots if one.goes]
    snapshots = FATES.arranged(found.snapshots, arrangement)
    blocks: list[Block] = [FATES.grid(snapshots, arrangement) if snapshots else "No snapshots."]
    blocks += [f"{'branch' if ref.branch else 'tag'} {ref.name} goes: {ref.reason}" for ref in found.refs if ref.goes]
    blocks.append(f"{many(len(going), 'snapshot')} would go with the next expiry; {found.staying}")
    return Document("amoro.retention/v1", encode(found), tuple(str(one.snapshot_id) for one in going), tuple(blocks))


def _told(value: int, write: Callable[[int], str]) -> str:
    return "-" if value < 0 else write(value)


def _difference(first: int, second: int, write: Callable[[int], str]) -> str:
    if min(first, second) < 0:
        return "-"
    sign = "+" if second > first else "-" if second < first else ""
    return f"{sign}{write(abs(second - first))}"
