"""Tables' files in figures, in `table_digest`: one row for each table, of the files that were read last."""

import json
import zlib
from dataclasses import fields, replace
from typing import Any

from amoro_core.model.digests import FileDigest, KeptDigest, PartitionDigest, SizeHistogram
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms, to_ms

#: Bytes of a digest as it is stored, at most.
LARGEST = 16_384
_HISTOGRAMS = ("data", "position_deletes", "equality_deletes")
_OF_PARTITION = tuple(one.name for one in fields(PartitionDigest))
#: The statements of the migration, in order.
DIGESTS = (
    """
    CREATE TABLE table_digest (
        table_id INTEGER PRIMARY KEY REFERENCES table_identifier (table_id) ON DELETE CASCADE,
        snapshot_id INTEGER,
        read_at_ms INTEGER NOT NULL,
        document BLOB NOT NULL CHECK (length(document) <= 16384)
    ) STRICT
    """,
)


def keep_digests(db: Connection) -> None:
    """Tables' files in figures."""
    list(map(db.execute, DIGESTS))


def packed(digest: FileDigest) -> bytes:
    """The digest as it is stored; partitions that don't fit are left out, those least in need first."""
    while len(document := _packed(digest)) > LARGEST:
        digest = replace(digest, partitions=digest.partitions[: len(digest.partitions) * 3 // 4])
    return document


def save(db: Connection, table_id: int, document: bytes, kept: KeptDigest) -> None:
    """Keep the digest, packed as `document`, in the place of the table's former one."""
    db.execute(
        "INSERT INTO table_digest (table_id, snapshot_id, read_at_ms, document) "
        "VALUES (:table_id, :snapshot_id, :read_at_ms, :document) ON CONFLICT (table_id) DO UPDATE SET "
        "snapshot_id = excluded.snapshot_id, read_at_ms = excluded.read_at_ms, document = excluded.document",
        {
            "table_id": table_id,
            "snapshot_id": kept.digest.snapshot_id,
            "read_at_ms": to_ms(kept.read_at),
            "document": document,
        },
    )


def find(db: Connection, table_id: int) -> KeptDigest | None:
    """The table's digest; None before its files were read."""
    row = db.select_one("SELECT * FROM table_digest WHERE table_id = :table_id", {"table_id": table_id})
    if row is None:
        return None
    found = json.loads(zlib.decompress(row["document"]))
    histograms = {name: _histogram(found[name]) for name in _HISTOGRAMS}
    partitions = tuple(PartitionDigest(*values) for values in found["partitions"])
    total, target = found["partitions_total"], found["target_bytes"]
    digest = FileDigest(row["snapshot_id"], target, **histograms, partitions=partitions, partitions_total=total)
    return KeptDigest(digest, from_ms(row["read_at_ms"]))


def forget(db: Connection, table_id: int) -> None:
    """Forget the table's digest, if it has one."""
    db.execute("DELETE FROM table_digest WHERE table_id = :table_id", {"table_id": table_id})


def _packed(digest: FileDigest) -> bytes:
    known = {
        "snapshot_id": digest.snapshot_id,
        "target_bytes": digest.target_bytes,
        **{name: _by_name(getattr(digest, name)) for name in _HISTOGRAMS},
        # By position, in the order of the fields: names would be most of it.
        "partitions": [[getattr(one, name) for name in _OF_PARTITION] for one in digest.partitions],
        "partitions_total": digest.partitions_total,
    }
    return zlib.compress(json.dumps(known, separators=(",", ":")).encode())


def _by_name(histogram: SizeHistogram) -> dict[str, tuple[int, ...]]:
    return {"files": histogram.files, "sizes": histogram.sizes}


def _histogram(found: dict[str, Any]) -> SizeHistogram:
    return SizeHistogram(tuple(found["files"]), tuple(found["sizes"]))
