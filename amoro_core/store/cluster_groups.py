"""Groups of clustered files, in `cluster_group`."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from datetime import datetime

from amoro_core.model.clustering import KnownGroup, Layout, LayoutKey, Strategy
from amoro_core.store.column_codecs import to_json, to_ms
from amoro_core.store.connection import Connection


def add_many(db: Connection, table_id: int, table_uuid: str, made: Iterable[KnownGroup], now: datetime) -> None:
    """Store groups of a table; known ones are replaced."""
    db.execute_many(
        "INSERT INTO cluster_group (table_id, table_uuid, group_id, layout_json, depth_json, created_at_ms) "
        "VALUES (:table_id, :uuid, :group, :layout, :depths, :now) ON CONFLICT (table_id, group_id) DO UPDATE SET "
        "table_uuid = excluded.table_uuid, layout_json = excluded.layout_json, depth_json = excluded.depth_json",
        (
            {
                "table_id": table_id,
                "uuid": table_uuid,
                "group": one.group_id,
                "layout": layout_to_json(one.layout),
                "depths": to_json({str(field_id): depth for field_id, depth in one.depths.items()}),
                "now": to_ms(now),
            }
            for one in made
        ),
    )


def of_table(db: Connection, table_id: int, table_uuid: str) -> dict[str, KnownGroup]:
    """The table's groups by id, without those of another table (UUID) that had its name."""
    rows = db.select(
        "SELECT * FROM cluster_group WHERE table_id = :table_id AND table_uuid = :uuid ORDER BY group_id",
        {"table_id": table_id, "uuid": table_uuid},
    )
    return {
        row["group_id"]: KnownGroup(
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
    said = json.loads(text)
    return Layout(Strategy(said["strategy"]), tuple(LayoutKey(**key) for key in said["keys"]), said["curve_version"])


def add_dropped(db: Connection, process_id: str, reasons: Mapping[int, str]) -> None:
    """Store dropped groups by task number with their reasons; the first reason is kept."""
    db.execute_many(
        "INSERT INTO process_dropped_group (process_id, task_number, reason) VALUES (:process_id, :number, :reason) "
        "ON CONFLICT DO NOTHING",
        ({"process_id": process_id, "number": number, "reason": reason} for number, reason in reasons.items()),
    )


def dropped_of(db: Connection, process_id: str) -> dict[int, str]:
    """The dropped groups of the process with their reasons, by number."""
    rows = db.select(
        "SELECT task_number, reason FROM process_dropped_group WHERE process_id = :process_id ORDER BY task_number",
        {"process_id": process_id},
    )
    return {row["task_number"]: row["reason"] for row in rows}
