"""The first minutes of somebody who has a working pyiceberg and nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.acceptance.processes import ROOT
from tests.acceptance.tables import assert_optimized_once, look, messy_table, name_of
from tests.engine import writer


def test_two_commands_lead_from_pyicebergs_own_configuration_to_a_receipt_and_its_proof(tmp_path: Path) -> None:
    catalog = writer.make_catalog(tmp_path / "lake")
    table = messy_table(catalog)
    lines = ("catalog:", "  cat:", "    type: sql", f"    uri: {catalog.properties['uri']}")
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
