"""Write the schemas that a wheel holds: `python docs/generate.py`, part of `make docs` and `make dist`.

They are generated and not committed: those of `amoro.yaml` and of every JSON document, and the description of REST.
"""

import json
from pathlib import Path
from typing import Any

from amoro_core.bootstrap.settings import file_schema
from amoro_core.documents.json_documents import file_name, schemas
from amoro_core.web.rest.openapi import description

HERE = Path(__file__).resolve().parent
PACKAGED = HERE.parent / "amoro_core" / "documents"


def _write(path: Path, document: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"{json.dumps(document, indent=2)}\n", encoding="utf-8")


if __name__ == "__main__":
    _write(PACKAGED / "settings.schema.json", file_schema())
    for path in (PACKAGED / "openapi.json", HERE / "openapi.json"):
        _write(path, description())
    for name, schema in schemas().items():
        _write(PACKAGED / "schemas" / file_name(name), schema)
