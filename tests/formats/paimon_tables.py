"""Paimon tables made by hand: the files that Paimon 1.4.2 and pypaimon 2.1.0 write, without data files."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import fastavro

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)

_STATS = [
    {"name": "_MIN_VALUES", "type": "bytes"},
    {"name": "_MAX_VALUES", "type": "bytes"},
    {"name": "_NULL_COUNTS", "type": ["null", {"type": "array", "items": ["null", "long"]}]},
]
_FILE = [
    {"name": "_FILE_NAME", "type": "string"},
    {"name": "_FILE_SIZE", "type": "long"},
    {"name": "_ROW_COUNT", "type": "long"},
    {"name": "_KEY_STATS", "type": {"type": "record", "name": "KeyStats", "fields": _STATS}},
    {"name": "_LEVEL", "type": "int"},
    {"name": "_CREATION_TIME", "type": ["null", {"type": "long", "logicalType": "timestamp-millis"}]},
    {"name": "_VALUE_STATS_COLS", "type": ["null", {"type": "array", "items": "string"}]},
    {"name": "_WRITE_COLS", "type": ["null", {"type": "array", "items": "string"}]},
]
_ENTRY = [
    {"name": "_VERSION", "type": "int"},
    {"name": "_KIND", "type": "int"},
    {"name": "_PARTITION", "type": "bytes"},
    {"name": "_BUCKET", "type": "int"},
    {"name": "_TOTAL_BUCKETS", "type": "int"},
    {"name": "_FILE", "type": {"type": "record", "name": "DataFileMeta", "fields": _FILE}},
]
_LISTED = [{"name": "_VERSION", "type": "int"}, {"name": "_FILE_NAME", "type": "string"}]
#: The fields that have values in manifests and their lists.
FIELDS = frozenset(one["name"] for one in (*_FILE, *_ENTRY, *_LISTED)) - {"_WRITE_COLS"}


class File(NamedTuple):
    """A data file, as a manifest names it."""

    name: str
    bucket: int = 0
    level: int = 0
    size: int = 1000
    partition: bytes = bytes(12)  # without fields


def text_row(value: str) -> bytes:
    """A BinaryRow with one text of up to seven bytes, after the number of its fields."""
    cell = value.encode().ljust(7, b"\0") + bytes([0x80 | len(value.encode())])
    return struct.pack(">i", 1) + bytes(8) + cell


class PaimonDirectory:
    """The directory of a table, to which other writers commit."""

    def __init__(
        self,
        place: Path,
        options: Mapping[str, str] = {"bucket": "1", "write-only": "true"},
        keys: Sequence[str] = ("id",),
        partition_keys: Sequence[str] = (),
        fields: Sequence[tuple[str, Any]] = (("id", "INT NOT NULL"), ("day", "STRING"), ("v", "BIGINT")),
    ) -> None:
        self.place, self.number, self._manifests = place, 0, list[str]()
        for folder in ("schema", "snapshot", "manifest"):
            (place / folder).mkdir(parents=True)
        self.schema = {
            "version": 3,
            "id": 0,
            "fields": [{"id": at, "name": name, "type": kind} for at, (name, kind) in enumerate(fields)],
            "highestFieldId": len(fields) - 1,
            "partitionKeys": list(partition_keys),
            "primaryKeys": list(keys),
            "options": dict(options),
            "timeMillis": 1_700_000_000_000,
        }
        self.write("schema/schema-0", self.schema)

    def write(self, name: str, document: Any) -> None:
        """A file of the table, as JSON."""
        target = self.place / name
        target.parent.mkdir(exist_ok=True)
        target.write_text(json.dumps(document))

    def commit(
        self,
        *added: File,
        deleted: Sequence[File] = (),
        kind: str = "APPEND",
        user: str = "writer",
        at: datetime = NOW,
        **more: Any,
    ) -> int:
        """Add a snapshot, with `more` in its document; its number."""
        self.number += 1
        manifest = f"manifest-{self.number}"
        self._avro(manifest, _ENTRY, [*(_record(0, one) for one in added), *(_record(1, one) for one in deleted)])
        self._avro(f"base-{self.number}", _LISTED, [{"_VERSION": 2, "_FILE_NAME": one} for one in self._manifests])
        self._avro(f"delta-{self.number}", _LISTED, [{"_VERSION": 2, "_FILE_NAME": manifest}])
        self._manifests.append(manifest)
        document = {
            "version": 3,
            "id": self.number,
            "schemaId": 0,
            "baseManifestList": f"base-{self.number}",
            "deltaManifestList": f"delta-{self.number}",
            "commitUser": user,
            "commitIdentifier": 1,
            "commitKind": kind,
            "timeMillis": round(at.timestamp() * 1000),
            **more,
        }
        self.write(f"snapshot/snapshot-{self.number}", document)
        (self.place / "snapshot" / "LATEST").write_text(str(self.number))
        return self.number

    def _avro(self, name: str, fields: list[dict[str, Any]], records: list[dict[str, Any]]) -> None:
        schema = fastavro.parse_schema({"type": "record", "name": "record", "fields": fields})
        with (self.place / "manifest" / name).open("wb") as file:
            fastavro.writer(file, schema, records, codec="deflate")


def _record(kind: int, file: File) -> dict[str, Any]:
    stats = {"_MIN_VALUES": b"", "_MAX_VALUES": b"", "_NULL_COUNTS": [0, None]}
    described = {
        "_FILE_NAME": file.name,
        "_FILE_SIZE": file.size,
        "_ROW_COUNT": 1,
        "_KEY_STATS": stats,
        "_LEVEL": file.level,
        "_CREATION_TIME": NOW,
        "_VALUE_STATS_COLS": [],
        "_WRITE_COLS": None,
    }
    entry = {"_VERSION": 2, "_KIND": kind, "_PARTITION": file.partition, "_BUCKET": file.bucket, "_TOTAL_BUCKETS": 1}
    return {**entry, "_FILE": described}
