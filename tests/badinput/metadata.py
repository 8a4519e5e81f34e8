"""Mutations of a table's metadata file, in place: of its properties, of its text and of what it says."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

from pyiceberg.table import Table

from amoro_core.model.optimizing_config import ENABLED_KEY, OptimizingConfig
from tests.badinput import values
from tests.badinput.values import Chance
from tests.engine.parquet_rows import local_path

_OTHER_VALUES: tuple[Callable[[Chance], Any], ...] = (
    lambda chance: None,
    lambda chance: values.odd(chance).encode("utf-8", "replace").decode(),
    lambda chance: chance.choice((-1, 0, 1, 7, 2**31, 2**63, 10**30, -(10**30))),
    lambda chance: chance.choice((0.5, float("nan"), float("inf"), -1e300)),
    lambda chance: chance.choice((True, False)),
    lambda chance: chance.choice(([], {}, [None], [[]], {"": ""}, [{}], "")),
)
#: What the keys may not say.
_WRONG: dict[str, tuple[Any, ...]] = {
    "format-version": (0, -1, 4, 99, "two"),
    "table-uuid": ("", "no uuid", "00000000-0000-0000-0000-000000000000", 7),
    "location": (
        "",
        "relative",
        "file:///etc",
        "file:///",
        "s3://nobody/x",
        "http://127.0.0.1:9/x",
        "file://host/x",
        "../x",
    ),
    "last-sequence-number": (-1, 0, 1, 2**63 - 1),
    "last-updated-ms": (-1, 0, 2**62),
    "current-schema-id": (99, -1),
    "default-spec-id": (99, -1),
    "default-sort-order-id": (99, -1),
    "last-column-id": (0, -5),
    "last-partition-id": (0, -5),
    "current-snapshot-id": (1, 2**62, -5),
}


def break_metadata(chance: Chance, table: Table) -> str:
    """Write the current metadata file anew with something wrong in it."""
    path = Path(local_path(table.metadata_location))
    text = path.read_text(encoding="utf-8")
    if chance.random() < 0.25:
        bad, how = _broken_text(chance, text.encode())
        path.write_bytes(bad)
        return how
    document = json.loads(text)
    change = chance.choice((_said_otherwise, _replaced, _replaced, _removed, _doubled, _snapshot, _schema))
    how = change(chance, document)
    path.write_text(json.dumps(document), encoding="utf-8")
    return how


def _broken_text(chance: Chance, text: bytes) -> tuple[bytes, str]:
    at = chance.randrange(len(text))
    ways = {
        f"truncated at {at}": text[:at],
        "empty": b"",
        "null": b"null",
        "a list": b"[]",
        "HTML": b"<!DOCTYPE html><html><body>" + b"Not found. " * chance.choice((1, 10_000)) + b"</body></html>",
        "no UTF-8": text[:at] + b"\xff\xfe" + text[at:],
        "nested too deep": b'{"a":' * 100_000,
        "zeros": bytes(len(text)),
        "twice": text + text,
    }
    how = chance.choice(list(ways))
    return ways[how], how


def _said_otherwise(chance: Chance, document: dict[str, Any]) -> str:
    key = chance.choice(list(_WRONG))
    document[key] = chance.choice(_WRONG[key])
    return f"{key} = {document[key]!r}"


def places(value: Any, at: str = "") -> Iterator[tuple[Any, Any, str]]:
    """Every container with each of its keys, and where that stands."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield value, key, f"{at}/{key}"
        yield from places(each, f"{at}/{key}")


def _replaced(chance: Chance, document: dict[str, Any]) -> str:
    container, key, where = chance.choice(list(places(document)))
    container[key] = chance.choice(_OTHER_VALUES)(chance)
    return f"{where} = {str(container[key])[:200]!r}"


def _removed(chance: Chance, document: dict[str, Any]) -> str:
    container, key, where = chance.choice(list(places(document)))
    del container[key]
    return f"without {where}"


def _doubled(chance: Chance, document: dict[str, Any]) -> str:
    lists = [(container[key], where) for container, key, where in places(document) if isinstance(container[key], list)]
    found, where = chance.choice([(found, where) for found, where in lists if found])
    found.append(chance.choice(found))
    return f"one of {where} twice"


