"""Receipts of processes as lines to show."""

from amoro_core.documents.figures import encoded_lines, label, own_figures, row_equation
from amoro_core.documents.quantities import format_bytes, format_count, format_duration
from amoro_core.protocol import admin_pb2 as pb


def receipt_lines(made: pb.Receipt) -> list[tuple[str, str]]:
    """Names and values: what was before and what is after on one line, rows as an equation."""
    lines = []
    if not made.words:
        lines = [
            ("rows", row_equation(made)),
            ("data files", f"{format_count(made.data_files_before)} → {format_count(made.data_files_after)}"),
            ("delete files", f"{format_count(made.delete_files_before)} → {format_count(made.delete_files_after)}"),
            ("bytes", f"{format_bytes(made.bytes_before)} → {format_bytes(made.bytes_after)}"),
        ]
    lines += [*own_figures(made.figures), *encoded_lines(made)]
    for one in made.equations:
        if (one.left, one.right) == ("rows_before", "rows_after"):
            continue
        sign, mark = ("=", "✓") if one.holds else ("≠", "✗")
        lines.append(("check", f"{label(one.left)} {sign} {label(one.right)} {mark}"))
    if made.snapshot_id:
        lines.append(("snapshot", f"{made.snapshot_id} on {made.base_snapshot_id or 'none'}"))
    lines.append(("took", format_duration(made.duration_ms)))
    return lines


def is_balanced(made: pb.Receipt) -> bool:
    """Whether every equation of the receipt holds."""
    rows = made.words != "" or made.rows_before == made.rows_after
    return rows and all(one.holds for one in made.equations)
