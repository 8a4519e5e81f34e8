"""Expiry of snapshots, whose files are condemned where only they needed them, and automatic tags."""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from amoro_core.actions.action_api import (
    ActionDefaults,
    Plan,
    PlanningContext,
    Request,
    TriggerVerdict,
    metadata_change,
)
from amoro_core.documents.formatting import many
from amoro_core.errors import CommitConflict, InvalidArgument
from amoro_core.formats.ports import AnyTable, Maintainable, Readable, Role
from amoro_core.maintenance.schedule import MaintenanceConfig
from amoro_core.maintenance.snapshots import (
    RetentionConfig,
    SnapshotSelection,
    TagConfig,
    TagVerdict,
    Target,
    evaluate_tag,
    select,
)
from amoro_core.model.commits import RefAt, SnapshotsRemoved
from amoro_core.model.maintenance import Condemned, FileKind, Options
from amoro_core.model.processes import METADATA, Change, CommitOutcome, Figure, ProcessContext
from amoro_core.model.properties import boolean, parse_into, parse_value, properties_of
from amoro_core.model.tables import History, SnapshotFacts, ancestors

NAME = "expire-snapshots"
#: The minimum age that a command may set.
LEAST_AGE = timedelta(hours=24)
#: Maximum of files that one process condemns; the oldest snapshots expire first.
MOST_FILES = 1_000_000
_GC = "gc.enabled"
_KEYS = frozenset(item.key for item in properties_of(RetentionConfig))
#: Counts of files by the names that Spark's procedure gives them.
_COUNTS = {
    FileKind.DATA: "deleted_data_files_count",
    FileKind.MANIFEST: "deleted_manifest_files_count",
    FileKind.MANIFEST_LIST: "deleted_manifest_lists_count",
    FileKind.STATISTICS: "deleted_statistics_files_count",
}
_POSITION, _EQUALITY = "deleted_position_delete_files_count", "deleted_equality_delete_files_count"
_EVERY_COUNT = (_COUNTS[FileKind.DATA], _POSITION, _EQUALITY, *tuple(_COUNTS.values())[1:])


class ExpireSnapshots(ActionDefaults):
    """The action that removes snapshots, branches and tags past their age."""

    name = NAME
    configuration = RetentionConfig
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE})
    every = timedelta(hours=1)
    switch = "table-expire.enabled"
    needs_gc = True

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The snapshots past their age. Raises InvalidArgument for an age below 24 h, a count below 1, an unknown or
        needed snapshot, and options of other actions."""
        _refuse(request.options)
        config = parse_into(RetentionConfig, situation.properties)
        context, history = situation.around(), table.history()
        target = Target(
            request.options.older_than,
            request.options.retain_last,
            request.options.snapshot_ids,
            dict(context.pinned),
            dict(context.since),
        )
        selected = select(history.snapshots, history.refs, config, target, situation.now)
        _refuse_named(request.options, history, selected)
        if not selected.go and not selected.refs:
            return TriggerVerdict(False, f"no snapshot is past its time: {selected.staying}"), None
        going, counts, size = _within_limit(table, list(selected.go))
        refs = sorted(name for name in selected.refs if _may_go(history, selected, going, name))
        total = len(history.snapshots)
        reason = f"{len(going)} of {many(total, 'snapshot')} to expire; {selected.staying}"
        if len(going) < len(selected.go):
            reason += f"; {len(selected.go) - len(going)} more left for the next run"
        detail = {
            "base": history.metadata_location,
            "ids": going,
            "refs": refs,
            "total": total,
            "keep_s": config.trash_keep.total_seconds(),
            "properties": {key: text for key, text in situation.properties.items() if key in _KEYS},
            "target": _target_to_json(target),
        }
        document = {
            **{name: counts[name] for name in _EVERY_COUNT},
            "bytes": size,
            "deleted_at": (situation.now + config.trash_keep).isoformat(),
            **_document(history, selected, going, refs),
        }
        return self.planned(table, reason, detail, keep=config.trash_keep, document=document)

    def change(self, table: AnyTable, case: ProcessContext, now: datetime) -> Change:
        """Stages the planned removal, except for snapshots that the present table needs."""
        detail = case.detail
        history = table.history(anew=True)
        properties = {**detail["properties"], **history.properties}
        if not parse_value(_GC, properties.get(_GC, "true"), boolean):
            raise CommitConflict(f"{_GC}=false was set on the table meanwhile")
        config, target = parse_into(RetentionConfig, properties), _target_from_json(detail["target"])
        selected = select(history.snapshots, history.refs, config, target, case.process.created_at)
        going = frozenset(detail["ids"]) & selected.go.keys()
        refs = [name for name in detail["refs"] if name in selected.refs and _may_go(history, selected, going, name)]
        if not going and not refs:
            raise CommitConflict("no planned snapshot is past its time any more")
        payload, evidence = table.stage_expiry(going, refs, clean=config.clean_metadata)
        figures = (
            Figure("snapshots_before", len(history.snapshots), "snapshots"),
            Figure("snapshots_expired", len(going), "snapshots"),
            Figure("refs_removed", len(refs), "refs"),
        )
        words = f"expired {len(going)} of {many(len(history.snapshots), 'snapshot')}"
        if refs:
            words += f", removed {', '.join(refs)}"
        return metadata_change(case, payload, evidence, words, figures, now)

    def restore_lost_refs(self, table: AnyTable, case: ProcessContext) -> tuple[str, ...]:
        """Restore branches and tags that others created on a removed snapshot meanwhile."""
        return tuple(f"restored {name}, which was created meanwhile" for name in table.bring_back(_removed(case)))

    def condemned(self, table: AnyTable, case: ProcessContext) -> Iterable[Condemned]:
        """The files that only the removed snapshots needed."""
        removed = _removed(case)
        reason = f"no snapshot needs it: {many(len(removed.snapshot_ids), 'snapshot')} expired"
        for file in table.released(self.base(case), removed):
            yield Condemned(file.path, file.kind, file.size_bytes, None, reason)

    def base(self, case: ProcessContext) -> str:
        """The state that still knew the snapshots."""
        return str(case.detail["base"])

    def keep(self, case: ProcessContext) -> timedelta:
        """The table's property at the time of planning."""
        return timedelta(seconds=case.detail["keep_s"])


