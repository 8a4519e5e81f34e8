"""The description of REST: valid, shipped as it is served, and compatible with what was released."""

import copy
import json
from importlib import resources

from openapi_spec_validator import validate

from amoro_core.dashboard.rest.openapi import description
from tests.dashboard.compatibility import RELEASED, demands, promises


def test_it_is_openapi() -> None:
    validate(description())


def test_the_package_has_it_as_it_is_served() -> None:
    text = resources.files("amoro_core.documents").joinpath("openapi.json").read_text(encoding="utf-8")
    assert json.loads(text) == description(), "run: python docs/generate.py"


def broken(described: dict) -> tuple[list[str], list[str]]:
    """What was promised and is no more, and what is needed and was not."""
    released = set(RELEASED.read_text(encoding="utf-8").splitlines())
    routes = {line.partition(" is ")[0] for line in released if " is " in line}
    anew = [line for line in demands(described) if line.partition(" needs ")[0] in routes and line not in released]
    kept = {*promises(described), *demands(described)}
    return sorted(line for line in released - kept if " needs " not in line), anew


def test_what_was_released_stays() -> None:
    assert broken(description()) == ([], []), "within v1 only add; see tests/dashboard/compatibility.py for a release"


def test_a_change_that_breaks_clients_is_found() -> None:
    path = "/api/v1/tables/{table}"
    table_gone, enabled_elsewhere, status_number = (copy.deepcopy(description()) for _ in range(3))
    del table_gone["paths"][path]["get"]
    assert f"GET {path} is GetTable" in broken(table_gone)[0]
    schema = enabled_elsewhere["paths"][path]["patch"]["requestBody"]["content"]["application/json"]["schema"]
    schema["properties"]["why"] = {"type": "string"}
    assert broken(enabled_elsewhere) == ([], [])
    schema["required"] = ["enabled", "why"]
    assert broken(enabled_elsewhere) == ([], [f"PATCH {path} needs body why"])
    status_number["components"]["schemas"]["Table"]["properties"]["status"] = {"type": "integer"}
    assert broken(status_number) == (["Table.status: string"], [])
