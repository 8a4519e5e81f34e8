"""Bad inputs of every kind: each ends as documented, nothing is started or changed by it, and no row comes or goes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import pytest

from amoro_cli.main import run
from amoro_core.bootstrap.launcher import LocalLauncher
from tests.acceptance.processes import Installation, install, wait_until
from tests.acceptance.tables import name_of, small_table
from tests.badinput.arguments import bad_arguments, commands
from tests.badinput.oracle import MARKS, Call, Chance, Ended, assert_ended_as_documented, check, files_of, state_of
from tests.badinput.settings import bad_catalogs, bad_connection, bad_environment, bad_file, bad_site
from tests.badinput.tables import break_data_file, break_files, break_manifests, break_metadata, break_properties
from tests.engine import writer
from tests.tiers import sample

pytestmark = MARKS

SEED = int(os.environ.get("BADINPUT_SEED", "1"))
TIMES = int(os.environ.get("BADINPUT_TIMES", "1"))


@dataclass(frozen=True, slots=True)
class Site:
    """A running coordinator with an optimizer and a table that nothing optimizes, and the command on it."""

    installed: Installation
    table: str
    call: Call
    environment: pytest.MonkeyPatch


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Installation, str]]:
    """One installation for all inputs, with a table that it has found, beside a catalog that was added."""
    made = install(tmp_path_factory.mktemp("bad"))
    name = name_of(small_table(made.catalog))
    made.up("--threads", "1")
    made.ask("table", "disable", name)
    other = made.directory / "other"
    writer.make_catalog(other).close()
    made.ask("catalog", "add", "other", "type=sql", f"uri=sqlite:///{other / 'catalog.db'}")
    wait_until(lambda: made.ask("table", "list")["tables"], "the table is found")
    yield made, name
    made.close()


@pytest.fixture
def site(
    installed: tuple[Installation, str], monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Site:
    made, table = installed
    for key in [key for key in os.environ if key.startswith(("AMORO_", "PYICEBERG_"))]:
        monkeypatch.delenv(key)
    for key, value in made.environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(made.directory)

    def call(*arguments: str) -> Ended:
        status = run(LocalLauncher(), arguments)
        said = capfd.readouterr()
        return Ended(arguments, status, said.out, said.err)

    return Site(made, table, call, monkeypatch)


def bad_argument(site: Site, chance: Chance, number: int) -> None:
    """Each command has its turn; now and then a process of its own ends as the command does here."""
    every = commands()
    made = bad_arguments(chance, every[number % len(every)])
    known = {"{table}": site.table, "{directory}": str(site.installed.directory), "{id}": "0123456789"}
    for word, value in known.items():
        made = [argument.replace(word, value) for argument in made]
    before = kept_by(site.installed)
    ended = site.call(*made)
    assert_ended_as_documented(ended)
    assert ended.status != 0, ended
    if number % 75 == 0:
        there = site.installed.run_apart(*made)
        assert (there.status, there.stdout, there.stderr) == (ended.status, ended.out, ended.err)
    assert kept_by(site.installed) == before, made


def kept_by(installed: Installation) -> object:
    """What is kept, and every file of the state directory and the warehouse.

    Files of SQLite come and go while it is read; what it keeps is compared row by row.
    """
    places = (files_of(installed.home), files_of(installed.directory / "warehouse"))
    changing = ("amoro.db", "cache", "logs")
    return state_of(installed.home), [
        {name: kind for name, kind in one.items() if not name.startswith(changing)} for one in places
    ]


def starts_nothing(site: Site, told: str, *commands: tuple[str, ...]) -> None:
    for command in commands:
        ended = site.call(*command, "--home", "new")
        assert_ended_as_documented(ended, told)
        assert ended.status == 2, (told, ended)
    assert not (site.installed.directory / "new").exists(), told


def bad_settings(site: Site, chance: Chance, number: int) -> None:
    written = bad_file(chance)
    (site.installed.directory / "bad.yaml").write_bytes(written)
    # The first would not run on if the file were good.
    file = ("--config", "bad.yaml")
    starts_nothing(site, repr(written[:300]), ("config", "show", *file), ("up", "--port", "0", *file))


def bad_variables(site: Site, chance: Chance, number: int) -> None:
    said = bad_environment(chance)
    for key, value in said.items():
        site.environment.setenv(key, value)
    starts_nothing(site, repr(said), ("config", "show"), ("up", "--host", "127.0.0.1"))


def changes_nothing(site: Site, told: str, *command: str) -> None:
    before = state_of(site.installed.home)
    ended = site.call(*command)
    assert_ended_as_documented(ended, told)
    assert ended.status != 0, (told, ended)
    assert state_of(site.installed.home) == before, told


def bad_connections(site: Site, chance: Chance, number: int) -> None:
    token = (site.installed.home / "admin.token").read_text().strip()
    said = {key: value.replace("{token}", token) for key, value in bad_connection(chance).items()}
    for key, value in said.items():
        site.environment.setenv(key, value)
    changes_nothing(site, repr(said), *chance.choice((("table", "enable", site.table), ("token", "create", "new"))))


def bad_configurations(site: Site, chance: Chance, number: int) -> None:
    """Of pyiceberg."""
    directory = site.installed.directory / f"catalogs{number}"
    directory.mkdir()
    written = bad_catalogs(chance).replace(b"{directory}", str(directory).encode())
    (directory / ".pyiceberg.yaml").write_bytes(written)
    site.environment.setenv("PYICEBERG_HOME", str(directory))
    before = files_of(directory)
    command = chance.choice((("plan", "bad.db.t"), ("table", "show", "bad.db.t"), ("optimize", "bad.db.t")))
    ended = site.call(*command, "--home", str(site.installed.directory / "rest"), "--timeout", "60s")
    assert_ended_as_documented(ended, repr(written[:300]))
    assert ended.status != 0, (written[:300], ended)
    assert files_of(directory) == before, written[:300]


def bad_site_files(site: Site, chance: Chance, number: int) -> None:
    name, written = bad_site(chance)
    path = site.installed.directory / name
    path.write_bytes(written)
    uri = f"uri=sqlite:///{site.installed.directory}/catalog.db"
    command = ("catalog", "add", "new", "type=sql", uri, "--site", str(path))
    changes_nothing(site, f"{name}: {written[:300]!r}", *command)


def bad_tables(site: Site, chance: Chance, number: int, *, break_it: Callable[..., str], copies: bool = False) -> None:
    check(site.installed, site.call, chance, break_it, copies=copies)


#: How each kind is tried, and how many inputs it has. Tables that are bad stay behind, so they come last.
KINDS: Mapping[str, tuple[Callable[[Site, Chance, int], None], int]] = {
    "arguments": (bad_argument, 168),
    "settings": (bad_settings, 30),
    "environment": (bad_variables, 10),
    "connection": (bad_connections, 12),
    "catalogs": (bad_configurations, 25),
    "site": (bad_site_files, 15),
    "properties": (partial(bad_tables, break_it=break_properties), 35),
    "metadata": (partial(bad_tables, break_it=break_metadata), 40),
    "manifests": (partial(bad_tables, break_it=break_manifests), 30),
    "files": (partial(bad_tables, break_it=break_files), 35),
    "copied files": (partial(bad_tables, break_it=break_data_file, copies=True), 30),
}
INPUTS = [
    (kind, number) for kind, (_, count) in KINDS.items() for number in sample(range(0, count * TIMES, 3), every=2)
]


@pytest.mark.parametrize(("kind", "number"), INPUTS)
def test_a_bad_input_ends_as_documented_and_changes_nothing(site: Site, kind: str, number: int) -> None:
    KINDS[kind][0](site, random.Random(f"{SEED} {kind} {number}"), number)