def _refuse(options: Options) -> None:
    if options.older_than is not None and options.older_than < LEAST_AGE:
        raise InvalidArgument(
            f"the age {options.older_than} is below 24 h",
            hint="Ask for 24h or more; a table may keep its snapshots shorter by snapshot.keep.duration.",
        )
    if options.retain_last is not None and options.retain_last < 1:
        raise InvalidArgument(
            f"--retain-last is {options.retain_last}, and at least 1 is kept", hint="Keep 1 or more of each branch."
        )


def _refuse_named(options: Options, history: History, selected: SnapshotSelection) -> None:
    present = {snapshot_facts.snapshot_id for snapshot_facts in history.snapshots}
    if missing := [id_ for id_ in options.snapshot_ids if id_ not in present]:
        raise InvalidArgument(f"the table has no snapshot {missing[0]}", hint="Name snapshots that it has.")
    for snapshot_id, why in selected.refused.items():
        raise InvalidArgument(
            f"snapshot {snapshot_id} is needed: {why}", hint="Remove what holds it first, or leave the snapshot out."
        )


def _target_to_json(target: Target) -> dict[str, Any]:
    age = None if target.max_age is None else target.max_age.total_seconds()
    return {
        "max_age_s": age,
        "min_count": target.min_count,
        "snapshot_ids": target.snapshot_ids,
        "pinned": list(target.pinned.items()),
        "since": list(target.since.items()),
    }


def _target_from_json(stored: Mapping[str, Any]) -> Target:
    age = stored["max_age_s"]
    return Target(
        None if age is None else timedelta(seconds=age),
        stored["min_count"],
        tuple(stored["snapshot_ids"]),
        dict(stored["pinned"]),
        dict(stored["since"]),
    )


