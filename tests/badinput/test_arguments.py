"""Bad arguments of every command: an error as it is documented, and nothing has changed."""

from __future__ import annotations

import pytest
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, wait_until
from tests.acceptance.tables import name_of, small_table
from tests.badinput.arguments import bad_arguments, commands
from tests.badinput.chance import COUNTS, chance, numbers
from tests.badinput.conftest import Call
from tests.badinput.oracle import MARKS, assert_ended_as_documented, files_of, state_of
from tests.engine import writer

pytestmark = MARKS

COMMANDS = commands()


@pytest.fixture(scope="module")
def table(installed: Installation) -> Table:
    """A table that a running coordinator has found, beside a catalog that was added."""
    made = small_table(installed.catalog)
    installed.up()
    other = installed.directory / "other"
    writer.make_catalog(other).close()
    installed.ask("catalog", "add", "other", "type=sql", f"uri=sqlite:///{other / 'catalog.db'}")
    wait_until(lambda: installed.ask("table", "list")["tables"], "the table is found")
    return made


def arguments_of(installed: Installation, table: Table, number: int) -> list[str]:
    """The bad arguments of that number; each command has its turn."""
    made = bad_arguments(chance("arguments", number), COMMANDS[number % len(COMMANDS)])
    known = {"{table}": name_of(table), "{directory}": str(installed.directory), "{id}": "0123456789"}
    for word, value in known.items():
        made = [argument.replace(word, value) for argument in made]
    return made


def facts(installed: Installation) -> object:
    """What is kept, and every file of the state directory and the warehouse."""
    places = (files_of(installed.home), files_of(installed.directory / "warehouse"))
    return state_of(installed.home), [{name: kind for name, kind in one.items() if _stays(name)} for one in places]


def test_there_are_three_hundred_bad_inputs_and_every_command_has_some() -> None:
    assert sum(COUNTS.values()) >= 300
    assert COUNTS["arguments"] >= 2 * len(COMMANDS)


@pytest.mark.parametrize("number", numbers("arguments"))
def test_bad_arguments_end_as_documented_and_change_nothing(
    installed: Installation, table: Table, call: Call, number: int
) -> None:
    arguments, before = arguments_of(installed, table, number), facts(installed)
    ended = call(arguments)
    assert_ended_as_documented(ended)
    assert ended.status != 0, ended
    assert facts(installed) == before, arguments


@pytest.mark.parametrize("number", numbers("arguments")[::30])
def test_a_process_of_its_own_ends_as_the_command_does_here(
    installed: Installation, table: Table, call: Call, number: int
) -> None:
    arguments, before = arguments_of(installed, table, number), facts(installed)
    here, there = call(arguments), installed.run_apart(*arguments)
    assert (there.status, there.stdout, there.stderr) == (here.status, here.out, here.err)
    assert facts(installed) == before, arguments


def _stays(name: str) -> bool:
    """Files of SQLite come and go while it is read; what it keeps is compared row by row."""
    return not name.startswith(("amoro.db", "cache", "logs"))
