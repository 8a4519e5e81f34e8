"""Diagrams of the state machines, drawn from their tables of transitions."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from html import escape
from typing import Any

from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus
from amoro_core.state import processes, tables, tasks

Transitions = Mapping[tuple[StrEnum, type[Any]], StrEnum]

_COLUMN, _ROW, _WIDTH, _HEIGHT, _MARGIN = 270, 130, 130, 40, 30
_ALL = "minor, major or\nfull optimizing"
#: The three types of optimizing share one box.
_ONE = {
    OptimizingStatus.MINOR_OPTIMIZING.value: _ALL,
    OptimizingStatus.MAJOR_OPTIMIZING.value: _ALL,
    OptimizingStatus.FULL_OPTIMIZING.value: _ALL,
}


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine and the positions of its states: column and row."""

    name: str
    transitions: Transitions
    places: Mapping[str, tuple[float, float]]
    one: Mapping[str, str]


MACHINES = (
    Machine(
        "task",
        tasks.TRANSITIONS,
        {
            TaskStatus.PLANNED: (0, 1),
            TaskStatus.SCHEDULED: (1, 1),
            TaskStatus.ACKED: (2, 1),
            TaskStatus.SUCCESS: (3, 1),
            TaskStatus.FAILED: (1, 0),
            TaskStatus.CANCELED: (1, 3),
        },
        {},
    ),
    Machine(
        "process",
        processes.TRANSITIONS,
        {
            ProcessStatus.REQUESTED: (0, 0),
            ProcessStatus.RUNNING: (0, 1),
            ProcessStatus.COMMITTING: (1, 1),
            ProcessStatus.COMMIT_UNKNOWN: (1, 2.7),
            ProcessStatus.CLEARING: (2.3, 1.85),
            ProcessStatus.HELD: (0.75, 1.85),
            ProcessStatus.SUCCESS: (3.3, 0.8),
            ProcessStatus.PARTIAL: (3.3, 2.9),
            ProcessStatus.FAILED: (1, 0),
            ProcessStatus.CLOSED: (0, 2.7),
        },
        {},
    ),
    Machine(
        "table",
        tables.TRANSITIONS,
        {
            OptimizingStatus.IDLE: (0, 1),
            OptimizingStatus.PENDING: (1, 2),
            OptimizingStatus.PLANNING: (2, 1),
            _ALL: (2, 0),
            OptimizingStatus.COMMITTING: (0, 0),
            OptimizingStatus.REFUSED: (1, 3.3),
        },
        _ONE,
    ),
)


def words(event: type[Any]) -> str:
    """The event's name as words."""
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", event.__name__).lower()


def draw(machine: Machine) -> str:
    """The machine as SVG: a box for each state, an arrow with the events for each pair of states."""
    arrows: dict[tuple[str, str], list[str]] = {}
    for (status, event), after in machine.transitions.items():
        begin, end = (machine.one.get(str(each), str(each)) for each in (status, after))
        if begin != end and words(event) not in arrows.setdefault((begin, end), []):
            arrows[begin, end].append(words(event))
    columns, rows = (max(place[axis] for place in machine.places.values()) for axis in (0, 1))
    width, height = 2 * _MARGIN + _WIDTH + columns * _COLUMN, 2 * _MARGIN + _HEIGHT + rows * _ROW
    drawn = [_arrow(machine, *ends, events, ends[::-1] in arrows) for ends, events in arrows.items()]
    # Labels over all lines.
    shapes = [
        *(line for line, _ in drawn),
        *(_box(machine, name) for name in machine.places),
        *(text for _, text in drawn),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" role="img" '
            f'font-family="sans-serif" font-size="13"><title>States of a {machine.name}</title>',
            '<defs><marker id="end" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="8" markerHeight="8" orient="auto">'
            '<path d="M0 0L8 4L0 8z" fill="#546e7a"/></marker></defs>',
            f'<rect width="{width:g}" height="{height:g}" fill="#ffffff"/>',
            *shapes,
            "</svg>",
            "",
        ]
    )


def _centre(machine: Machine, name: str) -> tuple[float, float]:
    column, row = machine.places[name]
    return _MARGIN + _WIDTH / 2 + column * _COLUMN, _MARGIN + _HEIGHT / 2 + row * _ROW


def _box(machine: Machine, name: str) -> str:
    x, y = _centre(machine, name)
    lines = name.replace("_", " ").split("\n")
    texts = "".join(
        f'<text x="{x:g}" y="{y + 4.5 + 16 * (number - (len(lines) - 1) / 2):g}" text-anchor="middle">{line}</text>'
        for number, line in enumerate(lines)
    )
    return (
        f'<rect x="{x - _WIDTH / 2:g}" y="{y - _HEIGHT / 2:g}" width="{_WIDTH}" height="{_HEIGHT}" rx="6" '
        f'fill="#eceff1" stroke="#546e7a"/>{texts}'
    )


def _arrow(machine: Machine, begin: str, end: str, events: list[str], is_double: bool) -> tuple[str, str]:
    """The line and its label."""
    (ax, ay), (bx, by) = _centre(machine, begin), _centre(machine, end)
    dx, dy = bx - ax, by - ay
    length = math.hypot(dx, dy)
    # Opposite lines, and a line through a box, are curved.
    over = any(_is_between(_centre(machine, name), (ax, ay), (bx, by)) for name in machine.places)
    bend = 85 if over else (55 if dx == 0 else 34) if is_double else 0
    cx, cy = (ax + bx) / 2 + 2 * bend * dy / length, (ay + by) / 2 - 2 * bend * dx / length
    sx, sy = _border(ax, ay, cx, cy)
    ex, ey = _border(bx, by, cx, cy)
    lx, ly = (sx + 2 * cx + ex) / 4, (sy + 2 * cy + ey) / 4
    lines = [
        f'<tspan x="{lx:.0f}" y="{ly + 4 + 15 * (number - (len(events) - 1) / 2):.0f}">{escape(event)}</tspan>'
        for number, event in enumerate(events)
    ]
    return (
        f'<path d="M{sx:.0f} {sy:.0f}Q{cx:.0f} {cy:.0f} {ex:.0f} {ey:.0f}" fill="none" stroke="#546e7a" '
        'marker-end="url(#end)"/>',
        '<text text-anchor="middle" stroke="#ffffff" stroke-width="5" paint-order="stroke" '
        f'fill="#263238">{"".join(lines)}</text>',
    )


def _is_between(point: tuple[float, float], begin: tuple[float, float], end: tuple[float, float]) -> bool:
    """Whether the point is inside a horizontal line."""
    return begin[1] == end[1] == point[1] and min(begin[0], end[0]) < point[0] < max(begin[0], end[0])


def _border(x: float, y: float, towards_x: float, towards_y: float) -> tuple[float, float]:
    """The point where a line from the center of a box crosses its border."""
    dx, dy = towards_x - x, towards_y - y
    scale = min(_WIDTH / 2 / abs(dx) if dx else math.inf, _HEIGHT / 2 / abs(dy) if dy else math.inf)
    return x + dx * scale, y + dy * scale
