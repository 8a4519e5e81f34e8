"""Plans of processes, saved plans and receipts."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from amoro_core.model.clustering import EncodedFiles
from amoro_core.model.maintenance import NO_OPTIONS, Options
from amoro_core.model.plans import SavedPlan
from amoro_core.model.processes import Equation, Figure, Receipt
from amoro_core.store.connection import Connection, from_ms, from_ms_or_none, insert_into, to_json, to_ms, to_ms_or_none


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """The preview that a process began with, the options that it was asked for with, and how long files stay."""

    document: Mapping[str, object] = field(default_factory=dict)
    measures: Mapping[str, int] = field(default_factory=dict)
    options: Options = NO_OPTIONS
    keep: timedelta = timedelta()
    start_at: datetime | None = None  # when a plan that is not started yet begins by itself; None: by a word
    expires_at: datetime | None = None  # when it is closed if it has not begun by then


def save_plan(db: Connection, process_id: str, kept: KeptPlan) -> None:
    """Store it, replacing the previous one."""
    row = {
        "process_id": process_id,
        "document_json": to_json(dict(kept.document)),
        "measures_json": to_json(dict(kept.measures)),
        "options_json": to_json(_options_to_json(kept.options)),
        "keep_ms": round(kept.keep.total_seconds() * 1000),
        "start_at_ms": to_ms_or_none(kept.start_at),
        "expires_at_ms": to_ms_or_none(kept.expires_at),
    }
    db.upsert("process_plan", row, ["process_id"])


def get_plan(db: Connection, process_id: str) -> KeptPlan:
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


def _options_from_json(document: Mapping[str, Any]) -> Options:
    older = document["older_than_s"]
    return Options(
        older_than=None if older is None else timedelta(seconds=older),
        retain_last=document["retain_last"],
        snapshot_ids=tuple(document["snapshot_ids"]),
        locations=tuple(document["locations"]),
        file_list=document["file_list"],
        confirmed=document["confirmed"],
    )


_INSERT = insert_into("saved_plan", ("plan_id", "table_name", "saved_at_ms", "content"))


def add_saved_plan(db: Connection, plan: SavedPlan) -> None:
    """Raises Duplicate for an id that is there."""
    row = {"plan_id": plan.plan_id, "table_name": plan.table, "content": plan.content}
    db.execute(_INSERT, {**row, "saved_at_ms": to_ms(plan.saved_at)})


def find_saved_plan(db: Connection, plan_id: str) -> SavedPlan | None:
    """The plan with that id; None when there is none."""
    row = db.select_one("SELECT * FROM saved_plan WHERE plan_id = :plan_id", {"plan_id": plan_id})
    if row is None:
        return None
    return SavedPlan(row["plan_id"], row["table_name"], from_ms(row["saved_at_ms"]), row["content"])


def trim_saved_plans(db: Connection, before: datetime, most: int) -> None:
    """Forget plans that were saved before, and all but the newest `most`."""
    db.execute(
        "DELETE FROM saved_plan WHERE saved_at_ms < :before OR plan_id NOT IN "
        "(SELECT plan_id FROM saved_plan ORDER BY saved_at_ms DESC, rowid DESC LIMIT :most)",
        {"before": to_ms(before), "most": most},
    )


def receipt_to_json(receipt: Receipt) -> str:
    """Every field, by its name."""
    return to_json(asdict(receipt))


def receipt_from_json(text: str) -> Receipt:
    """The receipt that was stored."""
    document = json.loads(text)
    more = tuple(Figure(**figure) for figure in document.pop("more", ()))
    equal = tuple(Equation(**equation) for equation in document.pop("equal", ()))
    encoded = tuple(EncodedFiles(**files) for files in document.pop("encoded", ()))
    return Receipt(**document, encoded=encoded, more=more, equal=equal)
