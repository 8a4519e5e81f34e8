"""The reference pages, generated from the code: `make docs` writes them; they are not committed."""

import inspect
import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import typer

from amoro_cli.command_table import record_of
from amoro_cli.main import build
from amoro_core import errors as error_classes
from amoro_core.bootstrap.launcher import LocalLauncher
from amoro_core.bootstrap.settings import Settings
from amoro_core.documents.prometheus_files import lasting
from amoro_core.errors import AmoroError
from amoro_core.formats.configuration import CONFIGURATIONS
from amoro_core.model.alert_rules import CONDITIONS
from amoro_core.model.metrics import METRICS
from amoro_core.model.optimizing_config import CATALOG_PREFIX
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.protocol.operations import OPERATIONS, ROUTES
from amoro_core.web.rest.openapi import description
from amoro_core.web.rest.requests import PREFIX
from docs.diagrams import MACHINES, draw, words
from docs.meanings import PROPERTIES, QUERIES, SETTINGS, STATES

Identity = tuple[tuple[str, ...], str | None]

REFERENCE = Path(__file__).parent / "reference"
_MADE = "<!-- Made from the code by `make docs`. -->\n"


def pages() -> dict[str, str]:
    """Every page and picture below docs/reference by its name."""
    pictures = {f"{machine.name}.svg": draw(machine) for machine in MACHINES}
    return {
        "commands.md": commands(),
        "settings.md": settings(),
        "properties.md": properties(),
        "metrics.md": metrics(),
        "conditions.md": conditions(),
        "states.md": states(),
        "refusals.md": refusals(),
        "rest.md": rest(),
        "errors.md": errors(),
        **pictures,
    }


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


# Commands


def commands() -> str:
    """Every command with its help, arguments and own options; common options once."""
    root = build(LocalLauncher())
    context = typer.Context(root, info_name="amoro")
    text = [_MADE, "# Commands\n\n", _summary(root)]
    text += [
        "## Options of every command\n\nThey may stand before or after the command.\n\n",
        _parameters(root, context),
    ]
    for name, command in _leaves(root, context, ()):
        own = typer.Context(command, info_name=name, parent=context)
        text.append(
            f"## amoro {name}\n\n{_summary(command)}{_parameters(command, own, without={_identity(each) for each in root.params})}"
        )
    return "\n".join(part.rstrip("\n") + "\n" for part in text)


