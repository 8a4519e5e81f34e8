"""Results that render themselves: as text like the command line, as HTML in a notebook."""

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from html import escape

from amoro_cli.output import Block, Grid, Pairs, plain_lines


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A result that renders as the command line prints it, or as its fields; `str` returns that text."""

    blocks: tuple[Block, ...] = field(default=(), repr=False, compare=False)

    def __str__(self) -> str:
        return "\n".join(line for block in self._parts() for line in plain_lines(block))

    def _repr_html_(self) -> str:
        return "".join(_html(block) for block in self._parts())

    def _parts(self) -> tuple[Block, ...]:
        own = [item.name for item in fields(self) if item.repr]
        return self.blocks or (Pairs(tuple((name, str(getattr(self, name))) for name in own)),)


def _html(block: Block) -> str:
    match block:
        case str():
            return f"<p>{escape(block).replace(chr(10), '<br>')}</p>"
        case Grid(header, rows, right):
            flush = [" style='text-align:right'" if title in right else "" for title in header]
            body = "".join(_row("td", row, flush) for row in rows)
            return f"<table><thead>{_row('th', header, flush)}</thead><tbody>{body}</tbody></table>"
        case Pairs(pairs):
            rows_ = "".join(f"<tr><th>{escape(name)}</th><td>{escape(value)}</td></tr>" for name, value in pairs)
            return f"<table><tbody>{rows_}</tbody></table>"


def _row(tag: str, cells: Iterable[str], flush: Iterable[str]) -> str:
    inner = "".join(f"<{tag}{style}>{escape(cell)}</{tag}>" for cell, style in zip(cells, flush, strict=True))
    return f"<tr>{inner}</tr>"
