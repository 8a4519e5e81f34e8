"""Values over time."""

from typing import TYPE_CHECKING

from amoro_cli.output import Block, Document, Grid
from amoro_core.documents.encoding import encode
from amoro_core.documents.quantities import format_bytes, format_count, format_duration, format_time
from amoro_core.records import record

if TYPE_CHECKING:
    from amoro_core.protocol import journal_pb2 as pb

_TITLES = ("FROM", "SERIES", "VALUE", "MIN", "MAX")


@record
class _Named:
    """A point with its series."""

    point: "pb.SeriesPoint"
    series: "pb.Series"


def series_document(answer: "pb.GetSeriesResponse") -> Document:
    """Schema amoro.series/v1: `series` with their `points`, and `step_s`. The names are those of series."""
    points = [_Named(point, one) for one in answer.series for point in one.points]
    # By time, and within a time in the order of the answer.
    points.sort(key=lambda item: item.point.from_ms)
    rows = tuple(_row(item) for item in points)
    step = f"one value for {format_duration(answer.step_s * 1000)}; a time without values is left out"
    grid = Grid(_TITLES, rows, frozenset(_TITLES[2:]))
    blocks: tuple[Block, ...] = (grid, step) if rows else ("No values in this time.",)
    return Document("amoro.series/v1", encode(answer), tuple(map(_name, answer.series)), blocks)


def _row(item: _Named) -> tuple[str, ...]:
    point, one = item.point, item.series
    value = point.sum if one.kind == "total" else point.sum / point.n
    return (
        format_time(point.from_ms),
        _name(one),
        _text(value, one.unit),
        _text(point.min, one.unit),
        _text(point.max, one.unit),
    )


def _name(one: "pb.Series") -> str:
    return f"{one.name}/{one.label}" if one.label else one.name


def _text(value: float, unit: str) -> str:
    match unit:
        case "bytes":
            return format_bytes(round(value))
        case "seconds":
            return format_duration(round(value * 1000))
    return format_count(round(value)) if float(value).is_integer() else f"{value:.1f}"
