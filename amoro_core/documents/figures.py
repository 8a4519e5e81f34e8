"""The figures of a receipt as labelled values: one wording for terminals and pages."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from amoro_core.documents.quantities import format_bytes, format_count, format_duration, many

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb

#: Figures of every commit, which have a line of their own.
_COMMON = {f"{of}_{when}" for of in ("data_files", "delete_files", "bytes", "rows") for when in ("before", "after")}
#: Rows of the outputs that others have deleted meanwhile: told with the equation of rows.
_CARRIED = "rows_carried_over"


def row_equation(made: "pb.Receipt") -> str:
    """The rows before and after, and whether they are as many; and how many of them others have deleted meanwhile."""
    equal = made.rows_before == made.rows_after
    sign, mark = ("=", "✓") if equal else ("≠", "✗")
    rows = f"{format_count(made.rows_before)} {sign} {format_count(made.rows_after)} {mark}"
    carried = sum(one.value for one in made.figures if one.name == _CARRIED)
    return f"{rows}, {format_count(carried)} of them deleted by others meanwhile and carried over" if carried else rows


def own_figures(figures: "Iterable[pb.Figure]") -> list[tuple[str, str]]:
    """The action's own figures that are not zero; what was before and what is after on one line."""
    own = {one.name: one for one in figures if one.name not in {*_COMMON, _CARRIED, "equality_delete_files_after"}}
    lines = []
    for name, figure in own.items():
        of, _, when = name.rpartition("_")
        if when == "before" and f"{of}_after" in own:
            lines.append((label(of), f"{value(figure)} → {value(own[f'{of}_after'])}"))
        elif figure.value and not (when == "after" and f"{of}_before" in own):
            lines.append((label(name), value(figure)))
    return lines


def encoded_lines(made: "pb.Receipt") -> list[tuple[str, str]]:
    """Why files were encoded and not copied, a line for each reason."""
    return [("encoded since", f"{one.reason} ({many(one.files, 'file')})") for one in made.encoded]


def label(name: str) -> str:
    """The figure's name as words, without its unit."""
    return name.removesuffix("_ms").replace("_", " ")


def value(figure: "pb.Figure") -> str:
    """The number, with its unit unless the name says it."""
    if figure.unit == "bytes":
        return format_bytes(figure.value)
    if figure.unit == "ms":
        return format_duration(figure.value)
    if not figure.unit or figure.unit in figure.name.split("_"):
        return format_count(figure.value)
    return many(figure.value, figure.unit.removesuffix("s"))
