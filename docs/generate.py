"""Write what is generated from the code: `python docs/generate.py`.

The page of errors and two schemas are committed, and tests compare them with the code. The description of REST and the
schemas of documents are not: `make docs` and `make dist` write them.
"""

import inspect
import json
from collections.abc import Callable, Mapping
from pathlib import Path

from amoro_core import errors
from amoro_core.bootstrap.settings import file_schema
from amoro_core.documents.json_documents import file_name, schemas
from amoro_core.errors import AmoroError
from amoro_core.web.rest.openapi import description

HERE = Path(__file__).resolve().parent
#: What a wheel holds: the description of REST, and a schema for each document. Not committed.
PACKAGED = HERE.parent / "amoro_core" / "documents"

_EXITS = {
    1: "failed",
    2: "wrong usage, wrong settings",
    3: "not found",
    4: "not allowed",
    5: "conflict: retry later",
    6: "refused, by name",
    7: "the outcome is unknown",
    124: "time limit exceeded",
}
_HEAD = """# Errors

Every error has a stable code, ends a command with its exit status, and is a class of `amoro_core.errors` that the
Python API raises. The message names the failure, its reason and the value; the hint below it gives a remedy. `--debug`
adds the traceback.

`python docs/generate.py` generates this page from the code.
"""


def errors_page() -> str:
    """The page of all errors, in order of their codes."""
    known = (kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, AmoroError))
    kinds = sorted(known, key=lambda kind: kind.code)
    return _HEAD + "".join(_section(kind) for kind in kinds)


def _section(kind: type[AmoroError]) -> str:
    text = " ".join((inspect.getdoc(kind) or "").split("\n\n")[0].split())
    status = f"exit status {kind.exit_status}: {_EXITS[kind.exit_status]}"
    return f"\n## {kind.code}\n\n`{kind.__name__}`, {status}.\n\n{text}\n\nRemedy: {kind.remedy}\n"


#: By path below this directory.
PAGES: Mapping[str, Callable[[], str]] = {"errors.md": errors_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")
    (HERE.parent / "amoro_core" / "settings.schema.json").write_text(f"{json.dumps(file_schema(), indent=2)}\n")
    described = f"{json.dumps(description(), indent=1)}\n"
    for path in (PACKAGED / "openapi.json", HERE / "openapi.json"):
        path.write_text(described, encoding="utf-8")
    (PACKAGED / "schemas").mkdir(exist_ok=True)
    for name, schema in schemas().items():
        (PACKAGED / "schemas" / file_name(name)).write_text(f"{json.dumps(schema, indent=2)}\n", encoding="utf-8")
