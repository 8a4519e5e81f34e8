"""Receipts of processes as lines to show."""

from collections.abc import Sequence

from amoro_core.documents.quantities import format_bytes, format_count, format_duration, many
from amoro_core.protocol import admin_pb2 as pb

#: Figures of every commit, which have a line of their own.
_COMMON = {f"{of}_{when}" for of in ("data_files", "delete_files", "bytes", "rows") for when in ("before", "after")}


def receipt_lines(made: pb.Receipt) -> list[tuple[str, str]]:
    """Names and values: what was before and what is after on one line, rows as an equation."""
    lines = []
    if not made.words:
        equal = made.rows_before == made.rows_after
        rows = f"{format_count(made.rows_before)} {'=' if equal else '≠'} {format_count(made.rows_after)}"
        lines = [
            ("rows", f"{rows} {'✓' if equal else '✗'}"),
            ("data files", f"{format_count(made.data_files_before)} → {format_count(made.data_files_after)}"),
            ("delete files", f"{format_count(made.delete_files_before)} → {format_count(made.delete_files_after)}"),
            ("bytes", f"{format_bytes(made.bytes_before)} → {format_bytes(made.bytes_after)}"),
        ]
    lines += _figures(made.figures)
    for one in made.equations:
        if (one.left, one.right) == ("rows_before", "rows_after"):
            continue
        sign, mark = ("=", "✓") if one.holds else ("≠", "✗")
        lines.append(("check", f"{_label(one.left)} {sign} {_label(one.right)} {mark}"))
    if made.snapshot_id:
        lines.append(("snapshot", f"{made.snapshot_id} on {made.base_snapshot_id or 'none'}"))
    lines.append(("took", format_duration(made.duration_ms)))
    return lines


def is_balanced(made: pb.Receipt) -> bool:
    """Whether every equation of the receipt holds."""
    rows = made.words != "" or made.rows_before == made.rows_after
    return rows and all(one.holds for one in made.equations)


def _figures(figures: Sequence[pb.Figure]) -> list[tuple[str, str]]:
    """The action's own figures that are not zero."""
    own = {one.name: one for one in figures if one.name not in {*_COMMON, "equality_delete_files_after"}}
    lines = []
    for name, figure in own.items():
        of, _, when = name.rpartition("_")
        if when == "before" and f"{of}_after" in own:
            lines.append((_label(of), f"{_value(figure)} → {_value(own[f'{of}_after'])}"))
        elif figure.value and not (when == "after" and f"{of}_before" in own):
            lines.append((_label(name), _value(figure)))
    return lines


def _label(name: str) -> str:
    return name.removesuffix("_ms").replace("_", " ")


def _value(figure: pb.Figure) -> str:
    """The number, with its unit unless the name says it."""
    if figure.unit == "bytes":
        return format_bytes(figure.value)
    if figure.unit == "ms":
        return format_duration(figure.value)
    if not figure.unit or figure.unit in figure.name.split("_"):
        return format_count(figure.value)
    return many(figure.value, figure.unit.removesuffix("s"))
