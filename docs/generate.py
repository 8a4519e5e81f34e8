"""Write the schemas that a wheel holds: `python docs/generate.py`, part of `make docs` and `make dist`.

They are generated and not committed: those of `amoro.yaml` and of every JSON document, and the description of REST.
"""

import json
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

from amoro_core.bootstrap.settings import FIELDS, Settings, written
from amoro_core.documents.json_documents import schemas
from amoro_core.model.listeners import Webhook
from amoro_core.model.processes import CatalogRules
from amoro_core.web.rest.openapi import description

HERE = Path(__file__).resolve().parent
PACKAGED = HERE.parent / "amoro_core" / "documents"


def file_schema() -> dict[str, Any]:
    """The JSON Schema of `amoro.yaml`; keys with a dot may also be nested."""
    properties: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for key, item in FIELDS.items():
        default = getattr(Settings(), item.name)
        shown = written(default) if isinstance(default, timedelta) else default
        shown = list(shown) if isinstance(shown, tuple) else shown
        properties[key] = {"default": shown, **_schema_of(item.type, item.metadata)}
        outer, dot, inner = key.partition(".")
        if dot:
            group = groups.setdefault(outer, {"type": "object", "properties": {}, "additionalProperties": False})
            group["properties"][inner] = properties[key]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "amoro.yaml",
        "type": "object",
        "properties": {**properties, **groups},
        "additionalProperties": False,
    }


def _schema_of(kind: Any, limits: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a setting of that type; `limits` is its field's metadata."""
    if kind is timedelta:
        return {"type": "string", "pattern": r"^(\d+(\.\d+)?(ms|s|min|m|h|d))+$"}
    if kind is bool:
        return {"type": "boolean"}
    if kind is int:
        return {"type": "integer", "minimum": limits["least"], "maximum": limits["most"]}
    if kind is str and "size" in limits:
        pattern = r"^(0|\d+(\.\d+)?\s*([kKmMgGtT]([iI]?[bB])?|[bB]))$"
        return {"type": ["string", "integer"], "pattern": pattern, "minimum": 0, "maximum": 0}
    if kind is str:
        return {"type": "string"}
    if kind == tuple[CatalogRules, ...]:
        locations = {"type": "array", "items": {"type": "string"}}
        rules = {"allow-locations": locations, "strict-locations": {"type": "boolean"}}
        one = {"type": "object", "properties": rules, "additionalProperties": False}
        return {"type": "object", "additionalProperties": one}
    if kind == tuple[Webhook, ...]:
        at = "#/properties/listeners/items/$defs/{model}"
        return {"type": "array", "items": Webhook.model_json_schema(ref_template=at)}
    items = {"type": "string", **({"pattern": f"^{limits['pattern']}$"} if "pattern" in limits else {})}
    return {"type": "array", "items": items, "minItems": 1}


def file_name(name: str) -> str:
    """The file of a schema: tables.v1.json for amoro.tables/v1."""
    return f"{name.removeprefix('amoro.').replace('/', '.')}.json"


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{json.dumps(document, indent=2)}\n", encoding="utf-8")


if __name__ == "__main__":
    _write(PACKAGED / "settings.schema.json", file_schema())
    for path in (PACKAGED / "openapi.json", HERE / "openapi.json"):
        _write(path, description())
    for name, schema in schemas().items():
        _write(PACKAGED / "schemas" / file_name(name), schema)
