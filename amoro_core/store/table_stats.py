"""Statistics of tables: digests of their files, and scans by which clustering learns."""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields, replace
from datetime import date, datetime
from typing import Any

from amoro_core.model.clustering import ClusteredGroup, Layout, LayoutKey, Strategy
from amoro_core.model.plans import FileDigest, PartitionDigest, SizeHistogram, StoredDigest
from amoro_core.model.scan_stats import ColumnChoice, ColumnFilter, Operator, ScanUse
from amoro_core.store.connection import Connection, RowMapping, from_ms, to_json, to_ms

#: Bytes of a digest as it is stored, at most.
LARGEST = 16_384
_HISTOGRAMS = ("data", "position_deletes", "equality_deletes")
_OF_PARTITION = tuple(field.name for field in fields(PartitionDigest))


def pack_digest(digest: FileDigest) -> bytes:
    """The digest as it is stored; partitions that don't fit are left out, those least in need first."""
    while len(document := _packed(digest)) > LARGEST:
        digest = replace(digest, partitions=digest.partitions[: len(digest.partitions) * 3 // 4])
    return document


def save_digest(db: Connection, table_id: int, document: bytes, stored: StoredDigest) -> None:
    """Keep the digest, packed as `document`, in the place of the table's former one."""
    row = {
        "table_id": table_id,
        "snapshot_id": stored.digest.snapshot_id,
        "read_at_ms": to_ms(stored.read_at),
        "document": document,
    }
    db.upsert("table_digest", row, ["table_id"])


def find_digest(db: Connection, table_id: int) -> StoredDigest | None:
    """The table's digest; None before its files were read."""
    row = db.select_one("SELECT * FROM table_digest WHERE table_id = :table_id", {"table_id": table_id})
    if row is None:
        return None
    content = json.loads(zlib.decompress(row["document"]))
    histograms = {name: _histogram(content[name]) for name in _HISTOGRAMS}
    partitions = tuple(PartitionDigest(*values) for values in content["partitions"])
    total, target = content["partitions_total"], content["target_bytes"]
    digest = FileDigest(row["snapshot_id"], target, **histograms, partitions=partitions, partitions_total=total)
    return StoredDigest(digest, from_ms(row["read_at_ms"]))


def forget_digest(db: Connection, table_id: int) -> None:
    """Forget the table's digest, if it has one."""
    db.execute("DELETE FROM table_digest WHERE table_id = :table_id", {"table_id": table_id})


def _packed(digest: FileDigest) -> bytes:
    content = {
        "snapshot_id": digest.snapshot_id,
        "target_bytes": digest.target_bytes,
        **{name: _by_name(getattr(digest, name)) for name in _HISTOGRAMS},
        # By position, in the order of the fields: names would be most of it.
        "partitions": [[getattr(partition, name) for name in _OF_PARTITION] for partition in digest.partitions],
        "partitions_total": digest.partitions_total,
    }
    return zlib.compress(json.dumps(content, separators=(",", ":")).encode())


def _by_name(histogram: SizeHistogram) -> dict[str, tuple[int, ...]]:
    return {"files": histogram.files, "sizes": histogram.sizes}


def _histogram(content: dict[str, Any]) -> SizeHistogram:
    return SizeHistogram(tuple(content["files"]), tuple(content["sizes"]))


def add_learned_scans(db: Connection, table_id: int, scans_by_source: Mapping[str, Iterable[ScanUse]]) -> None:
    """Replace the scans of each source; scans without a source are added."""
    for source, scans in scans_by_source.items():
        if source:
            db.execute(
                "DELETE FROM table_scan WHERE table_id = :table_id AND source = :source",
                {"table_id": table_id, "source": source},
            )
        add_scans(db, table_id, scans, source)


def add_scans(db: Connection, table_id: int, scans: Iterable[ScanUse], source: str = "") -> None:
    """Count the scans; those of a source, day and set of filters that is known are added to it."""
    for scan in scans:
        db.execute(
            "INSERT INTO table_scan "
            "(table_id, source, day, filters_json, scans, files_read, files_skipped, read_bytes) "
            "VALUES (:table_id, :source, :day, :filters, :scans, :read, :skipped, :bytes) "
            "ON CONFLICT (table_id, source, day, filters_json) DO UPDATE SET "
            "scans = table_scan.scans + excluded.scans, "
            "files_read = table_scan.files_read + excluded.files_read, "
            "files_skipped = table_scan.files_skipped + excluded.files_skipped, "
            "read_bytes = table_scan.read_bytes + excluded.read_bytes",
            {
                "table_id": table_id,
                "source": source,
                "day": scan.day.isoformat(),
                "filters": json.dumps([[item.column, item.operator.value] for item in scan.filters]),
                "scans": scan.scans,
                "read": scan.files_read,
                "skipped": scan.files_skipped,
                "bytes": scan.bytes_read,
            },
        )


def list_scans(db: Connection, table_id: int) -> tuple[ScanUse, ...]:
    """All stored scans of the table, by day and filters, of any source."""
    rows = db.select(
        "SELECT day, filters_json, SUM(scans) AS scans, SUM(files_read) AS files_read, "
        "SUM(files_skipped) AS files_skipped, SUM(read_bytes) AS read_bytes FROM table_scan "
        "WHERE table_id = :table_id GROUP BY day, filters_json ORDER BY day, filters_json",
        {"table_id": table_id},
    )
    return tuple(
        ScanUse(
            date.fromisoformat(row["day"]),
            tuple(ColumnFilter(column, Operator(operator)) for column, operator in json.loads(row["filters_json"])),
            row["scans"],
            row["files_read"],
            row["files_skipped"],
            row["read_bytes"],
        )
        for row in rows
    )


def count_scans(db: Connection, table_id: int, since: date) -> int:
    """The stored scans of the table since that day, of any source."""
    sql = "SELECT coalesce(sum(scans), 0) FROM table_scan WHERE table_id = :table_id AND day >= :day"
    return int(db.value(sql, {"table_id": table_id, "day": since.isoformat()}))


def forget_scans_before(db: Connection, day: date) -> None:
    """Forget the scans of all tables before that day."""
    db.execute("DELETE FROM table_scan WHERE day < :day", {"day": day.isoformat()})


_CHOICES = RowMapping(ColumnChoice)


def save_choice(db: Connection, table_id: int, choice: ColumnChoice | None) -> None:
    """Keep the columns chosen for a table in the place of those before; None: there are none."""
    if choice is None:
        db.execute("DELETE FROM table_cluster_choice WHERE table_id = :table_id", {"table_id": table_id})
        return
    db.upsert("table_cluster_choice", {"table_id": table_id, **_CHOICES.to_row(choice)}, ["table_id"])


def find_choice(db: Connection, table_id: int) -> ColumnChoice | None:
    """The columns chosen for a table; None where none were."""
    return _CHOICES.find(db, "SELECT * FROM table_cluster_choice WHERE table_id = :table_id", {"table_id": table_id})


def add_cluster_groups(
    db: Connection, table_id: int, table_uuid: str, groups: Iterable[ClusteredGroup], now: datetime
) -> None:
    """Store groups of a table; known ones are replaced."""
    db.execute_many(
        "INSERT INTO cluster_group (table_id, table_uuid, group_id, layout_json, depth_json, created_at_ms) "
        "VALUES (:table_id, :uuid, :group, :layout, :depths, :now) ON CONFLICT (table_id, group_id) DO UPDATE SET "
        "table_uuid = excluded.table_uuid, layout_json = excluded.layout_json, depth_json = excluded.depth_json",
        (
            {
                "table_id": table_id,
                "uuid": table_uuid,
                "group": clustered_group.group_id,
                "layout": layout_to_json(clustered_group.layout),
                "depths": to_json({str(field_id): depth for field_id, depth in clustered_group.depths.items()}),
                "now": to_ms(now),
            }
            for clustered_group in groups
        ),
    )


def list_cluster_groups(db: Connection, table_id: int, table_uuid: str) -> dict[str, ClusteredGroup]:
    """The table's groups by id, without those of another table (UUID) that had its name."""
    rows = db.select(
        "SELECT * FROM cluster_group WHERE table_id = :table_id AND table_uuid = :uuid ORDER BY group_id",
        {"table_id": table_id, "uuid": table_uuid},
    )
    return {
        row["group_id"]: ClusteredGroup(
            row["group_id"],
            layout_from_json(row["layout_json"]),
            {int(field_id): depth for field_id, depth in json.loads(row["depth_json"]).items()},
        )
        for row in rows
    }


def layout_to_json(layout: Layout) -> str:
    """The layout as text."""
    return to_json(asdict(layout))


def layout_from_json(text: str) -> Layout:
    """The layout that the text says."""
    document = json.loads(text)
    return Layout(
        Strategy(document["strategy"]), tuple(LayoutKey(**key) for key in document["keys"]), document["curve_version"]
    )


def add_dropped_groups(db: Connection, process_id: str, reasons: Mapping[int, str]) -> None:
    """Store dropped groups by task number with their reasons; the first reason is kept."""
    db.execute_many(
        "INSERT INTO process_dropped_group (process_id, task_number, reason) VALUES (:process_id, :number, :reason) "
        "ON CONFLICT DO NOTHING",
        ({"process_id": process_id, "number": number, "reason": reason} for number, reason in reasons.items()),
    )


def list_dropped_groups(db: Connection, process_id: str) -> dict[int, str]:
    """The dropped groups of the process with their reasons, by number."""
    rows = db.select(
        "SELECT task_number, reason FROM process_dropped_group WHERE process_id = :process_id ORDER BY task_number",
        {"process_id": process_id},
    )
    return {row["task_number"]: row["reason"] for row in rows}
