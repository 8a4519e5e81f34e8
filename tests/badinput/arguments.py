"""Bad arguments of every command that there is, as its own description tells which it takes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import typer

from amoro_cli.main import build
from amoro_core.bootstrap.launcher import LocalLauncher
from tests.badinput import values
from tests.badinput.values import Chance, Values

#: What stands for a value in the help, and bad ones of it; the first that fits.
_BY_HELP: Sequence[tuple[str, Values]] = (
    (r"<int range>", values.integer),
    (r"DURATION", values.duration),
    (r"SIZE", values.size),
    (r"SNAPSHOT", values.snapshot),
    (r"\bTABLE", values.table),
    (r"HOST:PORT", values.address),
    (r"\bFILE|\bDIR|<path>", values.path),
    (r"<[\w-]+\|[\w|-]+>|list\[[\w|-]+\]", values.choice),
    (r"\bKEY=VALUE", values.pair),
    (r"\bPREFIX", values.name),
    (r"\b(ID|PROCESS-N|BLOCKER)\b", values.identifier),
    (r"\b(NAME|KEY|DISTRIBUTION|GROUP)\b", values.unknown),
)
#: Values of which none is bad by itself.
_ANY_TEXT = frozenset(
    {"--reason", "--host", "--master", "--spark-conf", "--resource-id", "--group", "--label", "--hint"}
)
#: Commands that give a name to something new.
_NAMING = frozenset({"token create", "group create", "catalog add"})
#: A good value for each argument, so that one bad thing at a time is tried.
_GOOD: Mapping[str, str] = {"table": "{table}", "tables": "{table}", "instances": "1", "pairs": "type=sql"}


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its words, its arguments and its options, with what the help calls their values."""

    words: tuple[str, ...]
    arguments: tuple[tuple[str, str, bool], ...]  # name, value's word, needed
    options: tuple[tuple[str, str], ...]  # the longest spelling, value's word; "" for a flag

    @property
    def name(self) -> str:
        return " ".join(self.words)


@cache
def commands() -> list[Command]:
    """All of them, in the order of the help."""
    root = build(LocalLauncher())
    return [_described(root, words, leaf) for words, leaf in _leaves(root, ())]


def bad_arguments(chance: Chance, command: Command) -> list[str]:
    """The command with something wrong; `{table}` is to be a table that exists."""
    good = [_GOOD.get(name, "{id}") for name, _, needed in command.arguments if needed]
    wrongs = [_unknown_option, _bad_connection]
    wrongs += [_bad_option] * 3 if _bad_options(command) else []
    wrongs += [_bad_argument] * 3 if command.arguments else [_superfluous]
    wrongs += [_missing] if good else []
    return [*command.words, *chance.choice(wrongs)(chance, command, good)]


def _bad_argument(chance: Chance, command: Command, good: list[str]) -> list[str]:
    at = chance.randrange(len(command.arguments))
    name, value, _ = command.arguments[at]
    given = [_GOOD.get(other, "{id}") for other, _, always in command.arguments if always or other == name]
    given[min(at, len(given) - 1)] = _values_of(command, name, value)(chance)
    return ["--", *given]


def _bad_option(chance: Chance, command: Command, good: list[str]) -> list[str]:
    option, pool = chance.choice(_bad_options(command))
    # As two words where the value may look like an option of its own, else as one.
    value = pool(chance)
    return [*good, f"{option}={value}"] if value.startswith("-") or chance.random() < 0.5 else [*good, option, value]


def _bad_options(command: Command) -> list[tuple[str, Values]]:
    return [
        (option, _values_of(command, option, value))
        for option, value in command.options
        if value and option not in _ANY_TEXT and not (option == "--after" and value != "SNAPSHOT")
    ]


def _unknown_option(chance: Chance, command: Command, good: list[str]) -> list[str]:
    known = chance.choice([option for option, _ in command.options] or ["--home"])
    return [
        *good,
        chance.choice((f"{known}x", f"--{values.word(chance)}_", f"-{chance.choice('XYZ')}", known[:-1] + "_")),
    ]


def _missing(chance: Chance, command: Command, good: list[str]) -> list[str]:
    return good[: chance.randrange(len(good))]


def _superfluous(chance: Chance, command: Command, good: list[str]) -> list[str]:
    return [*good, values.word(chance), values.odd(chance)]


def _bad_connection(chance: Chance, command: Command, good: list[str]) -> list[str]:
    wrong = chance.choice(
        (
            lambda: ["--address", values.address(chance)],
            lambda: ["--token-file", values.path(chance)],
            lambda: ["--token-file", chance.choice(("{directory}", "/dev/null", "{directory}/catalog.db"))],
            lambda: ["--ca-file", values.path(chance), "--address", "127.0.0.1:9"],
            lambda: ["--key-file", values.path(chance), "--address", "127.0.0.1:9"],
            lambda: ["--address", ":1261"],
        )
    )()
    return [*good, *wrong]


def _values_of(command: Command, name: str, value: str) -> Values:
    if name == "name":
        return values.name if command.name in _NAMING else values.unknown
    if name == "pairs" or (command.words[0] == "catalog" and value == "KEY=VALUE"):
        return values.catalog_pair
    return next((pool for pattern, pool in _BY_HELP if re.search(pattern, value)), values.unknown)


def _leaves(group: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    context = typer.Context(group)
    for name in group.list_commands(context):
        child = group.get_command(context, name)
        if hasattr(child, "commands"):
            yield from _leaves(child, (*words, name))
        else:
            yield (*words, name), child


def _described(root: Any, words: tuple[str, ...], command: Any) -> Command:
    context = typer.Context(command, info_name=words[-1], parent=typer.Context(root, info_name="amoro"))
    shared = {option for parameter in root.params for option in parameter.opts} | {"--help", "-h"}
    told = [(each, (each.get_help_record(context) or ("", ""))[0]) for each in command.params]
    return Command(
        words,
        tuple((each.name, shown, each.required) for each, shown in told if each.param_type_name == "argument"),
        tuple(
            (max(each.opts, key=len), "" if each.is_flag else shown.partition(max(each.opts, key=len))[2].strip())
            for each, shown in told
            if each.param_type_name == "option" and not shared.intersection(each.opts)
        ),
    )
