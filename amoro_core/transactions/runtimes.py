"""The runtime of a table after a refresh."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime

from amoro_core.actions.contract import OPTIMIZING_ROLES
from amoro_core.errors import TableRefused
from amoro_core.formats.port import AnyTable, OpenTable, Role, lacking, with_roles
from amoro_core.maintaining.last_commit import last_data_commit
from amoro_core.model.config import Enabled, OptimizingConfig, decide_enabled
from amoro_core.model.digests import KeptDigest
from amoro_core.model.files import DataFile
from amoro_core.model.plans import Evaluation
from amoro_core.model.tables import OPTIMIZING, OptimizingStatus, TableRuntime
from amoro_core.model.times import DataCommit
from amoro_core.records import record
from amoro_core.scheduling.refreshing import next_refresh
from amoro_core.state import tables as machine
from amoro_core.state.evaluations import with_evaluation
from amoro_core.store import digests
from amoro_core.store.database import Connection

#: While a table has one of these, its evaluation is left to its process.
BUSY = OPTIMIZING | {OptimizingStatus.PLANNING, OptimizingStatus.COMMITTING}


@record
class Evaluated:
    """An evaluation, and when the files that it is based on were read."""

    evaluation: Evaluation
    scanned_at: datetime | None
    digest: bytes | None = None  # of the files, as it is stored; None: they were not read

    def keep_digest(self, db: Connection, table_id: int) -> None:
        """Keep the digest, if the files were read."""
        made = self.evaluation.digest
        if made is not None and self.digest is not None and self.scanned_at is not None:
            digests.save(db, table_id, self.digest, KeptDigest(made, self.scanned_at))


@record
class LoadedTable:
    """A loaded table, with its effective configuration."""

    table: OpenTable
    config: OptimizingConfig
    defaults: Mapping[str, str]  # of its catalog
    left_alone: str | None

    @property
    def refusal(self) -> TableRefused | None:
        """Why the table is refused for optimizing only: its format lacks a required role."""
        return lacking(self.table, OPTIMIZING_ROLES, "optimizing")

    @property
    def optimizable(self) -> AnyTable:
        """The table, for optimizing. Raises its refusal."""
        return with_roles(self.table, OPTIMIZING_ROLES, "optimizing")

    def data_commit(self, kept: DataCommit | None) -> DataCommit | None:
        """The last commit that added data, from the table and the stored value."""
        if Role.READ not in self.table.roles:
            return None
        table = with_roles(self.table, (Role.READ,), "data expiry")
        return last_data_commit(table.snapshots(), table.facts.snapshot_id, kept)

    @property
    def selects(self) -> Callable[[DataFile], bool] | None:
        """A predicate of the files that optimizing is limited to; None: no limit. Raises TableRefused if malformed."""
        return None if self.config.filter is None else self.optimizable.selects(self.config.filter)

    def enabled(self, override: bool | None) -> Enabled:
        """Whether the table is optimized, by `amoro table enable|disable` and by what was loaded."""
        return decide_enabled(override, self.table.facts.properties, self.defaults)


def after_refresh(before: TableRuntime, loaded: LoadedTable, found: Evaluated | None, now: datetime) -> TableRuntime:
    """The runtime after the table was loaded; without an evaluation its status stays, unless it is refused."""
    facts, enabled = loaded.table.facts, loaded.enabled(before.enabled_override)
    runtime = replace(
        before,
        uuid=facts.uuid,
        format_version=facts.format_version,
        location=facts.location,
        group=loaded.config.group,
        quota=loaded.config.quota,
        enabled=enabled.value,
        enabled_origin=enabled.origin,
        snapshot_id=facts.snapshot_id,
        metadata_location=facts.metadata_location,
        properties=dict(facts.properties),
        format=facts.format,
        refreshed_at=now,
    )
    if found is not None and runtime.status not in BUSY:
        runtime = with_evaluation(runtime, found.evaluation, loaded.left_alone, now)
        runtime = replace(runtime, scanned_at=found.scanned_at, evaluated_config=str(loaded.config))
    if loaded.refusal is not None:
        return after_refusal(runtime, loaded.refusal, loaded.config, now)
    return replace(runtime, refresh_at=next_refresh(runtime, now, loaded.config))


def after_refusal(before: TableRuntime, refusal: TableRefused, config: OptimizingConfig, now: datetime) -> TableRuntime:
    """The runtime after the table was refused."""
    runtime = replace(before, refreshed_at=now)
    if runtime.status not in BUSY:
        runtime = machine.advance(runtime, machine.Refuse(refusal.reason, refusal.told), now)
    return replace(runtime, refresh_at=next_refresh(runtime, now, config))
