"""Common parts of undo actions."""

import json
from dataclasses import replace
from datetime import datetime
from typing import Any

from amoro_core.actions.contract import Plan, Request, TriggerVerdict
from amoro_core.actions.undoing import refused, undone_of
from amoro_core.formats.port import AnyTable
from amoro_core.model.actions import Case, Change
from amoro_core.model.commits import Evidence
from amoro_core.model.processes import Figure, Receipt


def _reason(case: Case) -> str:
    return f"takes back process {case.process.process_id} ({case.process.type})"


def plan_of(
    name: str, case: Case, table: AnyTable, detail: dict[str, Any], document: dict[str, object], *, commits: bool = True
) -> tuple[TriggerVerdict, Plan]:
    """The verdict and the plan of an undo of that process, which stores the detail beside its id and type."""
    facts, reason = table.facts, _reason(case)
    known = {"process_id": case.process.process_id, "type": case.process.type}
    plan = Plan(
        name,
        reason,
        facts.snapshot_id or 0,
        facts.sequence_number,
        (),
        json.dumps({**known, **detail}),
        commits=commits,
        document={**known, **document},
    )
    return TriggerVerdict(True, reason), plan


def detail_of(case: Case) -> dict[str, Any]:
    """What an undo stores of its plan."""
    said: dict[str, Any] = json.loads(case.process.detail)
    return said


def change_of(
    case: Case, payload: bytes, evidence: Evidence, words: str, figures: tuple[Figure, ...], now: datetime
) -> Change:
    """The change of an undo, with a summary and figures."""
    told = Receipt.told(words, case.process.snapshot_id, figures)
    duration = round((now - case.process.created_at).total_seconds() * 1000)
    return Change(payload, evidence, replace(told, duration_ms=duration))


def undone_here(table: AnyTable, request: Request) -> Case:
    """The process to undo, which must be of this table. Raises InvalidArgument, CannotUndo."""
    case = undone_of(request)
    if case.process.table_uuid != table.facts.uuid:
        raise refused(case, f"{table.facts.identifier} is another table by now")
    return case
