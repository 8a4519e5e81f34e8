"""What a command prints on stdout: one document, as text for people or as data for programs."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TextIO
from unicodedata import east_asian_width

from amoro_core.errors import WorkFailed

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


class OutputFormat(StrEnum):
    TABLE = "table"
    JSON = "json"
    YAML = "yaml"
    NAME = "name"


@dataclass(frozen=True, slots=True)
class Grid:
    """Rows under a header; columns whose title is in `right` are flush right."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    right: frozenset[str] = frozenset()
    indent: int = 0


@dataclass(frozen=True, slots=True)
class Pairs:
    """Names and values, one pair on a line."""

    pairs: tuple[tuple[str, str], ...]
    indent: int = 0


Block = str | Grid | Pairs


@dataclass(frozen=True, slots=True)
class Document:
    """One answer. `body` is what programs get under `schema`, `names` are the ids in it, `blocks` are for people."""

    schema: str
    body: Mapping[str, Any]
    names: tuple[str, ...]
    blocks: tuple[Block, ...]


def write(document: Document, form: OutputFormat, stream: TextIO | None = None) -> None:
    """Print the document on the stream (stdout), flushed."""
    try:
        _write(document, form, stream or sys.stdout)
    except BrokenPipeError:
        raise  # nobody reads on, as behind `| head`
    except OSError as error:
        raise WorkFailed(f"the output can't be written: {error.strerror}", hint="Look where stdout goes.") from error


def _write(document: Document, form: OutputFormat, out: TextIO) -> None:
    match form:
        case OutputFormat.JSON:
            # ASCII only, so that neither the terminal's encoding nor control characters in names matter.
            out.write(json.dumps(_with_schema(document), indent=2) + "\n")
        case OutputFormat.YAML:
            import yaml  # as rich below: only who asks for it pays for it

            yaml.safe_dump(_with_schema(document), out, sort_keys=False, default_flow_style=False, width=10_000)
        case OutputFormat.NAME:
            out.writelines(f"{printable(name)}\n" for name in document.names)
        case OutputFormat.TABLE if is_live(out) and not os.environ.get("NO_COLOR"):
            _write_rich(document.blocks, out)
        case OutputFormat.TABLE:
            out.writelines(f"{line}\n" for block in document.blocks for line in plain_lines(block))
    out.flush()


def is_live(out: TextIO) -> bool:
    """Whether the stream is a terminal that can do more than show one line after the other."""
    return out.isatty() and os.environ.get("TERM") != "dumb"


def plain_lines(block: Block) -> list[str]:
    """The block as lines of aligned columns; nothing is cut off."""
    if isinstance(block, str):
        return [printable(line) for line in block.split("\n")]
    return [(" " * block.indent + _GAP.join(row)).rstrip() for row in _aligned(block)]


def printable(text: str) -> str:
    """The text with control characters escaped, so that a name or a message cannot steer the terminal."""
    return "".join(char if char >= " " and not "\x7f" <= char <= "\x9f" else repr(char)[1:-1] for char in text)


def _with_schema(document: Document) -> dict[str, Any]:
    return {"schema": document.schema, **document.body}


def _aligned(block: Grid | Pairs) -> list[tuple[str, ...]]:
    """The cells of all rows, the header's first, filled up to the width of their columns."""
    rows = block.pairs if isinstance(block, Pairs) else (block.header, *block.rows)
    right = frozenset[str]() if isinstance(block, Pairs) else block.right
    titles = ("", "") if isinstance(block, Pairs) else block.header
    cells = [tuple(printable(" ".join(cell.split("\n"))) for cell in row) for row in rows]
    widths = [max(map(_width, column)) for column in zip(*cells, strict=True)]
    return [
        tuple(_filled(cell, width, title in right) for cell, width, title in zip(row, widths, titles, strict=True))
        for row in cells
    ]


def _filled(cell: str, width: int, right: bool) -> str:
    blank = " " * (width - _width(cell))
    return blank + cell if right else cell + blank


def _width(text: str) -> int:
    """Columns that a terminal gives the text."""
    return len(text) if text.isascii() else sum(2 if east_asian_width(char) in "WF" else 1 for char in text)


def _write_rich(blocks: Sequence[Block], out: TextIO) -> None:
    """The same lines with colours; the terminal wraps long ones, so that ids can be copied whole."""
    from rich.console import Console  # costs more than most commands; only a terminal pays for it
    from rich.text import Text

    console = Console(file=out, highlight=False, soft_wrap=True)
    for block in blocks:
        if isinstance(block, str):
            console.print(Text("\n".join(plain_lines(block))))
            continue
        for number, row in enumerate(_aligned(block)):
            header = isinstance(block, Grid) and number == 0
            styles = [
                "bold" if header or (isinstance(block, Pairs) and not at) else _style(cell)
                for at, cell in enumerate(row)
            ]
            parts = [part for cell, style in zip(row, styles, strict=True) for part in ((cell, style), _GAP)]
            line = Text.assemble(" " * block.indent, *parts)
            line.rstrip()
            console.print(line)


def _style(cell: str) -> str:
    return _STYLES.get(cell.strip(), "")
