"""The description of REST: valid, as served; a client made of it; and what schemathesis finds."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from amoro_core.bootstrap.coordinator_app import optimizer_beside
from amoro_core.model.principals import Role
from amoro_core.web.rest.openapi import description
from tests.dashboard.fuzzing import furnish, fuzzed_once
from tests.dashboard.served import Served


def test_it_is_openapi() -> None:
    from openapi_spec_validator import validate

    validate(description())


#: In an environment of its own, which the Makefile makes.
GENERATOR = Path(__file__).parents[2] / "build" / "client-generator" / "bin" / "openapi-python-client"


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a package amoro_client."""
    if not GENERATOR.exists() and os.environ.get("CI") != "true":
        pytest.skip("openapi-python-client is not there: make build/client-generator/.installed")
    directory: Path = tmp_path_factory.mktemp("generated")
    (directory / "openapi.json").write_text(json.dumps(description()))
    tools = Path(sys.executable).parent
    command = [str(GENERATOR), "generate", "--path", "openapi.json", "--meta", "none"]
    ended = subprocess.run(
        [*command, "--output-path", "amoro_client"],
        cwd=directory,
        env={**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=250,
        check=True,
    )
    assert "WARNING" not in ended.stdout + ended.stderr, "a route that the generator can't read is left out"
    return directory


def test_a_generated_client_does_the_main_job(
    served: Served, generated: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(generated))
    furnish(served, tmp_path / "lake")

    def ask(group: str, route: str, *arguments: str, **more: Any) -> Any:
        module = importlib.import_module(f"amoro_client.api.{group}.{route}")
        return module.sync(*arguments, client=client, **more)

    models = importlib.import_module("amoro_client.models")
    made = importlib.import_module("amoro_client")
    with made.AuthenticatedClient(base_url=f"http://127.0.0.1:{served.port}", token=served.admin) as client:
        (table,) = ask("selection", "select_tables", names=["lake.*"]).tables
        plan = ask("tables", "plan_table", table, body=models.PlanTableBody())
        assert (plan.type_, plan.tasks) == ("minor", 1)
        with optimizer_beside(served.coordinator, 1, 512 * 1024 * 1024):
            done = ask("tables", "optimize_table", table, body=models.OptimizeTableBody(), wait="60s")
        assert done.outcome == "success"
        shown = ask("processes", "get_process", done.process_id)
        assert shown.receipt.rows_before == shown.receipt.rows_after == 59
        assert ask("tables", "verify_table", table, body=models.VerifyTableBody()).sound is True
        refused = ask("tables", "get_table", "lake.db.none")
        assert (refused.status, refused.code) == (404, "AMORO-3002")
        assert [item.table for item in ask("tables", "list_tables").items] == [table]


SECONDS = 30


@pytest.mark.parametrize("role", [Role.VIEWER, Role.ADMIN])
def test_nothing_that_the_description_does_not_tell(role: Role, tmp_path: Path) -> None:
    ended = fuzzed_once(tmp_path, role, SECONDS)
    assert ended.returncode == 0, ended.stdout + ended.stderr
