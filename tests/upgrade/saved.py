"""A simulated lake as JSON, and back: what the state file of an earlier version was about."""

from __future__ import annotations

import random
from dataclasses import asdict
from typing import Any

from amoro_core.model.files import DataFile, DeleteFile, DeleteKind
from amoro_core.model.tables import TableIdentifier
from tests.simulation.lake import Content, Lake, LakeTable, Manifest, Snapshot, data_file, delete_file


def lake_to_json(lake: Lake) -> dict[str, Any]:
    """Everything in the lake but its chance."""
    known = {id(table): number for number, table in enumerate(_tables(lake))}
    return {
        "tables": [_table_to_json(table) for table in _tables(lake)],
        "present": [known[id(table)] for table in lake.tables.values()],
        "files": {path: _content_to_json(content) for path, content in lake.files.items()},
        "under_way": [payload.decode() for payload in lake.under_way],
        "landed": {process: [known[id(table)], snapshot] for process, (table, snapshot) in lake.landed.items()},
        "numbers": lake._numbers,
    }


def lake_from_json(saved: dict[str, Any], chance: random.Random) -> Lake:
    """The lake as it was saved."""
    lake = Lake(chance)
    tables = [_table_from_json(table) for table in saved["tables"]]
    lake.tables = {tables[number].identifier: tables[number] for number in saved["present"]}
    lake.files = {path: _content_from_json(content) for path, content in saved["files"].items()}
    lake.under_way = [payload.encode() for payload in saved["under_way"]]
    lake.landed = {process: (tables[number], snapshot) for process, (number, snapshot) in saved["landed"].items()}
    lake._numbers = saved["numbers"]
    return lake


def _tables(lake: Lake) -> list[LakeTable]:
    """Those that are there, and dropped ones in which a process landed."""
    every = [*lake.tables.values(), *(table for table, _ in lake.landed.values())]
    return list({id(table): table for table in every}.values())


def _table_to_json(table: LakeTable) -> dict[str, Any]:
    identifier = table.identifier
    return {
        "identifier": [identifier.catalog, *identifier.in_catalog],
        "uuid": table.uuid,
        "location": table.location,
        "properties": table.properties,
        "snapshots": [_snapshot_to_json(snapshot) for snapshot in table.snapshots.values()],
        "head": None if table.head is None else _snapshot_to_json(table.head),
        "last_sequence_number": table.last_sequence_number,
    }


def _table_from_json(saved: dict[str, Any]) -> LakeTable:
    catalog, *namespace, name = saved["identifier"]
    snapshots = [_snapshot_from_json(snapshot) for snapshot in saved["snapshots"]]
    return LakeTable(
        identifier=TableIdentifier(catalog, tuple(namespace), name),
        uuid=saved["uuid"],
        location=saved["location"],
        properties=saved["properties"],
        snapshots={snapshot.snapshot_id: snapshot for snapshot in snapshots},
        head=None if saved["head"] is None else _snapshot_from_json(saved["head"]),
        last_sequence_number=saved["last_sequence_number"],
    )


def _snapshot_to_json(snapshot: Snapshot) -> dict[str, Any]:
    return {**asdict(snapshot), "rows": sorted(snapshot.rows)}


def _snapshot_from_json(saved: dict[str, Any]) -> Snapshot:
    return Snapshot(**{**saved, "rows": frozenset(map(tuple, saved["rows"]))})


def _content_to_json(content: Content) -> dict[str, Any]:
    if isinstance(content, Manifest):
        return {
            "data": [_data_to_json(file) for file in content.data],
            "deletes": [_delete_to_json(file) for file in content.deletes],
        }
    return {"content": sorted(content)}


def _content_from_json(saved: dict[str, Any]) -> Content:
    if "data" in saved:
        return Manifest(
            tuple(data_file(path, (partition.encode(),), *rest) for path, partition, *rest in saved["data"]),
            tuple(
                delete_file(path, (partition.encode(),), DeleteKind(kind), *rest)
                for path, partition, kind, *rest in saved["deletes"]
            ),
        )
    return frozenset(tuple(one) if isinstance(one, list) else one for one in saved["content"])


def _data_to_json(file: DataFile) -> list[Any]:
    return [file.path, (file.partition[0] or b"").decode(), file.record_count, file.sequence_number]


def _delete_to_json(file: DeleteFile) -> list[Any]:
    partition = (file.partition[0] or b"").decode()
    return [
        file.path,
        partition,
        file.kind.value,
        file.record_count,
        file.sequence_number,
        file.referenced_data_file,
    ]
