"""What a look at a table said, and what is known of the table after it."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime

from amoro_core.actions.contract import OPTIMIZING_ROLES, Judgement, Triggered
from amoro_core.errors import TableRefused
from amoro_core.formats.port import AnyTable, OpenTable, lacking, with_roles
from amoro_core.model.config import Enabled, OptimizingConfig, decide_enabled, effective_properties
from amoro_core.model.files import DataFile
from amoro_core.model.plans import Evaluation
from amoro_core.model.tables import OPTIMIZING, OptimizingStatus, TableRuntime
from amoro_core.scheduling.refreshing import next_look
from amoro_core.state import tables as machine
from amoro_core.state.judging import judged
from amoro_core.store import actions
from amoro_core.store.database import Connection

#: While a table has one of these, its evaluation is nobody's business but its process's.
BUSY = OPTIMIZING | {OptimizingStatus.PLANNING, OptimizingStatus.COMMITTING}


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict, and when the files that it knows of were looked at."""

    evaluation: Evaluation
    scanned_at: datetime | None


@dataclass(frozen=True, slots=True)
class Seen:
    """What one look at a table said."""

    table: OpenTable
    config: OptimizingConfig
    defaults: Mapping[str, str]  # of its catalog
    left_alone: str | None

    @property
    def refusal(self) -> TableRefused | None:
        """Why the table is refused for optimizing, and for that alone: its format lacks what that needs."""
        return lacking(self.table, OPTIMIZING_ROLES, "optimizing")

    @property
    def optimizable(self) -> AnyTable:
        """The table, for optimizing. Raises its refusal."""
        return with_roles(self.table, OPTIMIZING_ROLES, "optimizing")

    @property
    def selects(self) -> Callable[[DataFile], bool] | None:
        """Which files optimizing is limited to; None: to none. Raises TableRefused for a malformed condition."""
        return None if self.config.filter is None else self.optimizable.selects(self.config.filter)

    def enabled(self, override: bool | None) -> Enabled:
        """Whether the table is optimized, by `amoro table enable|disable` and by what was seen."""
        return decide_enabled(override, self.table.facts.properties, self.defaults)


def as_seen(before: TableRuntime, seen: Seen, found: Judged | None, now: datetime) -> TableRuntime:
    """What is known of a table after a look at it; without a verdict its status stays."""
    facts, enabled = seen.table.facts, seen.enabled(before.enabled_override)
    runtime = replace(
        before,
        uuid=facts.uuid,
        format_version=facts.format_version,
        location=facts.location,
        group=seen.config.group,
        quota=seen.config.quota,
        enabled=enabled.value,
        enabled_origin=enabled.origin,
        snapshot_id=facts.snapshot_id,
        metadata_location=facts.metadata_location,
        properties=dict(facts.properties),
        format=facts.format,
        refreshed_at=now,
    )
    if found is not None and runtime.status not in BUSY:
        runtime = judged(runtime, found.evaluation, seen.left_alone, now)
        runtime = replace(runtime, scanned_at=found.scanned_at, evaluated_config=str(seen.config))
    return replace(runtime, refresh_at=next_look(runtime, now, seen.config))


Judgements = Mapping[str, Judgement | None]


def judge_all(seen: Seen, override: bool | None, triggered: Iterable[Triggered], now: datetime) -> Judgements:
    """What the actions that are due by themselves say of a table; None of one that is off there.

    Off is every one where somebody said `amoro table disable`, and one that needs what the table's format lacks. Raises
    TableRefused("configuration").
    """
    if override is False:
        return {action.name: None for action in triggered}
    properties = effective_properties(seen.defaults, seen.table.facts.properties)
    return {action.name: _judgement(action, seen.table, properties, now) for action in triggered}


def _judgement(action: Triggered, table: OpenTable, properties: Mapping[str, str], now: datetime) -> Judgement | None:
    if lacking(table, action.roles, action.name) is not None:
        return None
    return action.judge(with_roles(table, action.roles, action.name), properties, now)


def note(db: Connection, table_id: int, judgements: Judgements, now: datetime) -> None:
    """Keep what the actions said."""
    for name, found in judgements.items():
        if found is None:
            actions.remove(db, table_id, name)
            continue
        known = actions.get(db, table_id, name)
        actions.save(db, replace(known, reason=found.reason, next_at=now if found.is_due else found.due_at))


def as_refused(before: TableRuntime, refusal: TableRefused, config: OptimizingConfig, now: datetime) -> TableRuntime:
    """What is known of a table after a look that found something which is not handled."""
    runtime = replace(before, refreshed_at=now)
    if runtime.status not in BUSY:
        runtime = machine.advance(runtime, machine.Refuse(refusal.reason, refusal.told), now)
    return replace(runtime, refresh_at=next_look(runtime, now, config))