def _leaves(command: Any, context: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name in command.list_commands(context):
        child = command.get_command(context, name)
        if hasattr(child, "commands"):
            yield from _leaves(child, context, (*path, name))
        else:
            yield " ".join((*path, name)), child


def _summary(command: Any) -> str:
    """The help of a command, its example as a block."""
    about, _, example = command.help.partition("\b\nExample:\n")
    lines = "\n".join(line.strip() for line in example.strip().splitlines())
    return f"{about.strip()}\n\n```console\n$ {lines}\n```\n\n"


def _identity(parameter: Any) -> Identity:
    return tuple(parameter.opts), parameter.help


def _parameters(command: Any, context: Any, without: Set[Identity] = frozenset()) -> str:
    rows = []
    for parameter in command.params:
        if _identity(parameter) in without or parameter.name == "help":
            continue
        record = record_of(parameter, context)
        if record is not None:
            names, meaning = record
            rows.append((f"`{names}`", re.sub(r"\s+", " ", meaning)))
    return _table(("Option", "Meaning"), iter(rows)) + "\n" if rows else ""


# Settings and properties


def settings() -> str:
    """Every key of amoro.yaml."""
    rows = (
        (f"`{key}`", f"`{value}`" if value else "", f"`AMORO_{re.sub('[.-]', '_', key).upper()}`", SETTINGS[key])
        for key, value, _ in Settings().described()
    )
    return (
        f"{_MADE}# Settings\n\n"
        "Precedence: flag, environment variable, `amoro.yaml` in the state directory (or the file of `--config`), default.\n"
        "Durations are written `30s`, `10m`, `1h`. An unknown key is an error.\n"
        "`amoro config show --origin` prints a coordinator's values with their origins.\n\n"
        + _table(("Key", "Default", "Environment", "Meaning"), rows)
    )


def properties() -> str:
    """Every supported table property, by subject."""
    text = [
        f"{_MADE}# Table properties\n\n"
        "Names and defaults are Amoro's and Iceberg's. A property is set on the table, with any engine. A malformed value\n"
        "refuses the table by name until it is fixed; unknown keys are ignored. Intervals are in milliseconds, sizes in\n"
        "bytes. `amoro table properties TABLE` shows a table's current values with their origins, and unknown keys.\n"
    ]
    for configuration in CONFIGURATIONS:
        rows = (
            (f"`{known.key}`", f"`{known.default}`" if known.default else "", PROPERTIES[known.key])
            for known in configuration.properties
        )
        said = (
            f"A catalog's property with `{CATALOG_PREFIX}` before the name is the default of its tables."
            if configuration.has_catalog_defaults
            else "Other writers use them, too, so they are set on the table only."
        )
        text.append(f"## {configuration.subject}\n\n{said}\n\n{_table(('Property', 'Default', 'Meaning'), rows)}")
    return "\n".join(text)


# Metrics


def metrics() -> str:
    """Every metric."""
    rows = (
        (f"`{metric.name}`", metric.kind.value, ", ".join(f"`{label}`" for label in metric.labels), metric.meaning)
        for metric in METRICS
    )
    return (
        f"{_MADE}# Metrics\n\n"
        "On `http-port` ([settings](settings.md)) the coordinator answers `/metrics` for a token with the role viewer, and\n"
        "`/livez` and `/readyz` for everybody. Values are read at each scrape;\n"
        "counters restart with the coordinator. Every existing group, status and reason has a series,\n"
        "with the value 0 if it is empty, so that `== 0` and `increase` work.\n"
        "[How to scrape them](../howto/service.md#monitoring).\n\n"
        + _table(("Metric", "Kind", "Labels", "Meaning"), rows)
        + "\nThe [conditions](conditions.md) and alerts use them.\n\n## Queries\n\n"
        + _table(("Expression", "Result"), ((f"`{code}`", meaning) for code, meaning in QUERIES.items()))
    )


# Conditions


def conditions() -> str:
    """Every condition, in the order of `amoro status`."""
    text = [
        f"{_MADE}# Conditions\n\n"
        "Problems shown by `amoro status` and Prometheus alerts: both use one list and are tested on the same states. A\n"
        "condition holds while its expression has a value, and is raised once it has held for its duration. `page`: page the\n"
        "on-call engineer; `look`: it can wait until morning. [How to set up alerts](../howto/alerts.md).\n"
    ]
    for condition in CONDITIONS:
        lasts = f"for {lasting(condition.lasts)}" if condition.lasts else "at once"
        text.append(
            f"## {condition.name}\n\n{condition.meaning}\n\nRemedy: {condition.remedy}\n\n"
            f"`{condition.alert}`, {condition.severity}, {lasts}:\n\n    {condition.when.promql}\n"
        )
    return "\n".join(text)


# Refusals


def refusals() -> str:
    """Every word of REFUSED(word)."""
    text = (
        f"{_MADE}# Refusals\n\n"
        "A table with an unsupported feature is refused by a word, before any work: `amoro table show TABLE` shows the word and\n"
        "the details, `amoro optimize` ends with status 6, and the table is not changed. A refusal ends with the first refresh\n"
        "after its reason is gone.\n"
    )
    return text + "".join(
        f"\n## {word}\n\n{refusal.meaning}\n\nRemedy: {refusal.remedy}\n" for word, refusal in REFUSALS.items()
    )


# States


def states() -> str:
    """The three machines: picture, meanings of the states, every edge."""
    text = [
        f"{_MADE}# States\n\nThree state machines, each one table in one file of `amoro_core/state`. Events outside the table\n"
        "are refused and change nothing; the pictures are drawn from the tables.\n"
    ]
    for machine in MACHINES:
        kinds: Mapping[str, str] = STATES[machine.name]
        found = {each.value for key, after in machine.transitions.items() for each in (key[0], after)}
        if found != set(kinds):
            raise ValueError(f"states of a {machine.name} without a meaning, or gone: {found ^ set(kinds)}")
        edges = ((f"`{status}`", words(event), f"`{after}`") for (status, event), after in machine.transitions.items())
        text.append(
            f"## {machine.name.capitalize()}\n\n![States of a {machine.name}]({machine.name}.svg)\n\n"
            + _table(("State", "Meaning"), ((f"`{name}`", meaning) for name, meaning in kinds.items()))
            + "\n"
            + _table(("From", "Event", "To"), edges)
        )
    return "\n".join(text)


# REST


def rest() -> str:
    """Every route of the REST API."""
    described = description()["paths"]
    text = [
        _MADE,
        "# REST\n\nBelow `/api/v1`, at `http-host` and `http-port` of the [settings](settings.md). "
        "[With curl](../howto/rest.md) shows how to use it. The complete OpenAPI 3.1 description is served as "
        "`/api/v1/openapi.json`, to everybody; it is also [here](../openapi.json) and in a wheel, as "
        "`amoro_core/documents/openapi.json`. Within v1 fields are only added.\n",
    ]
    rows = (
        (
            f"`{route.method} {route.path}`",
            described[f"{PREFIX}{route.path}"][route.method.lower()]["summary"],
            str(OPERATIONS[route.operation].role),
            f"items of `{route.schema}`" if route.items else f"`{route.schema}`",
        )
        for route in ROUTES
    )
    return "".join((*text, "\n", _table(("Request", "Effect", "Role", "Answer"), rows)))


# Errors


_EXITS = {
    1: "failed",
    2: "wrong usage, wrong settings",
    3: "not found",
    4: "not allowed",
    5: "conflict: retry later",
    6: "refused, by name",
    7: "the outcome is unknown",
    124: "time limit exceeded",
}
_ERRORS = f"""{_MADE}# Errors

Every error has a stable code, ends a command with its exit status, and is a class of `amoro_core.errors` that the
Python API raises. The message names the failure, its reason and the value; the hint below it gives a remedy. `--debug`
adds the traceback.
"""


def errors() -> str:
    """The page of all errors, in order of their codes."""
    known = (kind for kind in vars(error_classes).values() if isinstance(kind, type) and issubclass(kind, AmoroError))
    kinds = sorted(known, key=lambda kind: kind.code)
    return _ERRORS + "".join(_section(kind) for kind in kinds)


def _section(kind: type[AmoroError]) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    status = f"exit status {kind.exit_status}: {_EXITS[kind.exit_status]}"
    return f"\n## {kind.code}\n\n`{kind.__name__}`, {status}.\n\n{text}\n\nRemedy: {kind.remedy}\n"


def write(directory: Path) -> None:
    """Write the pages into the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, text in pages().items():
        (directory / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write(REFERENCE)
