"""Schemathesis on the served description, in all its phases."""

import subprocess
import sys
from pathlib import Path

from amoro_core.model.principals import Role
from amoro_core.model.processes import CatalogConfig
from amoro_core.web.rest.requests import PREFIX
from tests.acceptance.tables import messy_table
from tests.dashboard.served import Served, serving
from tests.engine import writer

CONFIG = Path(__file__).parent / "schemathesis.toml"
#: It writes files wherever it is told to.
EXCLUDED = "BackupState"


def fuzzed_once(directory: Path, role: Role, seconds: int, seed: int = 0) -> subprocess.CompletedProcess[str]:
    """What schemathesis says of a new coordinator's API to a token of that role."""
    with serving(directory / "home") as served:
        furnish(served, directory / "lake")
        _, token = served.coordinator.tokens.create("fuzzing", role)
        return _fuzzed(served, token, directory, ("--max-time", str(seconds), "--seed", str(seed)))


def furnish(served: Served, directory: Path) -> None:
    """A table in the catalog lake, so that not everything is missing."""
    catalog = writer.make_catalog(directory, "lake")
    made = messy_table(catalog)
    served.coordinator.catalogs.add(CatalogConfig("lake", tuple({**catalog.properties, "type": "sql"}.items())))
    served.ask(f"{PREFIX}/tables/lake.{'.'.join(made.name()[-2:])}")


def _fuzzed(served: Served, token: str, directory: Path, limits: tuple[str, ...]) -> subprocess.CompletedProcess[str]:
    program = str(Path(sys.executable).parent / "schemathesis")
    url = f"http://127.0.0.1:{served.port}{PREFIX}/openapi.json"
    options = ("--exclude-operation-id", EXCLUDED, "--continue-on-failure", "--no-color", *limits)
    return subprocess.run(
        [program, "--config-file", str(CONFIG), "run", url, "-H", f"Authorization: Bearer {token}", *options],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=directory,
    )
