"""Durations, sizes, counts and times as people read them. One MB is 1,048,576 bytes, as in Iceberg."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from amoro_core.protocol import admin_pb2 as pb


def format_bytes(size: int) -> str:
    """The size in the unit that suits it, as "310 MB" or "1.4 GB"."""
    value, unit = float(size), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1024, larger
    digits = 1 if unit != "B" and value < 9.95 else 0
    return f"{value:.{digits}f} {unit}"


def format_duration(milliseconds: int) -> str:
    """The duration as "0.3 s", "14.2 s", "3 min 5 s" or "2 h 10 min"."""
    if milliseconds < 60_000:
        return f"{milliseconds / 1000:.1f} s"
    seconds = milliseconds // 1000
    if seconds < 3600:
        return f"{seconds // 60} min {seconds % 60} s"
    return f"{seconds // 3600} h {seconds % 3600 // 60} min"


def format_count(count: int) -> str:
    """The number with commas between thousands."""
    return f"{count:,}"


def many(count: int, noun: str) -> str:
    """The count with its noun, as "1 file", "1,054 files" or "2 processes"; the only place where plurals are made."""
    ending = "" if count == 1 else "es" if noun.endswith("s") else "s"
    return f"{format_count(count)} {noun}{ending}"


def change(before: int, after: int, write: Callable[[int], str] = format_count) -> str:
    """A number before and after, as "12 → 1"; "-" where both are 0."""
    return f"{write(before)} → {write(after)}" if before or after else "-"


def short_id(text: str) -> str:
    """The last eight hex digits of a UUID version 7, which are random; any other id as it is."""
    return text[-8:] if len(text) == 36 and text[14] == "7" else text


def from_ms(milliseconds: int) -> datetime | None:
    """The time that many milliseconds after the epoch; None for 0, which means never."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC) if milliseconds else None


def format_time(milliseconds: int) -> str:
    """The time in UTC to the second, or "never"."""
    moment = from_ms(milliseconds)
    return f"{moment:%Y-%m-%d %H:%M:%S}Z" if moment else "never"


def iso_time(milliseconds: int) -> str | None:
    """The time in ISO 8601, UTC, to the millisecond; None for never."""
    moment = from_ms(milliseconds)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{milliseconds % 1000:03d}Z" if moment else None


def balance(before: int, after: int) -> str:
    """Two counts and whether they are as many, as "12 = 12 ✓"."""
    sign, mark = ("=", "✓") if before == after else ("≠", "✗")
    return f"{format_count(before)} {sign} {format_count(after)} {mark}"


#: Figures of every commit, which have a line of their own.
_COMMON = {f"{of}_{when}" for of in ("data_files", "delete_files", "bytes", "rows") for when in ("before", "after")}
#: Rows of the outputs that others have deleted meanwhile: told with the equation of rows.
_CARRIED = "rows_carried_over"


def row_equation(receipt: "pb.Receipt") -> str:
    """The rows before and after, and whether they are as many; and how many of them others have deleted meanwhile."""
    rows = balance(receipt.rows_before, receipt.rows_after)
    carried = sum(figure.value for figure in receipt.figures if figure.name == _CARRIED)
    return f"{rows}, {format_count(carried)} of them deleted by others meanwhile and carried over" if carried else rows


def detail_lines(receipt: "pb.Receipt") -> list[tuple[str, str]]:
    """The action's own figures that are not zero, deletes carried over, why files were not copied, and its checks."""
    hidden = {*_COMMON, _CARRIED, "equality_delete_files_after"}
    own = {figure.name: figure for figure in receipt.figures if figure.name not in hidden}
    lines = []
    for name, figure in own.items():
        of, _, when = name.rpartition("_")
        if when == "before" and f"{of}_after" in own:
            lines.append((label(of), f"{value(figure)} → {value(own[f'{of}_after'])}"))
        elif figure.value and not (when == "after" and f"{of}_before" in own):
            lines.append((label(name), value(figure)))
    lines += [("rows carried over", text) for text in receipt.carried]
    lines += [("not copied", f"{many(item.files, 'file')}: {item.reason}") for item in receipt.encoded]
    for equation in receipt.equations:
        if equation.left != "rows_before":
            sign, mark = ("=", "✓") if equation.holds else ("≠", "✗")
            lines.append(("check", f"{label(equation.left)} {sign} {label(equation.right)} {mark}"))
    return lines


#: Figures whose public names are not everyday words.
_LABELS = {
    "bytes_folded": "bytes converted to deletion vectors",
    "coarse_bytes": "bytes in small row groups",
    "condemned_bytes": "bytes marked for deletion",
    "condemned_files": "files marked for deletion",
    "mended": "branches and tags restored",
    "more_files": "files left for the next run",
    "position_deletes_folded": "position deletes converted",
    "refs_removed": "branches and tags removed",
}


def label(name: str) -> str:
    """The figure's name as words, without its unit."""
    words = name.removesuffix("_ms").replace("_", " ").replace("condemned", "marked for deletion")
    return _LABELS.get(name, words)


def value(figure: "pb.Figure") -> str:
    """The number, with its unit unless the name says it."""
    if figure.unit == "bytes":
        return format_bytes(figure.value)
    if figure.unit == "ms":
        return format_duration(figure.value)
    if not figure.unit or figure.unit in figure.name.split("_"):
        return format_count(figure.value)
    return many(figure.value, figure.unit.removesuffix("s"))
