"""Outputs shown in pages equal those of the commands, including every command of the REST page."""

from __future__ import annotations

import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.bootstrap.coordinator_app import embedded_optimizer
from amoro_core.model.principals import Role
from tests.acceptance.tables import config_of, messy_table
from tests.dashboard.served import serving
from tests.docs.session import DOCS, ROOT, WITH_SERVICE, WITHOUT_SERVICE, Output, normalised, session, shown
from tests.engine import writer

NAMES = ["orders", *(name for name, _ in WITHOUT_SERVICE), "up", *(name for name, _ in WITH_SERVICE)]
#: Exit statuses of commands that fail.
STATUSES = {"not-found": 3, "usage": 2, "refused": 6}
#: The coordinator may already have started the process when the command answers.
IN_PROGRESS = {"returns-enable": re.compile(r"state (due|planning|minor optimizing|optimizing|committing)\b.*")}
#: A short stall of the machine shows conditions that have not lasted long enough.
WATCHED = "Not for long enough to be reported:"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Output]:
    """The current output of each command."""
    return {output.name: output for output in session(tmp_path_factory.mktemp("session"))}


@pytest.mark.parametrize("name", NAMES)
def test_a_shown_output_equals_that_of_the_command(outputs: dict[str, Output], name: str) -> None:
    now = [line for line in normalised(outputs[name].text) if not line.startswith(WATCHED)]
    for expected in [normalised(text) for _, of, text in shown("output") if of == name]:
        lines = now
        if pattern := IN_PROGRESS.get(name):
            lines = [status if pattern.fullmatch(line) else line for line, status in zip(now, expected, strict=True)]
        assert lines == expected, "run: make outputs"
    assert outputs[name].status == STATUSES.get(name, 0)


def test_every_output_is_recorded_and_shown() -> None:
    assert {name for _, name, _ in shown("output")} == set(NAMES)


def test_the_files_that_pages_show_are_those_of_the_repository() -> None:
    for page, name, text in shown("file"):
        held = (ROOT / name).read_text(encoding="utf-8").splitlines()
        assert text.splitlines() == held, f"{page.name}, {name}: run: make outputs"


def test_every_command_of_the_rest_page_has_the_shown_output(tmp_path: Path) -> None:
    text = (DOCS / "howto/rest.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    (functions,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    with serving(tmp_path / "home") as served:
        catalog = writer.make_catalog(tmp_path / "lake", "lake")
        messy_table(catalog, name="shop.orders")
        served.coordinator.catalogs.add(config_of(catalog))
        _, token = served.coordinator.tokens.create("nightly", Role.OPERATOR, "lake.**", timedelta(days=90))
        (tmp_path / "nightly.token").write_text(f"{token}\n")
        # Each line is printed before its output, as in a terminal.
        commands = [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
        script = functions + "".join(f"cat <<'SHOWN'\n{line}\nSHOWN\n{line[2:]}\necho\n" for line in commands)
        with embedded_optimizer(served.coordinator, 1, 512 * 1024 * 1024):
            bash = ["bash", "-e", "-c", script.replace(":1630/", f":{served.port}/")]
            ended = subprocess.run(bash, cwd=tmp_path, capture_output=True, text=True, timeout=250, check=True)
    shown = [line for line in "".join(blocks).splitlines() if line]
    actual = [line for line in ended.stdout.replace(f":{served.port}/", ":1630/").splitlines() if line]
    assert normalised("\n".join(actual)) == normalised("\n".join(shown))
