"""What commands print for programs, held against their schemas."""

import json
from functools import cache
from typing import Any

from jsonschema import Draft202012Validator

from amoro_core.documents.json_documents import schemas


def check_document(text: str) -> None:
    """Fail when a JSON document of ours, or one of several lines, is not allowed by its schema, or has a key more."""
    if not text.startswith("{"):
        return
    for part in text.splitlines() if text.startswith('{"') else [text]:
        document = json.loads(part)
        # A line of a list is an item, which its schema holds as a part of the list.
        if text is part or "schema" in document:
            _validator(document["schema"]).validate(document)


@cache
def _validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(_closed(schemas()[name]), format_checker=Draft202012Validator.FORMAT_CHECKER)


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
