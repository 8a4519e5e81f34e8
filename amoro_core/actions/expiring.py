"""Expiry of snapshots: those past their age are removed; files that only they needed are condemned."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import islice
from typing import Any

from amoro_core.actions.action_api import Plan, PlanningContext, Prepare, Request, TriggerVerdict, Untasked
from amoro_core.errors import CommitConflict, InvalidArgument
from amoro_core.formats.ports import AnyTable, Role
from amoro_core.maintenance.snapshots import RetentionConfig, SnapshotSelection, Target, select
from amoro_core.model.commits import SnapshotsRemoved
from amoro_core.model.maintenance import Condemned, FileKind, Options, Released
from amoro_core.model.processes import METADATA, Change, CommitOutcome, Figure, ProcessContext, Receipt
from amoro_core.model.properties import boolean, parse_into, parse_value, properties_of
from amoro_core.model.tables import History

NAME = "expire-snapshots"
#: The minimum age that a command may set.
LEAST_AGE = timedelta(hours=24)
#: Maximum of files that one process condemns; the oldest snapshots expire first.
MOST_FILES = 1_000_000
_GC = "gc.enabled"
#: Counts of files by the names that Spark's procedure gives them.
_COUNTS = {
    FileKind.DATA: "deleted_data_files_count",
    FileKind.MANIFEST: "deleted_manifest_files_count",
    FileKind.MANIFEST_LIST: "deleted_manifest_lists_count",
    FileKind.STATISTICS: "deleted_statistics_files_count",
}
_POSITION, _EQUALITY = "deleted_position_delete_files_count", "deleted_equality_delete_files_count"
_EVERY_COUNT = (_COUNTS[FileKind.DATA], _POSITION, _EQUALITY, *tuple(_COUNTS.values())[1:])


class ExpireSnapshots(Untasked):
    """The action that removes snapshots, branches and tags past their age."""

    name = NAME
    names = (NAME,)
    configuration = RetentionConfig
    lane = METADATA
    roles = frozenset({Role.READ, Role.COMMIT, Role.EXPIRE})
    every = timedelta(hours=1)
    switch = "table-expire.enabled"
    needs_gc = True

    def enabled(self, properties: Mapping[str, str]) -> bool:
        """By its property, on without it."""
        return parse_into(RetentionConfig, properties).enabled

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """The snapshots past their age. Raises InvalidArgument for an age below 24 h, a count below 1, an unknown or
        needed snapshot, and options of other actions."""
        _refuse(request.options)
        config = parse_into(RetentionConfig, situation.properties)
        around, history = situation.around(), table.history()
        target = _target(request.options, around.pinned, around.since)
        selected = select(history.snapshots, history.refs, config, target, situation.now)
        _refuse_named(request.options, history, selected)
        if not selected.go and not selected.refs:
            return TriggerVerdict(False, f"no snapshot is past its time: {selected.staying}"), None
        going, counted = _within_limit(table, list(selected.go))
        refs = sorted(name for name in selected.refs if _may_go(history, selected, going, name))
        total = len(history.snapshots)
        reason = f"{len(going)} of {total} snapshots go; {selected.staying}"
        if len(going) < len(selected.go):
            reason += f"; {len(selected.go) - len(going)} more are left to the next time"
        detail = {
            "base": history.metadata_location,
            "ids": going,
            "refs": refs,
            "total": total,
            "keep_s": config.trash_keep.total_seconds(),
            "properties": _own(situation.properties),
            "target": _target_to_json(target),
        }
        plan = Plan(
            NAME,
            reason,
            table.facts.snapshot_id or 0,
            table.facts.sequence_number,
            (),
            json.dumps(detail, separators=(",", ":")),
            keep=config.trash_keep,
            document=_document(history, selected, going, refs, counted, situation.now + config.trash_keep),
        )
        return TriggerVerdict(True, reason), plan

    def preparing(self) -> Prepare:
        """A function that stages the planned removal, except for snapshots that the present table needs."""
        return _change

    def restore_lost_refs(self, table: AnyTable, case: ProcessContext) -> tuple[str, ...]:
        """Restore branches and tags that others created on a removed snapshot meanwhile."""
        return tuple(f"brought {name} back, which was made meanwhile" for name in table.bring_back(_removed(case)))

    def condemned(self, table: AnyTable, case: ProcessContext) -> Iterable[Condemned]:
        """The files that only the removed snapshots needed."""
        removed = _removed(case)
        reason = f"no snapshot needs it since {len(removed.snapshot_ids)} have expired"
        for one in table.released(self.base(case), removed):
            yield Condemned(one.path, one.kind, one.size_bytes, None, reason)

    def base(self, case: ProcessContext) -> str:
        """The state that still knew the snapshots."""
        base: str = json.loads(case.process.detail)["base"]
        return base

    def keep(self, case: ProcessContext) -> timedelta:
        """The table's property at the time of planning."""
        return timedelta(seconds=json.loads(case.process.detail)["keep_s"])


def _refuse(options: Options) -> None:
    if options.older_than is not None and options.older_than < LEAST_AGE:
        raise InvalidArgument(
            f"the age {options.older_than} is below 24 h",
            hint="Ask for 24h or more; a table may keep its snapshots shorter by snapshot.keep.duration.",
        )
    if options.retain_last is not None and options.retain_last < 1:
        raise InvalidArgument(
            f"{options.retain_last} snapshots can't be what is retained", hint="Retain 1 or more of each branch."
        )


