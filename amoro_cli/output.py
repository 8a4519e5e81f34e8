"""What a command prints on stdout: one document, as text for people or as data for programs."""

import io
import json
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from enum import StrEnum
from shutil import get_terminal_size
from typing import Any, TextIO
from unicodedata import east_asian_width

from amoro_core.errors import OutputUnwritable
from amoro_core.model.text_sanitizing import printable

_STYLES = {
    "success": "green",
    "failed": "red",
    "refused": "red",
    "partial": "yellow",
    "commit_unknown": "yellow",
    "ok": "green",
    "not ok": "red",
}


_GAP = "  "
_LEAST_CELL = 12  # the width to which a cell may be cut


class OutputFormat(StrEnum):
    """How a document is printed."""

    TABLE = "table"
    JSON = "json"
    JSONL = "jsonl"
    YAML = "yaml"
    NAME = "name"
    WIDE = "wide"


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under a header; columns whose title is in `right` are right-aligned.

    Where a terminal is too narrow, `spare` columns are left out, the first ones first; then `elastic` is cut.
    """

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    indent: int = 0
    spare: tuple[str, ...] = ()
    elastic: str = ""


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and values, one pair on a line; those named in `wide` only with `-o wide`."""

    pairs: tuple[tuple[str, str], ...]
    indent: int = 0
    wide: frozenset[str] = frozenset()


Block = str | Grid | Pairs


@dataclass(frozen=True, slots=True)
class Document:
    """A command's output: `body` for programs, of the JSON schema `schema`; `names`, its ids; `blocks` for people.

    `items` is the key of the body's list, of which each item is a line of JSONL; "": the body is one line.
    """

    schema: str
    body: Mapping[str, Any]
    names: tuple[str, ...]
    blocks: tuple[Block, ...]
    items: str = ""


def write(document: Document, form: OutputFormat, stream: TextIO | None = None) -> None:
    """Print the document on the stream (stdout), flushed."""
    out = stream or sys.stdout
    match form:
        case OutputFormat.JSON:
            # ASCII only, so that neither the terminal's encoding nor control characters in names matter.
            out.write(json.dumps(_with_schema(document), indent=2) + "\n")
        case OutputFormat.JSONL:
            items = document.body[document.items] if document.items else [_with_schema(document)]
            out.writelines(f"{json.dumps(item)}\n" for item in items)
        case OutputFormat.YAML:
            import yaml  # slow to import, only needed here

            yaml.safe_dump(_with_schema(document), out, sort_keys=False, default_flow_style=False, width=10_000)
        case OutputFormat.NAME:
            out.writelines(f"{printable(name)}\n" for name in document.names)
        case OutputFormat.TABLE | OutputFormat.WIDE:
            blocks = document.blocks if form is OutputFormat.WIDE else _fitted(brief(document.blocks), out)
            if is_live(out) and not os.environ.get("NO_COLOR"):
                _write_rich(blocks, out)
            else:
                out.writelines(f"{line}\n" for block in blocks for line in plain_lines(block))
    out.flush()


