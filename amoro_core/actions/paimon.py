"""Compaction and expiry of Paimon tables, which Paimon itself does on Spark."""

import base64
import json
from abc import abstractmethod
from collections.abc import Mapping
from datetime import datetime

from amoro_core.actions.action_api import PlanningContext, TriggerVerdict
from amoro_core.actions.table_services import EngineService
from amoro_core.errors import CheckFailed, CommitConflict, TableRefused
from amoro_core.formats.ports import AnyTable
from amoro_core.maintenance.table_services import (
    PaimonOptions,
    ServiceConfig,
    due_buckets,
    expirable,
    fragments,
    paimon_options,
)
from amoro_core.model.task_payload import PROCEDURE_PAIMON
from amoro_core.protocol import maintenance_pb2 as pb


class PaimonService(EngineService):
    """A service of Paimon tables whose writers leave compaction and expiry to others."""

    format = "paimon"
    kind = PROCEDURE_PAIMON

    def verdict(
        self, table: AnyTable, config: ServiceConfig, properties: Mapping[str, str], now: datetime
    ) -> TriggerVerdict:
        """By the table's snapshots and files; not due, with the reason, where the service is refused."""
        try:
            return self.count(table, config, paimon_options(table.facts, table.contents, config), now)
        except TableRefused as refusal:
            if refusal.reason == "configuration":
                raise
            return TriggerVerdict(False, refusal.message)

    @abstractmethod
    def count(self, table: AnyTable, config: ServiceConfig, options: PaimonOptions, now: datetime) -> TriggerVerdict:
        """Whether enough has gathered since the last time."""


class PaimonCompact(PaimonService):
    """Merges sorted runs of buckets with a primary key, and small files of others."""

    name, service = "paimon-compact", "compact"

    def count(self, table: AnyTable, config: ServiceConfig, options: PaimonOptions, now: datetime) -> TriggerVerdict:
        """By the sorted runs or small files in each bucket, and by the age of level 0."""
        contents = table.contents()
        most = max((fragments(one, contents, options) for one in contents.buckets), default=0)
        due, every = len(due_buckets(contents, config, options, now)), len(contents.buckets)
        kind, least = (
            ("sorted runs", options.most_runs + 1) if contents.key_columns else ("small files", options.least_files)
        )
        return TriggerVerdict(
            due > 0, f"{due} of {every} buckets are due: at most {most} {kind} in one, due from {least}"
        )

    def work(self, table: AnyTable, config: ServiceConfig, situation: PlanningContext) -> pb.ProcedureWork | str:
        """The buckets that are due; if none is, all that have more than one sorted run."""
        options, contents = paimon_options(table.facts, table.contents, config), table.contents()
        due = due_buckets(contents, config, options, situation.now) or due_buckets(contents, config, options, None)
        if not due:
            return "no bucket has enough small files, or more than one sorted run with one at level 0"
        buckets = [(base64.b64encode(one.partition).decode(), one.number, is_full) for one, is_full in due]
        mode = "fixed" if options.bucket > 0 else "unaware"
        fields = sorted(contents.manifest_fields)
        return pb.ProcedureWork(options={"buckets": json.dumps(buckets), "mode": mode}, manifest_fields=fields)

    def outcome(self, table: AnyTable, work: pb.ProcedureWork, output: pb.ProcedureOutput) -> str:
        """The snapshot of a commit user that begins with the marker."""
        ours = [entry.time for entry in table.timeline() if entry.user.startswith(work.marker)]
        if ours:
            return f"compact: snapshot {', '.join(ours)}"
        if output.nothing_to_do:
            raise CommitConflict("Paimon found nothing to compact: others have, or the buckets have too few files")
        raise CheckFailed(f"no snapshot of {table.facts.identifier} is of {work.marker}, as the optimizer says")


class PaimonExpire(PaimonService):
    """Removes snapshots by the table's own options, and the files that only they need."""

    name, service = "paimon-expire", "expire"

    def count(self, table: AnyTable, config: ServiceConfig, options: PaimonOptions, now: datetime) -> TriggerVerdict:
        """By the snapshots that the table's own options let expire."""
        count = len(expirable(table.timeline(), options, now))
        return TriggerVerdict(
            count >= config.expire_snapshots,
            f"{count} of {config.expire_snapshots} snapshots are beyond what the table's own options keep",
        )

    def work(self, table: AnyTable, config: ServiceConfig, situation: PlanningContext) -> pb.ProcedureWork | str:
        """The oldest snapshot, to see whether it is gone afterwards."""
        snapshots = expirable(table.timeline(), paimon_options(table.facts, table.contents, config), situation.now)
        if not snapshots:
            return "the table's own options keep every snapshot"
        fields = sorted(table.contents().manifest_fields)
        return pb.ProcedureWork(options={"oldest": str(snapshots[0])}, manifest_fields=fields)

    def outcome(self, table: AnyTable, work: pb.ProcedureWork, output: pb.ProcedureOutput) -> str:
        """How far the oldest snapshot has moved on."""
        before, after = int(work.options["oldest"]), min(int(one.time) for one in table.timeline() if one.user)
        if after == before:
            raise CommitConflict("Paimon found no snapshot to expire")
        return f"expire: snapshots {before} to {after - 1}"
