"""Write the schemas that a wheel holds: `python docs/generate.py`, part of `make docs` and `make dist`.

They are generated and not committed: those of `amoro.yaml` and of every JSON document, and the description of REST.
"""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

from amoro_core.bootstrap.settings import KEYS, KINDS, Settings, written
from amoro_core.documents.json_documents import schemas
from amoro_core.web.rest.openapi import description

HERE = Path(__file__).resolve().parent
PACKAGED = HERE.parent / "amoro_core" / "documents"


def file_schema() -> dict[str, Any]:
    """The JSON Schema of `amoro.yaml`; keys with a dot may also be nested."""
    properties: dict[str, Any] = {}
    groups: dict[str, Any] = {}
    for key, name in KEYS.items():
        default = getattr(Settings(), name)
        shown = written(default) if isinstance(default, timedelta) else default
        properties[key] = {"default": list(shown) if isinstance(shown, tuple) else shown, **KINDS[key].schema}
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
