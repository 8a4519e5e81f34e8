"""Schemathesis on the served description, in all its phases."""

import subprocess
import sys
from pathlib import Path

from amoro_core.model.principals import Role
from amoro_core.web.rest.requests import PREFIX
from tests.acceptance.tables import config_of, messy_table, name_of
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
        url = f"http://127.0.0.1:{served.port}{PREFIX}/openapi.json"
        options = ("--exclude-operation-id", EXCLUDED, "--continue-on-failure", "--no-color", "--seed", str(seed))
        program = (str(Path(sys.executable).parent / "schemathesis"), "--config-file", str(CONFIG), "run", url)
        return subprocess.run(
            [*program, "-H", f"Authorization: Bearer {token}", *options, "--max-time", str(seconds)],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
            cwd=directory,
        )


def furnish(served: Served, directory: Path) -> str:
    """A table in the catalog lake, so that not everything is missing; its name."""
    catalog = writer.make_catalog(directory, "lake")
    name = name_of(messy_table(catalog), "lake")
    served.coordinator.catalogs.add(config_of(catalog))
    served.ask(f"{PREFIX}/tables/{name}")
    return name
