"""Bad values of a table's properties: those of its optimizing and those of its writer."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path

from pyiceberg.table import Table

from amoro_core.model.config import ENABLED_KEY, OptimizingConfig
from tests.badinput import values
from tests.badinput.values import Chance
from tests.engine.parquet_rows import local_path

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