def _within_limit(table: AnyTable, going: list[int]) -> tuple[list[int], Counter[str], int]:
    """As many of the snapshots, oldest first, as keep the process within the limit of files, at least one; counts of
    the released files, named as by Spark's procedure, and their bytes."""
    while True:
        counts: Counter[str] = Counter()
        size = 0
        for file in islice(table.would_release(frozenset(going)), MOST_FILES + 1):
            deletes = _EQUALITY if file.has_equality_deletes else _POSITION
            counts[deletes if file.kind is FileKind.DELETE else _COUNTS[file.kind]] += 1
            size += file.size_bytes or 0
        if counts.total() <= MOST_FILES or len(going) <= 1:
            return going, counts, size
        going = going[: len(going) // 2]


def _may_go(history: History, selected: SnapshotSelection, going: Collection[int], name: str) -> bool:
    """Whether a reference is removed now: not if its snapshot is left for the next time."""
    at = next(ref.snapshot_id for ref in history.refs if ref.name == name)
    return at in selected.stay or at in going


def _document(
    history: History, selected: SnapshotSelection, going: Sequence[int], refs: Sequence[str]
) -> dict[str, object]:
    times = {snapshot.snapshot_id: snapshot.committed_at.isoformat() for snapshot in history.snapshots}
    return {
        "expired_snapshots": [
            {"snapshot_id": id_, "committed_at": times[id_], "reason": selected.go[id_]} for id_ in going
        ],
        "kept_snapshots": [
            {"snapshot_id": id_, "committed_at": times[id_], "ground": why.ground.value, "reason": why.reason}
            for id_, why in selected.stay.items()
        ],
        "removed_refs": [{"name": name, "reason": selected.refs[name]} for name in refs],
    }


def _removed(case: ProcessContext) -> SnapshotsRemoved:
    """The files and snapshots that the landed commit has removed."""
    landed = next(attempt for attempt in case.attempts if attempt.outcome is CommitOutcome.DONE)
    if not isinstance(landed.evidence, SnapshotsRemoved):
        raise TypeError(f"{NAME} has committed {landed.evidence}")
    return landed.evidence


AUTO_TAGS = "auto-create-tags"


class AutoCreateTags(ActionDefaults):
    """The action of Amoro's automatic tags."""

    name = AUTO_TAGS
    configuration = TagConfig
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.MAINTAIN})

    def evaluate(self, table: Readable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict | None:
        """Due when the tag of the period that ended last is missing and a snapshot fits."""
        config = _tag_config(properties)
        if not config.enabled:
            return None
        verdict = _tag_verdict(table, config, now)
        return TriggerVerdict(verdict.snapshot_id is not None, verdict.reason, verdict.due_at)

    def plan(self, table: Readable, situation: PlanningContext, request: Request) -> tuple[TagVerdict, Plan | None]:
        """The missing tag; on request also if the table's properties do not switch the action on."""
        config = _tag_config(situation.properties)
        verdict = _tag_verdict(table, config, situation.now)
        if verdict.snapshot_id is None or not (config.enabled or request.name):
            return verdict, None
        snapshot = next(item for item in table.snapshots() if item.snapshot_id == verdict.snapshot_id)
        detail = json.dumps({"tag": verdict.name, "max_age_ms": config.max_age_ms})
        reason = f"{verdict.reason}: on snapshot {snapshot.snapshot_id}"
        return verdict, Plan(AUTO_TAGS, reason, snapshot.snapshot_id, snapshot.sequence_number, (), detail)

    def change(self, table: Maintainable, case: ProcessContext, now: datetime) -> Change:
        """Stages the planned tag on the present table."""
        detail = case.detail
        name, snapshot_id = detail["tag"], case.process.snapshot_id
        payload = table.stage_tag(name, snapshot_id, detail["max_age_ms"])
        words = f"created tag {name} on snapshot {snapshot_id}"
        return metadata_change(case, payload, RefAt(name, snapshot_id), words, (), now)


def main_history(table: Readable) -> list[SnapshotFacts]:
    """The snapshots from main's head back, as far as the table still has them."""
    return list(ancestors({snapshot.snapshot_id: snapshot for snapshot in table.snapshots()}, table.facts.snapshot_id))


def _tag_config(properties: Mapping[str, str]) -> TagConfig:
    return parse_into(TagConfig, properties, zone=parse_into(MaintenanceConfig, properties).zone)


def _tag_verdict(table: Readable, config: TagConfig, now: datetime) -> TagVerdict:
    refs = {name for snapshot in table.snapshots() for name in snapshot.refs}
    return evaluate_tag(config, now, main_history(table), refs)
