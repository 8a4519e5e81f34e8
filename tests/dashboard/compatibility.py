"""The description of REST as lines that a later one of the same version has, too.

`python -m tests.dashboard.compatibility` writes those of this release, once it is made; `released-v1.txt` holds them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from amoro_core.web.rest.openapi import description

RELEASED = Path(__file__).parent / "released-v1.txt"


def promises(described: dict[str, Any]) -> list[str]:
    """What clients may rely on: routes, what they take, and what they answer."""
    return sorted({*_of_routes(described), *_of_components(described)})


def demands(described: dict[str, Any]) -> list[str]:
    """What clients have to send."""
    return sorted(_demanded(described))


def _of_routes(described: dict[str, Any]) -> Iterator[str]:
    for place, operation in _operations(described):
        yield f"{place} is {operation['operationId']}"
        for parameter in operation["parameters"]:
            yield f"{place} takes {parameter['in']} {parameter['name']}: {_kind(parameter['schema'])}"
        yield from _properties(f"{place} body", _body(operation))
        for status, answer in operation["responses"].items():
            for kind, content in answer.get("content", {}).items():
                yield f"{place} answers {status} {kind}: {_kind(content['schema'])}"
                yield from _properties(f"{place} {status}", content["schema"])


def _of_components(described: dict[str, Any]) -> Iterator[str]:
    for name, schema in described["components"]["schemas"].items():
        yield from _properties(name, schema)
        yield from (f"{name}.{key} is there" for key in schema.get("required", ()))


def _demanded(described: dict[str, Any]) -> Iterator[str]:
    for place, operation in _operations(described):
        yield from (f"{place} needs {one['name']}" for one in operation["parameters"] if one["required"])
        yield from (f"{place} needs body {name}" for name in _body(operation).get("required", ()))


def _operations(described: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, methods in described["paths"].items():
        for method, operation in methods.items():
            yield f"{method.upper()} {path}", operation


def _body(operation: dict[str, Any]) -> dict[str, Any]:
    content = operation.get("requestBody", {"content": {"application/json": {"schema": {}}}})["content"]
    found: dict[str, Any] = content["application/json"]["schema"]
    return found


def _properties(where: str, schema: dict[str, Any]) -> Iterator[str]:
    for name, value in schema.get("properties", {}).items():
        yield f"{where}.{name}: {_kind(value)}"
        inner = value.get("items", value)
        yield from _properties(f"{where}.{name}", inner)


def _kind(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        return str(schema["$ref"]).rpartition("/")[2]
    if "anyOf" in schema:
        return " or ".join(map(_kind, schema["anyOf"]))
    if "const" in schema:
        return str(schema["const"])
    kind = schema.get("type", "anything")
    if kind == "array":
        return f"list of {_kind(schema['items'])}"
    return " or ".join(kind) if isinstance(kind, list) else str(kind)


if __name__ == "__main__":
    lines = [*promises(description()), *demands(description())]
    RELEASED.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
