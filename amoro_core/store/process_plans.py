"""What is kept of a process's plan for its end and for display, in `process_plan`."""

import json
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime, timedelta
from typing import Any

from amoro_core.model.maintenance import NO_OPTIONS, Options
from amoro_core.records import record
from amoro_core.store.connection import Connection
from amoro_core.store.rows import from_ms_or_none, to_json, to_ms_or_none


@record
class KeptPlan:
    """The preview that a process began with, the options that it was asked for with, and how long files stay."""

    document: Mapping[str, object] = field(default_factory=dict)
    measures: Mapping[str, int] = field(default_factory=dict)
    options: Options = NO_OPTIONS
    keep: timedelta = timedelta()
    start_at: datetime | None = None  # when a plan that is not started yet begins by itself; None: by a word
    expires_at: datetime | None = None  # when it is closed if it has not begun by then


def save(db: Connection, process_id: str, kept: KeptPlan) -> None:
    """Store it, replacing the previous one."""
    db.execute(
        "INSERT INTO process_plan (process_id, document_json, measures_json, options_json, keep_ms, start_at_ms, "
        "expires_at_ms) VALUES (:process_id, :document, :measures, :options, :keep_ms, :start, :expires) "
        "ON CONFLICT (process_id) DO UPDATE SET document_json = excluded.document_json, "
        "measures_json = excluded.measures_json, options_json = excluded.options_json, keep_ms = excluded.keep_ms, "
        "start_at_ms = excluded.start_at_ms, expires_at_ms = excluded.expires_at_ms",
        {
            "process_id": process_id,
            "document": to_json(dict(kept.document)),
            "measures": to_json(dict(kept.measures)),
            "options": to_json(_options_to_json(kept.options)),
            "keep_ms": round(kept.keep.total_seconds() * 1000),
            "start": to_ms_or_none(kept.start_at),
            "expires": to_ms_or_none(kept.expires_at),
        },
    )


def get(db: Connection, process_id: str) -> KeptPlan:
    """The stored plan of the process; an empty one if its action stores none."""
    row = db.select_one("SELECT * FROM process_plan WHERE process_id = :process_id", {"process_id": process_id})
    if row is None:
        return KeptPlan()
    return KeptPlan(
        json.loads(row["document_json"]),
        json.loads(row["measures_json"]),
        _options_from_json(json.loads(row["options_json"])),
        timedelta(milliseconds=row["keep_ms"]),
        from_ms_or_none(row["start_at_ms"]),
        from_ms_or_none(row["expires_at_ms"]),
    )


def _options_to_json(options: Options) -> dict[str, object]:
    return {
        "older_than_s": None if options.older_than is None else options.older_than.total_seconds(),
        "retain_last": options.retain_last,
        "snapshot_ids": list(options.snapshot_ids),
        "locations": list(options.locations),
        "file_list": options.file_list,
        "confirmed": options.confirmed,
    }


def _options_from_json(said: Mapping[str, Any]) -> Options:
    older = said["older_than_s"]
    return Options(
        older_than=None if older is None else timedelta(seconds=older),
        retain_last=said["retain_last"],
        snapshot_ids=tuple(said["snapshot_ids"]),
        locations=tuple(said["locations"]),
        file_list=said["file_list"],
        confirmed=said.get("confirmed", False),  # earlier versions kept it not
    )
