"""Layout of the help of commands: arguments, options, commands, and connection options at the end."""

import re
from collections.abc import Callable, Iterator
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

CONNECTION = "Connection options"

#: -h means --help everywhere: sub-commands inherit the settings of a context.
CONTEXT_SETTINGS = {"help_option_names": ["-h", "--help"]}


#: Typer's default metavars, and ours.
_VALUES = {"<int>": "N", "<int range>": "N", "<float>": "N", "<str>": "TEXT"}
_TYPE = re.compile(r" ?<(?!\w+\|)[^>]*>")


class HelpfulCommand(TyperCommand):
    """A command whose options of the panel CONNECTION stand apart, at the end."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [piece.replace("{", "").replace("}", "") for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write(self, ctx, formatter, lambda: None)


class HelpfulGroup(TyperGroup):
    """A group whose options of the panel CONNECTION stand apart, after its commands."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        _write(self, ctx, formatter, lambda: self.format_commands(ctx, formatter))


def _write(command: Any, ctx: typer.Context, formatter: Any, write_commands: Callable[[], None]) -> None:
    parameters = command.get_params(ctx)
    _section(formatter, "Arguments", [*_records(parameters, ctx, kind="argument")])
    _section(formatter, "Options", [*_records(parameters, ctx, kind="option", panel=None)])
    write_commands()
    _section(formatter, CONNECTION, [*_records(parameters, ctx, kind="option", panel=CONNECTION)])


def _records(
    parameters: list[Any], ctx: typer.Context, *, kind: str, panel: str | None = None
) -> Iterator[tuple[str, str]]:
    for parameter in parameters:
        if parameter.param_type_name == kind and getattr(parameter, "rich_help_panel", None) == panel:
            record = record_of(parameter, ctx)
            if record is not None:
                yield record


def record_of(parameter: Any, ctx: typer.Context) -> tuple[str, str] | None:
    """A parameter's syntax and its help; None for a hidden one. Types are shown by readable names."""
    record = parameter.get_help_record(ctx)
    if record is None:
        return None
    is_argument = parameter.param_type_name == "argument"

    def said(found: re.Match[str]) -> str:
        return "" if is_argument else f" {_VALUES.get(found[0].strip(), found[0].strip())}"

    return _TYPE.sub(said, record[0]), record[1]


def _section(formatter: Any, title: str, records: list[tuple[str, str]]) -> None:
    if records:
        with formatter.section(title):
            formatter.write_dl(records)
