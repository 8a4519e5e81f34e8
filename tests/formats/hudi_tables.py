"""Hudi tables made by hand, as Hudi 0.x (version 6) and 1.x (version 8) lay them out."""

from __future__ import annotations

import json
import zlib
from io import BytesIO
from pathlib import Path

import fastavro
import pyarrow as pa
import pyarrow.parquet as pq

LOCK = "hoodie.write.lock.provider=org.apache.hudi.client.transaction.lock.FileSystemBasedLockProvider"
SCHEMA = {
    "type": "record",
    "name": "t",
    "fields": [
        {"name": "_hoodie_commit_time", "type": ["null", "string"]},
        {"name": "id", "type": "long"},
        {"name": "day", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "price", "type": ["null", {"type": "fixed", "size": 7, "name": "p", "logicalType": "decimal",
                                            "precision": 15, "scale": 2}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip


def time_of(number: int, later_ms: int = 0) -> str:
    """When an instant was requested, or completed so much later."""
    return f"20261130070{number:03}{later_ms:03}"


def avro(fields: dict[str, object], content: dict[str, object]) -> bytes:
    """A container with one record."""
    written = BytesIO()
    schema = {"type": "record", "name": "r", "fields": [{"name": name, "type": kind} for name, kind in fields.items()]}
    fastavro.writer(written, schema, [content])
    return written.getvalue()


class HudiTableOnDisk:
    """A table of one or two file groups, to which instants and files are added."""

    def __init__(self, place: Path, version: int = 8, kind: str = "MERGE_ON_READ") -> None:
        self.place, self.version = place, version
        self.timeline = place / ".hoodie" / ("timeline" if version > 6 else "")
        self.timeline.mkdir(parents=True)
        self.properties = {
            "hoodie.table.name": place.name,
            "hoodie.database.name": "db",
            "hoodie.table.type": kind,
            "hoodie.table.version": str(version),
            "hoodie.timeline.layout.version": "2" if version > 6 else "1",
            "hoodie.table.partition.fields": "day:SIMPLE",
            "hoodie.table.checksum": str(zlib.crc32(f"db.{place.name}".encode())),
            "hoodie.table.create.schema": json.dumps(SCHEMA),
        }
        self.write_properties()

    def write_properties(self) -> None:
        """As Java's Properties.store does."""
        lines = [f"{key}={value}".replace(":", "\\:") for key, value in self.properties.items()]
        (self.place / ".hoodie/hoodie.properties").write_text("\n".join(["#Updated", "!by hand", *lines, ""]))

    def set(self, *lines: str) -> None:
        """Lines that somebody adds to the properties."""
        with (self.place / ".hoodie/hoodie.properties").open("a") as file:
            file.writelines(f"{line}\n" for line in lines)

    def instant(self, number: int, action: str, state: str = "completed", content: bytes = b"") -> str:
        """The files of an instant up to that state; its time."""
        time = time_of(number)
        requested = {"commit": "compaction"}.get(action, action) if self._is_mor else action
        requested = "clustering" if action == "replacecommit" and self.version > 6 and not content else requested
        states = ("requested", "inflight", "completed")
        for one in states[: states.index(state) + 1]:
            name = f"{time}.{requested}.{one}"
            if one == "completed":
                name = f"{time}_{time_of(number, 500)}.{action}" if self.version > 6 else f"{time}.{action}"
            (self.timeline / name).write_bytes(content if one == state else b"")
        return time

    @property
    def _is_mor(self) -> bool:
        return self.properties["hoodie.table.type"] == "MERGE_ON_READ"

    def base(self, number: int, group: str = "g0", day: str = "day=1", size: int = 1000) -> None:
        """A base file of that instant."""
        self._write(day, f"{group}-0_0-1-1_{time_of(number)}.parquet", size)

    def log(self, number: int, group: str = "g0", day: str = "day=1", base: int = 1, size: int = 10) -> None:
        """A log file of that instant, on a base file."""
        named = number if self.version > 6 else base
        self._write(day, f".{group}-0_{time_of(named)}.log.{number}_0-1-1", size)

    def _write(self, day: str, name: str, size: int) -> None:
        (self.place / day).mkdir(exist_ok=True)
        (self.place / day / name).write_bytes(b"x" * size)

    def upserts(self, *numbers: int) -> None:
        """Delta commits: the first makes a base file, the others log files on it."""
        for number in numbers:
            self.instant(number, "deltacommit")
            (self.base if number == 1 else self.log)(number)

    def commit_rows(self, number: int, group: str, ids: list[int], operation: str, replaced: str = "") -> None:
        """A commit of a base file with rows, which replaces a file group; of an unpartitioned table of version 6."""
        at, count = time_of(number), len(ids)
        own = {
            "commit_time": [at],
            "commit_seqno": ["0"],
            "record_key": [""],
            "partition_path": [""],
            "file_name": [""],
        }
        rows = {f"_hoodie_{name}": value * count for name, value in own.items()} | {"id": ids}
        name = f"{group}-0_0-1-1_{at}.parquet"
        pq.write_table(pa.table(rows), self.place / name)
        stats = [{"fileId": f"{group}-0", "path": name, "partitionPath": "", "numWrites": count}]
        metadata = {"partitionToWriteStats": {"": stats}, "extraMetadata": {}, "operationType": operation}
        if replaced:
            metadata["partitionToReplaceFileIds"] = {"": [f"{replaced}-0"]}
        action = "replacecommit" if replaced else "commit"
        self.instant(number, action, content=json.dumps(metadata).encode())
