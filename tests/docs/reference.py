"""The reference pages, made from the code: `make docs` writes them, a test holds them against it."""

import re
from collections.abc import Iterator, Mapping, Set
from pathlib import Path
from typing import Any

import typer

from amoro_cli.help_format import record_of
from amoro_cli.main import build
from amoro_core.bootstrap.command import LazyLauncher
from amoro_core.bootstrap.settings import Settings
from amoro_core.documents.prometheus_files import lasting
from amoro_core.formats.configuration import CONFIGURATIONS
from amoro_core.model.alert_rules import CONDITIONS
from amoro_core.model.metrics import METRICS
from amoro_core.model.optimizing_config import CATALOG_PREFIX
from amoro_core.model.refusal_reasons import REFUSALS
from amoro_core.protocol.operations import OPERATIONS, ROUTES
from amoro_core.web.rest.openapi import description
from amoro_core.web.rest.requests import PREFIX
from tests.docs.diagrams import MACHINES, draw, words
from tests.docs.meanings import PROPERTIES, QUERIES, SETTINGS, STATES

Identity = tuple[tuple[str, ...], str | None]

REFERENCE = Path(__file__).parents[2] / "docs/reference"
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
        **pictures,
    }


def _table(head: tuple[str, ...], rows: Iterator[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines)


# Commands


def commands() -> str:
    """Every command with its help, its arguments and its own options; the options of all of them once."""
    root = typer.main.get_command(build(LazyLauncher()))
    context = typer.Context(root, info_name="amoro")
    text = [_MADE, "# Commands\n\n", _summary(root)]
    text += [
        "## Options of every command\n\nThey may stand before or after the command.\n\n",
        _parameters(root, context),
    ]
    for name, command in _leaves(root, ()):
        own = typer.Context(command, info_name=name, parent=context)
        text.append(
            f"## amoro {name}\n\n{_summary(command)}{_parameters(command, own, without={_identity(each) for each in root.params})}"
        )
    return "\n".join(part.rstrip("\n") + "\n" for part in text)


def _leaves(command: Any, path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, child in command.commands.items():
        if hasattr(child, "commands"):
            yield from _leaves(child, (*path, name))
        else:
            yield " ".join((*path, name)), child


def _summary(command: Any) -> str:
    """The help of a command; what it gives as an example becomes a block."""
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
        "A flag goes before the environment, that before `amoro.yaml` in the state directory (or the file that `--config`\n"
        "names), that before the default. Durations are written `30s`, `10m`, `1h`. An unknown key is an error.\n"
        "`amoro config show --origin` prints the values of a coordinator and where each comes from.\n\n"
        + _table(("Key", "Default", "Environment", "Meaning"), rows)
    )


def properties() -> str:
    """Every property of a table that means something to us, by subject."""
    text = [
        f"{_MADE}# Table properties\n\n"
        "Names and defaults are Amoro's and Iceberg's. A property is set on the table, with any engine. A malformed value\n"
        "refuses the table by name until it is fixed; unknown keys are left alone. Intervals are in milliseconds, sizes in\n"
        "bytes. `amoro table properties TABLE` shows what holds for a table, and why, and names keys that are not known.\n"
    ]
    for configuration in CONFIGURATIONS:
        rows = (
            (f"`{known.key}`", f"`{known.default}`" if known.default else "", PROPERTIES[known.key])
            for known in configuration.properties
        )
        said = (
            f"A catalog's property with `{CATALOG_PREFIX}` before the name is the default of its tables."
            if configuration.has_catalog_defaults
            else "Other writers of the table go by them, too, so they are the table's alone."
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
        "`/livez` and `/readyz` for everybody. Values are read when they are asked\n"
        "for; counters begin anew with each start of the coordinator. Every group, status and reason that exists is told,\n"
        "with 0 where nothing stands there, so that `== 0` and `increase` see it.\n"
        "[How to scrape them](../howto/service.md#monitoring).\n\n"
        + _table(("Metric", "Kind", "Labels", "Meaning"), rows)
        + "\n[What is worth an alert](conditions.md) is made of them.\n\n## Questions\n\n"
        + _table(("Expression", "Answer"), ((f"`{code}`", meaning) for code, meaning in QUERIES.items()))
    )


# Conditions


def conditions() -> str:
    """Every condition, in the order in which they are shown."""
    text = [
        f"{_MADE}# Conditions\n\n"
        "What is wrong, as `amoro status` and the alerts of Prometheus say it: both are made from one list and tried on the same\n"
        "states. A condition holds where its expression has a value, and is raised once it has held for its duration. `page`:\n"
        "somebody is to be woken; `look`: somebody is to look in the morning. [How to be told](../howto/alerts.md).\n"
    ]
    for condition in CONDITIONS:
        lasts = f"for {lasting(condition.lasts)}" if condition.lasts else "at once"
        text.append(
            f"## {condition.name}\n\n{condition.meaning}\n\nWhat to do: {condition.remedy}\n\n"
            f"`{condition.alert}`, {condition.severity}, {lasts}:\n\n    {condition.when.promql}\n"
        )
    return "\n".join(text)


# Refusals


def refusals() -> str:
    """Every word of REFUSED(word)."""
    text = (
        f"{_MADE}# Refusals\n\n"
        "A table that has something that is not handled is refused by a word, before any work: `amoro table show TABLE` has\n"
        "the word and the details, `amoro optimize` ends with status 6, and the table is left exactly as it is. A refusal\n"
        "ends by itself, at the next look after its reason is gone.\n"
    )
    return text + "".join(
        f"\n## {word}\n\n{refusal.meaning}\n\nWhat to do: {refusal.remedy}\n" for word, refusal in REFUSALS.items()
    )


# States


def states() -> str:
    """The three machines: picture, what the states mean, every edge."""
    text = [
        f"{_MADE}# States\n\nThree machines, each one table in one file of `amoro_core/state`. What is not in the table\n"
        "is refused and changes nothing; the pictures are drawn from the tables.\n"
    ]
    for machine in MACHINES:
        kinds: Mapping[str, str] = STATES[machine.name]
        found = {each.value for key, after in machine.transitions.items() for each in (key[0], after)}
        assert found == set(kinds), f"states of a {machine.name} without a meaning, or gone"
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
        "[With curl](../howto/rest.md) shows how to use it. The whole description in OpenAPI 3.1 is served as "
        "`/api/v1/openapi.json`, to everybody; it is also [here](../openapi.json) and in the package, as "
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
    return "".join((*text, "\n", _table(("Request", "What it does", "Role", "Answer"), rows)))


def write() -> None:
    """Write the pages anew."""
    REFERENCE.mkdir(exist_ok=True)
    for name, text in pages().items():
        (REFERENCE / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