def _snapshot(chance: Chance, document: dict[str, Any]) -> str:
    snapshot = chance.choice(document["snapshots"])
    key, value = chance.choice(
        (
            ("manifest-list", "file:///etc/passwd"),
            ("manifest-list", ""),
            ("manifest-list", "http://127.0.0.1:9/x.avro"),
            ("manifest-list", document["location"]),
            ("manifest-list", chance.choice(document["snapshots"])["manifest-list"]),
            ("schema-id", 99),
            ("sequence-number", chance.choice((-1, 0, 2**62))),
            ("parent-snapshot-id", chance.choice((snapshot["snapshot-id"], 17, -1))),
            ("snapshot-id", chance.choice((17, -1))),
            ("timestamp-ms", chance.choice((-1, 0, 2**62))),
            ("summary", {"operation": "nonsense"}),
        )
    )
    snapshot[key] = value
    return f"snapshot {snapshot['sequence-number']}: {key} = {value!r}"


def _schema(chance: Chance, document: dict[str, Any]) -> str:
    field = chance.choice(document["schemas"][-1]["fields"])
    key, value = chance.choice(
        (
            ("id", chance.choice((1, 2, 3, 0, -1, 2**31, 99))),
            ("name", chance.choice(("id", "", "part", "a.b", "\x00", "\u202e"))),
            (
                "type",
                chance.choice(("long", "string", "nonsense", "decimal(99,3)", "fixed[-1]", "struct", "float", {})),
            ),
            ("required", chance.choice((True, "yes"))),
        )
    )
    field[key] = value
    return f"field {field['id']}: {key} = {value!r}"


_WRITERS = (
    "write.format.default",
    "write.delete.format.default",
    "write.parquet.compression-codec",
    "write.parquet.compression-level",
    "write.parquet.row-group-size-bytes",
    "write.parquet.row-group-limit",
    "write.parquet.page-size-bytes",
    "write.parquet.page-row-limit",
    "write.parquet.dict-size-bytes",
    "write.parquet.bloom-filter-enabled.column.id",
    "write.parquet.bloom-filter-fpp.column.id",
    "write.parquet.bloom-filter-max-bytes",
    "write.metadata.metrics.default",
    "write.metadata.metrics.column.id",
    "write.metadata.metrics.max-inferred-column-defaults",
    "write.data.path",
    "write.metadata.path",
    "write.object-storage.enabled",
    "write.object-storage.partitioned-paths",
    "write.py-location-provider.impl",
    "write.wap.enabled",
    "commit.manifest.target-size-bytes",
    "commit.manifest.min-count-to-merge",
    "commit.manifest-merge.enabled",
    "self-optimizing.commit.manifest-merge-budget",
    "schema.name-mapping.default",
    "encryption.key-id",
    "py-io-impl",
)
KEYS = (ENABLED_KEY, *(item.metadata["key"] for item in fields(OptimizingConfig) if "key" in item.metadata), *_WRITERS)
_VALUES: tuple[Callable[[Chance], str], ...] = (
    values.integer,
    values.duration,
    values.size,
    values.odd,
    values.path,
    lambda chance: chance.choice(("", " ", "null", "None", "yes", "TRUE ", "0", "-0", "1e400", "9" * 400, "[]", "{}")),
    lambda chance: chance.choice(
        ("id = 'x", "id >", "nope = 1", "id = id", "(" * 2_000, "id in ()", "not " * 500 + "x")
    ),
    lambda chance: chance.choice(("file:///etc", "s3://nobody/x", "../../x", "relative/path", "file://host/x", "://")),
    lambda chance: chance.choice(('[{"names": 1}]', '[{"field-id": "x", "names": ["id"]}]', "[" * 3_000, '{"a":')),
)


def break_properties(chance: Chance, table: Table) -> str:
    """Set one property or two to something that they can't be."""
    wrong = {key: _encoded(chance.choice(_VALUES)(chance)) for key in chance.sample(KEYS, chance.choice((1, 1, 2)))}
    # Past pyiceberg, which refuses some of them; other engines do not.
    path = Path(local_path(table.metadata_location))
    document = json.loads(path.read_text(encoding="utf-8"))
    document["properties"] |= wrong
    path.write_text(json.dumps(document), encoding="utf-8")
    return repr(wrong)


def _encoded(text: str) -> str:
    """What can stand in a table's metadata, which is UTF-8."""
    return text.encode("utf-8", "replace").decode()
