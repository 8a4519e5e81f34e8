"""Documents as assistants get them: names and texts of strangers are data, cleaned, and answers stay small."""

import json
from collections.abc import Mapping
from typing import Any

from amoro_core.model.secrets import without_secrets

#: Of a document: the answer holds it twice, as data and as text, and stays below 25 kB.
MOST_BYTES = 12_000
#: How long texts and lists may be, tried in this order until a document is small enough.
_STEPS = ((2000, 100), (500, 30), (200, 10), (80, 3), (30, 1))


def cleaned(value: Any, key: str = "") -> Any:
    """The value without control and bidirectional characters and without secrets; ids as text.

    Ids are of 64 bits, and JavaScript rounds whole numbers above 2^53.
    """
    if isinstance(value, Mapping):
        return {clean_text(name): cleaned(item, name) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [cleaned(item, key) for item in value]
    if isinstance(value, str):
        return clean_text(value)
    return str(value) if is_id(key) and isinstance(value, int) and not isinstance(value, bool) else value


def clean_text(text: str) -> str:
    """The text on lines of one: breaks are blanks, and other characters that nobody sees are left out."""
    shown = without_secrets(text)
    return "".join(char if char.isprintable() else " " if char.isspace() else "" for char in shown)


def is_id(key: str) -> bool:
    """Whether a field of that name is an id, or several."""
    return key.endswith(("_id", "_ids"))


def with_text_ids(schema: Mapping[str, Any], key: str = "") -> dict[str, Any]:
    """The JSON Schema of documents as `cleaned` gives them."""
    made = dict(schema)
    if is_id(key) and made.get("type") == "integer":
        made["type"] = "string"
    elif is_id(key) and isinstance(made.get("type"), list):
        made["type"] = ["string" if one == "integer" else one for one in made["type"]]
    if isinstance(made.get("items"), Mapping):
        made["items"] = with_text_ids(made["items"], key)
    if isinstance(made.get("properties"), Mapping):
        made["properties"] = {name: with_text_ids(item, name) for name, item in made["properties"].items()}
    return made


def size_of(document: Mapping[str, Any]) -> int:
    """How many bytes its JSON takes."""
    return len(json.dumps(document))


def fitted(document: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """The document with long texts and lists cut as far as needed, and whether that was needed."""
    if size_of(document) <= MOST_BYTES:
        return document, False
    small = document
    for longest, most in _STEPS:
        small = _cut(document, longest, most)
        if size_of(small) <= MOST_BYTES:
            break
    return small, True


def _cut(value: Any, longest: int, most: int) -> Any:
    if isinstance(value, Mapping):
        # A map of properties is cut, too; a document has fewer fields than any step allows for a map.
        return {name: _cut(item, longest, most) for name, item in value.items()}
    if isinstance(value, list):
        return [_cut(item, longest, most) for item in value[:most]]
    if isinstance(value, str) and len(value) > longest:
        return f"{value[: longest - 1]}…"
    return value
