"""The schemas of what commands print: those that the code makes, and strict about what they promise."""

import re
from pathlib import Path

import jsonschema
import pytest

import amoro_cli
import amoro_core.documents
from amoro_core.dashboard.rest.routes import ROUTES
from amoro_core.documents.contract import file_name, schemas, stored
from amoro_core.documents.encoding import encode
from tests.cli.contract import check_document
from tests.cli.messages import table

PACKAGE = Path(amoro_cli.__file__).parent
SCHEMAS = Path(amoro_core.documents.__file__).parent / "schemas"


@pytest.mark.parametrize("name", schemas())
def test_a_schema_is_stored_as_the_code_makes_it_and_is_a_schema(name: str) -> None:
    assert stored(name) == schemas()[name], "run: python docs/generate.py"
    jsonschema.Draft202012Validator.check_schema(stored(name))


def test_every_document_that_is_printed_or_served_has_a_schema_and_every_schema_a_document() -> None:
    printed = {
        name
        for path in (PACKAGE / "views").glob("*.py")
        for name in re.findall(r'"(amoro\.\w+/v\d)"', path.read_text())
    }
    served = {route.schema for route in ROUTES}
    assert printed | served == set(schemas())
    assert {path.name for path in SCHEMAS.glob("*.json")} == {file_name(name) for name in schemas()}


def test_a_document_with_another_type_a_missing_or_an_unknown_key_is_found() -> None:
    import json

    good = {"schema": "amoro.table/v1", **encode(table())}
    check_document(json.dumps(good))
    for bad in (
        {**good, "snapshot_id": "12"},
        {**good, "more": 1},
        {key: value for key, value in good.items() if key != "status"},
        {**good, "evaluated_at": 12},
        {**good, "files": {**good["files"], "more": 1}},
    ):
        with pytest.raises(jsonschema.ValidationError):
            check_document(json.dumps(bad))
