"""The page about REST with curl: what it shows is what the commands say now."""

import re
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.app import optimizer_beside
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tokens import Role
from tests.dashboard.served import serving
from tests.docs.session import DOCS, normalised
from tests.engine import writer
from tests.engine.builders import SCHEMA, SPECS, row


def test_every_command_of_the_page_says_what_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("PYICEBERG_HOME", str(tmp_path))
    text = (DOCS / "howto/rest.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    (functions,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    with serving(tmp_path / "home") as served:
        catalog = writer.make_catalog(tmp_path / "lake", "lake")
        _orders(catalog)
        served.coordinator.catalogs.add(CatalogConfig("lake", tuple({**catalog.properties, "type": "sql"}.items())))
        _, token = served.coordinator.tokens.create("nightly", Role.OPERATOR, "lake.**", timedelta(days=90))
        (tmp_path / "nightly.token").write_text(f"{token}\n")
        # Each line is shown before what it says, as a terminal would.
        script = functions + "".join(f"cat <<'SHOWN'\n{line}\nSHOWN\n{line[2:]}\necho\n" for line in _commands(blocks))
        with optimizer_beside(served.coordinator, 1, 512 * 1024 * 1024):
            ended = subprocess.run(
                ["bash", "-e", "-c", script.replace(":1630/", f":{served.port}/")],
                cwd=tmp_path,
                capture_output=True,
                text=True,
                timeout=250,
                check=True,
            )
    shown = [line for line in "".join(blocks).splitlines() if line]
    said = [line for line in ended.stdout.replace(f":{served.port}/", ":1630/").splitlines() if line]
    assert normalised("\n".join(said)) == normalised("\n".join(shown))


def _orders(catalog: SqlCatalog) -> None:
    """Six small files with deletes of both kinds: 59 rows."""
    table = writer.make_table(catalog, "shop.orders", SCHEMA, SPECS["unpartitioned"])
    for first in range(0, 60, 10):
        writer.append(table, [row(first + number) for number in range(10)])
    writer.upsert(table, [row(3), row(25)], ["id"])
    writer.delete_where(table, lambda record: record["id"] == 41)


def _commands(blocks: list[str]) -> list[str]:
    return [line for block in blocks for line in block.splitlines() if line.startswith("$ ")]
