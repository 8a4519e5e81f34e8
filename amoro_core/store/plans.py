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
from amoro_core.store.connection import Codec, Connection, RowMapping, to_json, to_ms


@dataclass(frozen=True, slots=True)
class StoredPlan:
    """The preview that a process began with, the options that it was asked for with, and how long files stay."""

    document: Mapping[str, object] = field(default_factory=dict)
    measures: Mapping[str, int] = field(default_factory=dict)
    options: Options = NO_OPTIONS
    keep: timedelta = timedelta()
    start_at: datetime | None = None  # when a plan that is not started yet begins by itself; None: by a word
    expires_at: datetime | None = None  # when it is closed if it has not begun by then


def _options_to_json(options: Options) -> str:
    document = asdict(options)
    older = document.pop("older_than")
    return to_json({"older_than_s": None if older is None else older.total_seconds(), **document})


def _options_from_json(text: str) -> Options:
    document: dict[str, Any] = json.loads(text)
    document = {name: tuple(value) if isinstance(value, list) else value for name, value in document.items()}
    older_s = document.pop("older_than_s")
    return Options(None if older_s is None else timedelta(seconds=older_s), **document)


_PLANS = RowMapping(StoredPlan, codecs={"options": Codec(_options_to_json, _options_from_json)})


def save_plan(db: Connection, process_id: str, plan: StoredPlan) -> None:
    """Store it, replacing the previous one."""
    db.upsert("process_plan", {"process_id": process_id, **_PLANS.to_row(plan)}, ["process_id"])


def get_plan(db: Connection, process_id: str) -> StoredPlan:
    """The stored plan of the process; an empty one if its action stores none."""
    sql = "SELECT * FROM process_plan WHERE process_id = :process_id"
    return _PLANS.find(db, sql, {"process_id": process_id}) or StoredPlan()


_SAVED_PLANS = RowMapping(SavedPlan, table="table_name")


def add_saved_plan(db: Connection, plan: SavedPlan) -> None:
    """Raises Duplicate for an id that is there."""
    db.insert("saved_plan", _SAVED_PLANS.to_row(plan))


def find_saved_plan(db: Connection, plan_id: str) -> SavedPlan | None:
    """The plan with that id; None when there is none."""
    return _SAVED_PLANS.find(db, "SELECT * FROM saved_plan WHERE plan_id = :plan_id", {"plan_id": plan_id})


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
    carried = tuple(document.pop("carried", ()))
    return Receipt(**document, encoded=encoded, carried=carried, more=more, equal=equal)
