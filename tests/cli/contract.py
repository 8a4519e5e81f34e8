"""What commands print for programs, held against the schemas of the package."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from amoro_cli.contract import stored


def check_document(text: str) -> None:
    """Fail when the text is a JSON document of ours that its schema does not allow, or with a key that it lacks."""
    if not text.startswith("{"):
        return
    document = json.loads(text)
    _validator(document["schema"]).validate(document)


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(_closed(stored(name)), format_checker=Draft202012Validator.FORMAT_CHECKER)


def _closed(schema: Any) -> Any:
    """The schema with every object closed: within a version keys may be added, but not without the schema."""
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(value) for key, value in schema.items()}
    if "properties" in schema and isinstance(schema.get("required"), list):
        closed["additionalProperties"] = False
    return closed