def brief(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The blocks without the pairs that only `-o wide` shows."""
    return tuple(
        replace(block, pairs=tuple(pair for pair in block.pairs if pair[0] not in block.wide))
        if isinstance(block, Pairs) and block.wide
        else block
        for block in blocks
    )


def is_live(out: TextIO) -> bool:
    """Whether the stream is a terminal that can redraw lines."""
    return out.isatty() and os.environ.get("TERM") != "dumb"


def plain_lines(block: Block) -> list[str]:
    """The block as lines of aligned columns; nothing is cut off."""
    if isinstance(block, str):
        return [printable(block)]
    return [(" " * block.indent + _GAP.join(row)).rstrip() for row in _aligned(block)]


def with_value(*pairs: tuple[str, str]) -> tuple[tuple[str, str], ...]:
    """Those of the pairs that have a value."""
    return tuple(pair for pair in pairs if pair[1])


def _with_schema(document: Document) -> dict[str, Any]:
    return {"schema": document.schema, **document.body}


def _aligned(block: Grid | Pairs) -> list[tuple[str, ...]]:
    """The cells of all rows, the header first, padded to the width of their columns."""
    rows = block.pairs if isinstance(block, Pairs) else (block.header, *block.rows)
    right = frozenset[str]() if isinstance(block, Pairs) else block.right
    titles = ("", "") if isinstance(block, Pairs) else block.header
    cells = [tuple(map(printable, row)) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    return [
        tuple(_filled(cell, width, title in right) for cell, width, title in zip(row, widths, titles, strict=True))
        for row in cells
    ]


def _fitted(blocks: Sequence[Block], out: TextIO) -> tuple[Block, ...]:
    """The blocks fitted to a terminal, and a line that says what was left out; elsewhere the blocks unchanged."""
    if not out.isatty():
        return tuple(blocks)
    room = get_terminal_size().columns
    fitted = tuple(fit(block, room) if isinstance(block, Grid) else block for block in blocks)
    left_out = [
        title
        for before, after in zip(blocks, fitted, strict=True)
        if isinstance(before, Grid) and isinstance(after, Grid)
        for title in before.header
        if title not in after.header
    ]
    if left_out:
        return (*fitted, f"Not shown for lack of room: {', '.join(left_out).lower()}; -o wide shows all columns.")
    return fitted if fitted == tuple(blocks) else (*fitted, "Texts that end with … are cut; -o wide shows all of them.")


def fit(grid: Grid, room: int) -> Grid:
    """The grid within `room` columns of a terminal, as far as possible."""
    for title in grid.spare:
        if _overhang(grid, room) <= 0:
            return grid
        grid = _without(grid, title)
    over = _overhang(grid, room)
    if over <= 0 or grid.elastic not in grid.header:
        return grid
    at = grid.header.index(grid.elastic)
    most = max(_LEAST_CELL, max(_width(printable(row[at])) for row in (grid.header, *grid.rows)) - over)
    return replace(grid, rows=tuple((*row[:at], _shortened(row[at], most), *row[at + 1 :]) for row in grid.rows))


def _overhang(grid: Grid, room: int) -> int:
    return max(_width(line) for line in plain_lines(grid)) - room


def _without(grid: Grid, title: str) -> Grid:
    at = grid.header.index(title)
    header, *rows = ((*row[:at], *row[at + 1 :]) for row in (grid.header, *grid.rows))
    return replace(grid, header=header, rows=tuple(rows))


def _shortened(cell: str, most: int) -> str:
    """The beginning of a text, or the end of a path."""
    text = printable(cell)
    if _width(text) <= most:
        return cell
    is_path = "/" in text and " " not in text
    while _width(text) > most - 1:
        text = text[1:] if is_path else text[:-1]
    return f"…{text}" if is_path else f"{text.rstrip()}…"


def _filled(cell: str, width: int, right: bool) -> str:
    blank = " " * (width - _width(cell))
    return blank + cell if right else cell + blank


def _width(text: str) -> int:
    """The width of the text in columns of a terminal."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _write_rich(blocks: Sequence[Block], out: TextIO) -> None:
    """The same lines with colours; the terminal wraps long ones, so that ids can be copied whole."""
    from rich.console import Console  # slower to import than most commands are; only needed on a terminal
    from rich.text import Text

    console = Console(file=out, highlight=False, soft_wrap=True)
    for block in blocks:
        if isinstance(block, str):
            console.print(Text(printable(block)))
            continue
        for number, row in enumerate(_aligned(block)):
            header = isinstance(block, Grid) and number == 0
            styles = [
                "bold" if header or (isinstance(block, Pairs) and not at) else _STYLES.get(cell.strip(), "")
                for at, cell in enumerate(row)
            ]
            parts = [part for cell, style in zip(row, styles, strict=True) for part in ((cell, style), _GAP)]
            line = Text.assemble(" " * block.indent, *parts)
            line.rstrip()
            console.print(line)


class Output(io.TextIOWrapper):
    """stdout of one command on top of the program's; `failure` is why the last write failed.

    A failed write raises OutputUnwritable, or BrokenPipeError when the reader has gone, as with `| head`.
    """

    failure: OSError | OutputUnwritable | None = None

    def write(self, text: str) -> int:
        try:
            return super().write(text)
        except OSError as error:
            raise self._failed(error) from error

    def flush(self) -> None:
        try:
            super().flush()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> OSError | OutputUnwritable:
        is_closed = isinstance(error, BrokenPipeError)
        self.failure = error if is_closed else OutputUnwritable(f"stdout can't be written: {error.strerror}")
        return self.failure


class Streams:
    """The standard streams of the program, made usable for one command whatever state they are in.

    Writes to a closed stream are dropped; characters that a stream can't encode, such as ✓, are escaped.
    """

    def __init__(self) -> None:
        for name in ("stdout", "stderr"):
            if getattr(sys, name) is None:
                setattr(sys, name, _nowhere())
        if isinstance(sys.stderr, io.TextIOWrapper):
            sys.stderr.reconfigure(errors="backslashreplace")
        self._given = sys.stdout
        self._own: Output | None = None
        if isinstance(self._given, io.TextIOWrapper):
            self._given.flush()
            self._own = sys.stdout = Output(
                self._given.buffer,
                encoding=self._given.encoding,
                errors="backslashreplace",
                line_buffering=self._given.line_buffering,
                write_through=self._given.write_through,
            )

    def settle(self, status: int) -> int:
        """Flush and restore the streams. Returns the status, or 1 instead of 0 when stdout fails."""
        status = status if self._own is None else self._settle_output(self._own, status)
        try:
            sys.stderr.flush()
        except (OSError, ValueError):
            sys.stderr = _nowhere()
        return status

    def _settle_output(self, own: Output, status: int) -> int:
        with suppress(OSError, OutputUnwritable):
            own.flush()
        if own.failure is None:
            own.detach()
            sys.stdout = self._given
            return status
        if isinstance(own.failure, OutputUnwritable):
            tell(f"Error: {own.failure.message} [{own.failure.code}]")
        sys.stdout = _nowhere()
        return status or 1


def tell(text: str, stream: TextIO | None = None) -> None:
    """Write a line to the stream (stderr). A line that can't be written is dropped: no command fails for a remark."""
    out = stream or sys.stderr
    with suppress(OSError, ValueError):
        out.write(f"{text}\n")
        out.flush()


def _nowhere() -> TextIO:
    """A null stream: data left in a failing stream would be written again as the program ends."""
    return open(os.devnull, "w")
