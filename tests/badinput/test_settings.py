"""Bad settings of every kind: an error as it is documented, nothing started, nothing changed."""

from __future__ import annotations

import pytest
from pyiceberg.table import Table

from tests.acceptance.processes import Installation, Process
from tests.acceptance.tables import name_of, small_table
from tests.badinput.chance import chance, numbers
from tests.badinput.conftest import Call
from tests.badinput.oracle import MARKS, assert_ended_as_documented, files_of, state_of
from tests.badinput.settings import bad_catalogs, bad_connection, bad_environment, bad_file, bad_site

pytestmark = MARKS


@pytest.fixture(scope="module")
def coordinator(installed: Installation) -> Process:
    return installed.up()


@pytest.fixture(scope="module")
def table(installed: Installation, coordinator: Process) -> Table:
    made = small_table(installed.catalog)
    installed.ask("table", "disable", name_of(made))
    return made


@pytest.mark.parametrize("number", numbers("settings"))
def test_a_bad_settings_file_starts_nothing(installed: Installation, call: Call, number: int) -> None:
    written = bad_file(chance("settings", number))
    (installed.directory / "bad.yaml").write_bytes(written)
    # The first would not run on if the file were good.
    for command in (("config", "show"), ("up", "--port", "0")):
        ended = call((*command, "--home", "new", "--config", "bad.yaml"))
        assert_ended_as_documented(ended, repr(written[:300]))
        assert ended.status == 2, (written[:300], ended)
    assert not (installed.directory / "new").exists(), written[:300]


@pytest.mark.parametrize("number", numbers("environment"))
def test_a_bad_environment_starts_nothing(
    installed: Installation, call: Call, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    said = bad_environment(chance("environment", number))
    for key, value in said.items():
        monkeypatch.setenv(key, value)
    for command in (("config", "show"), ("up", "--host", "127.0.0.1")):
        ended = call((*command, "--home", "new"))
        assert_ended_as_documented(ended, repr(said))
        assert ended.status == 2, (said, ended)
    assert not (installed.directory / "new").exists(), said


@pytest.mark.parametrize("number", numbers("connection"))
def test_a_connection_that_can_not_be_made_changes_nothing(
    installed: Installation, table: Table, call: Call, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    drawn = chance("connection", number)
    token = (installed.home / "admin.token").read_text().strip()
    said = {key: value.replace("{token}", token) for key, value in bad_connection(drawn).items()}
    for key, value in said.items():
        monkeypatch.setenv(key, value)
    command = drawn.choice((("table", "enable", name_of(table)), ("token", "create", "new")))
    before = state_of(installed.home)
    ended = call(command)
    assert_ended_as_documented(ended, repr(said))
    assert ended.status != 0, (said, ended)
    assert state_of(installed.home) == before, said


@pytest.mark.parametrize("number", numbers("catalogs"))
def test_a_bad_catalog_of_pyicebergs_configuration_changes_nothing(
    installed: Installation, call: Call, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    drawn = chance("catalogs", number)
    directory = installed.directory / f"catalogs{number}"
    directory.mkdir()
    written = bad_catalogs(drawn).replace(b"{directory}", str(directory).encode())
    (directory / ".pyiceberg.yaml").write_bytes(written)
    monkeypatch.setenv("PYICEBERG_HOME", str(directory))
    before = files_of(directory)
    command = drawn.choice((("plan", "bad.db.t"), ("table", "show", "bad.db.t"), ("optimize", "bad.db.t")))
    ended = call((*command, "--home", str(installed.directory / "rest"), "--timeout", "60s"))
    assert_ended_as_documented(ended, repr(written[:300]))
    assert ended.status != 0, (written[:300], ended)
    assert files_of(directory) == before, written[:300]


@pytest.mark.parametrize("number", numbers("site"))
def test_a_bad_site_file_adds_no_catalog(
    installed: Installation, coordinator: Process, call: Call, number: int
) -> None:
    name, written = bad_site(chance("site", number))
    path = installed.directory / name
    path.write_bytes(written)
    before = state_of(installed.home)
    ended = call(
        ("catalog", "add", "new", "type=sql", f"uri=sqlite:///{installed.directory}/catalog.db", "--site", str(path))
    )
    assert_ended_as_documented(ended, f"{name}: {written[:300]!r}")
    assert ended.status != 0, (name, written[:300], ended)
    assert state_of(installed.home) == before, (name, written[:300])
