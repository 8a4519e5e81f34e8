"""The first minutes of somebody who has a working pyiceberg and nothing of ours."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.processes import ROOT
from tests.acceptance.tables import assert_optimized_once, look, messy_table, name_of
from tests.engine import writer


def test_two_commands_lead_from_pyicebergs_own_configuration_to_a_receipt_and_its_proof(tmp_path: Path) -> None:
    catalog = writer.make_catalog(tmp_path / "lake")
    table = messy_table(catalog)
    told = {key: catalog.properties[key] for key in ("uri", "warehouse")}
    lines = ("catalog:", "  cat:", "    type: sql", *(f"    {key}: {value}" for key, value in told.items()))
    (tmp_path / ".pyiceberg.yaml").write_text("\n".join(lines) + "\n")
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AMORO_", "PYICEBERG_"))}
    environment = {**kept, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}

    def amoro(*arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "amoro_core", *arguments],
            capture_output=True, stdin=subprocess.DEVNULL, env=environment, cwd=tmp_path, timeout=120, check=False,
            encoding="utf-8",
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    before = look(table)
    short = name_of(table).removeprefix("cat.")  # the only catalog need not be named
    receipt = amoro("optimize", short, "--type", "full")
    after = assert_optimized_once(table, before)
    assert f"committed snapshot {after.snapshot_id}" in receipt
    assert "  rows     59 = 59 ✓" in receipt
    assert "none was lost, added or changed" in amoro("verify", short)
    assert sorted(path.name for path in (tmp_path / ".amoro").iterdir() if path.suffix == ".token") == [
        "admin.token",
        "enrolment.token",
    ]
    catalog.close()


@pytest.mark.parametrize(
    ("content", "status", "says"),
    [
        (b"catalog: [\n", 2, "{file} can't be read: Found ugly disallowed JSONesque flow mapping"),
        (
            b"catalog:\n  a:\n    uri: s\n  a:\n    uri: t\n",
            2,
            "{file} can't be read: Duplicate key 'a' found in line ",
        ),
        (b"\xff\xfe", 2, "{file} can't be read: expected UTF-8, found byte 0xff at 0 [AMORO-2002]"),
        (b"just text", 2, "{file} does not hold settings by key [AMORO-2002]"),
        (b"- a\n", 2, "{file} does not hold settings by key [AMORO-2002]"),
        (b"catalog: x\n", 2, "pyiceberg's configuration has something else than catalogs under 'catalog'"),
        (b"", 0, "No coordinator runs on"),
        (b"# nothing yet\n", 0, "No coordinator runs on"),
    ],
)
def test_a_configuration_of_pyicebergs_that_is_malformed_is_told_by_its_name(
    tmp_path: Path, content: bytes, status: int, says: str
) -> None:
    file = tmp_path / ".pyiceberg.yaml"
    file.write_bytes(content)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = _amoro(tmp_path, elsewhere, "catalog", "list")
    assert (done.returncode, says.format(file=file) in done.stderr) == (status, True), done.stderr
    # In the current directory it is anybody's, and not looked at.
    file.rename(elsewhere / file.name)
    assert _amoro(tmp_path, elsewhere, "catalog", "list").returncode == 0


def _amoro(home: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("AMORO_", "PYICEBERG_"))}
    return subprocess.run(
        [sys.executable, "-m", "amoro_core", *arguments],
        capture_output=True, stdin=subprocess.DEVNULL, env={**kept, "HOME": str(home), "PYTHONPATH": str(ROOT)},
        cwd=cwd, timeout=120, check=False, encoding="utf-8",
    )  # fmt: skip


def test_doctor_looks_where_a_state_directory_would_be_made(tmp_path: Path) -> None:
    done = _amoro(tmp_path, tmp_path, "doctor", "--home", str(tmp_path / "a/b/c"), "-o", "json")
    checks = {check["name"]: check["ok"] for check in json.loads(done.stdout)["findings"]}
    assert (checks["state directory"], checks["disk"], done.stderr) == (True, True, "")
    assert not (tmp_path / "a").exists()


def test_what_a_command_in_this_process_does_not_need_is_not_loaded_for_it(tmp_path: Path) -> None:
    script = """
import sys
from datetime import timedelta
from pathlib import Path
from amoro_core.command import LazyLauncher

with LazyLauncher().embedded(Path(sys.argv[1]), None, timedelta(seconds=5)):
    print(sorted({"pandas", "pyspark", "pytest", "amoro_core.demo"} & sys.modules.keys()), "pyarrow" in sys.modules)
import pandas
print(pandas.__name__)
"""
    environment = {**os.environ, "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", script, str(tmp_path / "home")], capture_output=True, text=True, env=environment
    )
    assert (done.returncode, done.stdout.splitlines()) == (0, ["[] True", "pandas"]), done.stderr