def _refuse_named(options: Options, history: History, selected: SnapshotSelection) -> None:
    known = {one.snapshot_id for one in history.snapshots}
    if missing := [one for one in options.snapshot_ids if one not in known]:
        raise InvalidArgument(f"the table has no snapshot {missing[0]}", hint="Name snapshots that it has.")
    for snapshot_id, why in selected.refused.items():
        raise InvalidArgument(
            f"snapshot {snapshot_id} is needed: {why}", hint="Remove what holds it first, or leave the snapshot out."
        )


def _target(options: Options, pinned: Mapping[int, str], since: Mapping[int, str]) -> Target:
    return Target(options.older_than, options.retain_last, options.snapshot_ids, dict(pinned), dict(since))


def _target_to_json(target: Target) -> dict[str, Any]:
    age = None if target.max_age is None else target.max_age.total_seconds()
    return {
        "max_age_s": age,
        "min_count": target.min_count,
        "snapshot_ids": target.snapshot_ids,
        "pinned": list(target.pinned.items()),
        "since": list(target.since.items()),
    }


def _target_from_json(said: Mapping[str, Any]) -> Target:
    age = said["max_age_s"]
    return Target(
        None if age is None else timedelta(seconds=age),
        said["min_count"],
        tuple(said["snapshot_ids"]),
        dict(said["pinned"]),
        dict(said["since"]),
    )


def _own(properties: Mapping[str, str]) -> dict[str, str]:
    keys = {known.key for known in properties_of(RetentionConfig)}
    return {key: text for key, text in properties.items() if key in keys}


# Released files


@dataclass(frozen=True, slots=True)
class _Counted:
    """Counts of released files, named as by Spark's procedure, and their bytes."""

    counts: Mapping[str, int]
    bytes: int


def _within_limit(table: AnyTable, oldest_first: Sequence[int]) -> tuple[list[int], _Counted]:
    """As many of the snapshots, oldest first, as keep the process within the limit of files; at least one."""
    going = list(oldest_first)
    while True:
        counts: Counter[str] = Counter()
        size = 0
        for one in islice(table.would_release(frozenset(going)), MOST_FILES + 1):
            counts[_count_of(one)] += 1
            size += one.size_bytes or 0
        if counts.total() <= MOST_FILES or len(going) <= 1:
            return going, _Counted(counts, size)
        going = going[: len(going) // 2]


def _count_of(one: Released) -> str:
    if one.kind is FileKind.DELETE:
        return _EQUALITY if one.has_equality_deletes else _POSITION
    return _COUNTS[one.kind]


def _may_go(history: History, selected: SnapshotSelection, going: Sequence[int], name: str) -> bool:
    """Whether a reference is removed now: not if its snapshot is left for the next time."""
    at = next(ref.snapshot_id for ref in history.refs if ref.name == name)
    return at in selected.stay or at in going


def _document(
    history: History,
    selected: SnapshotSelection,
    going: Sequence[int],
    refs: Sequence[str],
    counted: _Counted,
    purge_at: datetime,
) -> dict[str, object]:
    times = {one.snapshot_id: one.committed_at.isoformat() for one in history.snapshots}
    return {
        **{name: counted.counts.get(name, 0) for name in _EVERY_COUNT},
        "bytes": counted.bytes,
        "deleted_at": purge_at.isoformat(),
        "expired_snapshots": [
            {"snapshot_id": one, "committed_at": times[one], "reason": selected.go[one]} for one in going
        ],
        "kept_snapshots": [
            {"snapshot_id": one, "committed_at": times[one], "ground": why.ground.value, "reason": why.reason}
            for one, why in selected.stay.items()
        ],
        "removed_refs": [{"name": name, "reason": selected.refs[name]} for name in refs],
    }


# The commit


def _change(table: AnyTable, case: ProcessContext, now: datetime) -> Change:
    said = json.loads(case.process.detail)
    history = table.history(anew=True)
    properties = {**said["properties"], **history.properties}
    if not parse_value(_GC, properties.get(_GC, "true"), boolean):
        raise CommitConflict(f"{_GC}=false is set on the table by now")
    config, target = parse_into(RetentionConfig, properties), _target_from_json(said["target"])
    selected = select(history.snapshots, history.refs, config, target, case.process.created_at)
    going = frozenset(said["ids"]) & selected.go.keys()
    refs = [name for name in said["refs"] if name in selected.refs and _may_go(history, selected, list(going), name)]
    if not going and not refs:
        raise CommitConflict("nothing of what was planned is past its time any more")
    payload, evidence = table.stage_expiry(going, refs, clean=config.clean_metadata)
    figures = (
        Figure("snapshots_before", len(history.snapshots), "snapshots"),
        Figure("snapshots_expired", len(going), "snapshots"),
        Figure("refs_removed", len(refs), "refs"),
    )
    words = f"expired {len(going)} of {len(history.snapshots)} snapshots"
    if refs:
        words += f", removed {', '.join(refs)}"
    duration = round((now - case.process.created_at).total_seconds() * 1000)
    receipt = replace(Receipt.brief(words, case.process.snapshot_id, figures), duration_ms=duration)
    return Change(payload, evidence, receipt)


def _removed(case: ProcessContext) -> SnapshotsRemoved:
    """The files and snapshots that the landed commit has removed."""
    landed = next(one for one in case.attempts if one.outcome is CommitOutcome.DONE)
    if not isinstance(landed.evidence, SnapshotsRemoved):
        raise TypeError(f"{NAME} has committed {landed.evidence}")
    return landed.evidence
