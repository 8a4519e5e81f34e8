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
from tests.acceptance.processes import Installation, install
from tests.badinput.oracle import (
    MARKS,
    Call,
    Chance,
    Ended,
    assert_ended_as_documented,
    check,
    files_of,
    state_of,
)
from tests.badinput.settings import bad_catalogs, bad_file, bad_site
from tests.badinput.tables import break_data_file, break_files, break_manifests, break_metadata
from tests.engine import writer
from tests.tiers import sample

pytestmark = MARKS

SEED = int(os.environ.get("BADINPUT_SEED", "1"))
TIMES = int(os.environ.get("BADINPUT_TIMES", "1"))


@dataclass(frozen=True, slots=True)
class Site:
    """A running coordinator with an optimizer, and the command on it."""

    installed: Installation
    call: Call
    environment: pytest.MonkeyPatch


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    """One installation for all inputs, beside whose catalog another one was added."""
    installed = install(tmp_path_factory.mktemp("bad"))
    installed.up("--threads", "1")
    other = installed.directory / "other"
    writer.make_catalog(other).close()
    installed.ask("catalog", "add", "other", "type=sql", f"uri=sqlite:///{other / 'catalog.db'}")
    yield installed
    installed.close()


@pytest.fixture
def site(made: Installation, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Site:
    for key in [key for key in os.environ if key.startswith(("AMORO_", "PYICEBERG_"))]:
        monkeypatch.delenv(key)
    for key, value in made.environment.items():
        monkeypatch.setenv(key, value)
    monkeypatch.chdir(made.directory)

    def call(*arguments: str) -> Ended:
        status = run(LocalLauncher(), arguments)
        said = capfd.readouterr()
        return Ended(arguments, status, said.out, said.err)

    return Site(made, call, monkeypatch)


def bad_settings(site: Site, chance: Chance, number: int) -> None:
    written = bad_file(chance)
    (site.installed.directory / "bad.yaml").write_bytes(written)
    # The first would not run on if the file were good.
    for command in (("config", "show"), ("up", "--port", "0")):
        ended = site.call(*command, "--config", "bad.yaml", "--home", "new")
        assert_ended_as_documented(ended, repr(written[:300]))
        assert ended.status == 2, (written[:300], ended)
    assert not (site.installed.directory / "new").exists(), written[:300]


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
    before = state_of(site.installed.home)
    ended = site.call("catalog", "add", "new", "type=sql", uri, "--site", str(path))
    assert_ended_as_documented(ended, f"{name}: {written[:300]!r}")
    assert ended.status != 0, (name, written[:300], ended)
    assert state_of(site.installed.home) == before, name


def bad_tables(site: Site, chance: Chance, number: int, *, break_it: Callable[..., str], copies: bool = False) -> None:
    check(site.installed, site.call, chance, break_it, copies=copies)


#: How each kind is tried, and how many inputs it has. Tables that are bad stay behind, so they come last.
KINDS: Mapping[str, tuple[Callable[[Site, Chance, int], None], int]] = {
    "settings": (bad_settings, 30),
    "catalogs": (bad_configurations, 25),
    "site": (bad_site_files, 15),
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
