"""Automatic tags: the coordinator tags a snapshot of each period, by a commit that adds no snapshot."""

import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from amoro_core.actions.action_api import Plan, PlanningContext, Prepare, Request, TriggerVerdict, Untasked
from amoro_core.formats.ports import Maintainable, Readable, Role
from amoro_core.maintenance.schedule import MaintenanceConfig
from amoro_core.maintenance.tags import TagConfig, TagVerdict, evaluate_tag
from amoro_core.model.commits import RefAt
from amoro_core.model.processes import METADATA, Change, ProcessContext, Receipt
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import SnapshotFacts

NAME = "auto-create-tags"


class AutoCreateTags(Untasked):
    """The action of Amoro's automatic tags."""

    name = NAME
    names = (NAME,)
    configuration = TagConfig
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.MAINTAIN})

    def evaluate(self, table: Readable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict | None:
        """Due when the tag of the period that ended last is missing and a snapshot fits."""
        config = _config(properties)
        if not config.enabled:
            return None
        verdict = _verdict(table, config, now)
        return TriggerVerdict(verdict.snapshot_id is not None, verdict.reason, verdict.due_at)

    def plan(self, table: Readable, situation: PlanningContext, request: Request) -> tuple[TagVerdict, Plan | None]:
        """The missing tag; on request also if the table's properties do not switch the action on."""
        config = _config(situation.properties)
        verdict = _verdict(table, config, situation.now)
        if verdict.snapshot_id is None or not (config.enabled or request.name):
            return verdict, None
        snapshot = next(one for one in table.snapshots() if one.snapshot_id == verdict.snapshot_id)
        detail = json.dumps({"tag": verdict.name, "max_age_ms": config.max_age_ms})
        reason = f"{verdict.reason}: on snapshot {snapshot.snapshot_id}"
        return verdict, Plan(NAME, reason, snapshot.snapshot_id, snapshot.sequence_number, (), detail)

    def preparing(self) -> Prepare:
        """A function that stages the planned tag on the present table."""
        return _change


def main_history(table: Readable) -> list[SnapshotFacts]:
    """The snapshots from main's head back, as far as the table still has them."""
    known = {one.snapshot_id: one for one in table.snapshots()}
    history: list[SnapshotFacts] = []
    snapshot_id = table.facts.snapshot_id
    while snapshot_id is not None and (found := known.pop(snapshot_id, None)) is not None:
        history.append(found)
        snapshot_id = found.parent_id
    return history


def _config(properties: Mapping[str, str]) -> TagConfig:
    return parse_into(TagConfig, properties, zone=parse_into(MaintenanceConfig, properties).zone)


def _verdict(table: Readable, config: TagConfig, now: datetime) -> TagVerdict:
    refs = {name for one in table.snapshots() for name in one.refs}
    return evaluate_tag(config, now, main_history(table), refs)


def _change(table: Maintainable, case: ProcessContext, now: datetime) -> Change:
    said = json.loads(case.process.detail)
    name, snapshot_id = said["tag"], case.process.snapshot_id
    payload = table.stage_tag(name, snapshot_id, said["max_age_ms"])
    duration = round((now - case.process.created_at).total_seconds() * 1000)
    return Change(
        payload=payload,
        evidence=RefAt(name, snapshot_id),
        receipt=replace(Receipt.brief(f"made tag {name} on snapshot {snapshot_id}", snapshot_id), duration_ms=duration),
    )
