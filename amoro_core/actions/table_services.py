"""Services that a format's own engine does on Spark: one task each, whose outcome is read from the table."""

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime

from amoro_core.actions.action_api import ActionDefaults, Plan, PlannedTask, PlanningContext, Request, TriggerVerdict
from amoro_core.errors import CheckFailed, CommitConflict, TableRefused
from amoro_core.formats.ports import AnyTable, Role, Serviced
from amoro_core.maintenance.table_services import (
    NO_BUCKETS,
    PaimonOptions,
    ServiceConfig,
    completed_since,
    delta_commits,
    due_buckets,
    expirable,
    fragments,
    lock_options,
)
from amoro_core.model.maintenance import Options
from amoro_core.model.paths import normalise, scheme_of
from amoro_core.model.processes import FILES, Figure, ProcessContext, Receipt, uuid7
from amoro_core.model.properties import parse_into
from amoro_core.model.table_services import COMPLETED, INFLIGHT, TableContents, TimelineEntry
from amoro_core.model.tables import MAIN
from amoro_core.model.task_payload import PROCEDURES, TAKE_OVER, Work
from amoro_core.model.text_sanitizing import masked
from amoro_core.protocol import maintenance_pb2 as pb

#: Of files, in one plan of clustering.
_GROUPS = 4
#: Storages in which a rename replaces no file, by which Paimon's commits exclude each other.
_RENAMING = ("hdfs", "viewfs")


class EngineService(ActionDefaults, ABC):
    """A service of the tables of one format; a process has one task, and ends with what the table shows then."""

    format: str
    service: str  # as in `ProcedureWork`
    lane = FILES
    roles = frozenset({Role.SERVICE})
    configuration = ServiceConfig

    @abstractmethod
    def evaluate(self, table: AnyTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict:
        """Whether the service is due by the table's own properties, and why or why not."""

    @abstractmethod
    def work(self, table: AnyTable, config: ServiceConfig, situation: PlanningContext) -> pb.ProcedureWork | str:
        """What the engine is to do on this table; or why there is nothing to do. Raises TableRefused."""

    @abstractmethod
    def outcome(self, table: AnyTable, work: pb.ProcedureWork, output: pb.ProcedureOutput, planned_at: int) -> str:
        """What the reloaded table shows as done since the state in which it was planned, in words.

        Raises CheckFailed where it shows that it was not done, and CommitConflict where there was nothing to do.
        """

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        """One task; on request also where it is not due, if there is anything to do."""
        facts, config = table.facts, parse_into(ServiceConfig, situation.properties)
        if facts.format != self.format:
            raise TableRefused(
                f"{facts.identifier} has the format {facts.format}, and {self.name} is for tables of {self.format}",
                reason="format",
            )
        verdict = self.evaluate(table, situation.properties, situation.now)
        if not (verdict.is_due or request.name):
            return verdict, None
        work = self.work(table, config, situation)
        if isinstance(work, str):
            return TriggerVerdict(False, work), None
        work.format, work.service, work.marker = self.format, self.service, uuid7(situation.now)
        work.table, work.location = str(facts.identifier), facts.location
        contents = table.contents
        work.manifest_fields.extend(sorted(contents.manifest_fields))
        size, files = contents.summary.data_bytes, contents.summary.data_files
        payload = Work(PROCEDURES[self.format], work.SerializeToString(deterministic=True))
        reason = verdict.reason if verdict.is_due else f"asked for: {verdict.reason}"
        instant = {"instant": work.instant} if work.instant else {}
        return self.planned(
            table,
            reason,
            {"before": _sizes(contents)},
            tasks=(PlannedTask(payload, min(size, config.io_bound), "", files, size),),
            commits=False,
            document={"options": masked(dict(work.options)), "files": contents.kinds, **instant},
        )

    def gathered(self, table: AnyTable, situation: PlanningContext, case: ProcessContext, options: Options) -> Plan:
        """What was done, as the reloaded table shows it. Raises CheckFailed, CommitConflict."""
        [result] = case.results
        work, output = pb.ProcedureWork.FromString(result.input), pb.ProcedureOutput.FromString(result.output)
        words = self.outcome(table, work, output, case.process.snapshot_id or 0)
        notes = "; ".join((*output.notes, "rows were not compared"))
        done = {
            "after": _sizes(table.contents),
            "words": f"{words}, by {self.format.capitalize()} {output.engine_version}; {notes}",
            "duration_ms": output.duration_ms,
        }
        return self.planned(table, case.process.reason, case.detail | done, commits=False)[1]

    def receipt(self, case: ProcessContext) -> Receipt | None:
        """Files and bytes of the table before and after, what others wrote meanwhile included."""
        detail = case.detail
        figures = tuple(
            Figure(f"{name}_{when}", detail[when].get(name, 0), name.rpartition("_")[2])
            for name in sorted(detail["before"].keys() | detail["after"].keys())
            for when in ("before", "after")
        )
        receipt = Receipt.brief(detail["words"], case.process.snapshot_id, figures)
        return replace(receipt, duration_ms=detail["duration_ms"])


def _sizes(contents: TableContents) -> dict[str, int]:
    """Files by kind, and all bytes, by the names of a receipt's figures."""
    files = {f"{kind.replace(' ', '_')}_files": files for kind, (files, _) in contents.kinds.items()}
    return {**files, "superseded_files": contents.superseded_files, "bytes": contents.summary.data_bytes}


class HudiService(EngineService):
    """A service of Hudi tables: a plan of a writer is executed, or one is scheduled under the writers' lock."""

    format = "hudi"
    pending: str  # the action of its instants until they are completed
    done: str  # the operation of its completed instants, or their action
    needs_lock = False  # also for a plan of a writer

    @abstractmethod
    def count(self, table: AnyTable, config: ServiceConfig) -> TriggerVerdict:
        """Whether enough was committed since the last time."""

    @abstractmethod
    def settings(self, config: ServiceConfig) -> Mapping[str, str]:
        """Hudi's settings for a plan of ours."""

    def needless(self, table: AnyTable) -> str:
        """Why a plan would be empty, by the table's files; "": it would not."""
        return ""

    def evaluate(self, table: AnyTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict:
        """Due with a plan of a writer, or by the count; a plan that others have begun is left to them."""
        plan, result = self._pending(table), self.count(table, parse_into(ServiceConfig, properties))
        if plan and plan.state == INFLIGHT:
            return TriggerVerdict(
                False,
                f"{self.pending} {plan.time} was begun and is not completed; if nobody works on it any more: "
                f"amoro table maintain {table.facts.identifier} --action {self.name}",
            )
        if plan:
            result = TriggerVerdict(True, f"{self.pending} {plan.time} is scheduled and not begun")
        try:
            self._locking(table, properties, plan)
        except TableRefused as refusal:
            return TriggerVerdict(False, f"{result.reason}; {refusal.message}")
        return result

    def work(self, table: AnyTable, config: ServiceConfig, situation: PlanningContext) -> pb.ProcedureWork | str:
        """The oldest plan of a writer; else a plan to be made, for which Hudi gets its settings and the lock."""
        plan = self._pending(table)
        locking = self._locking(table, situation.properties, plan)
        if plan:
            begun = {TAKE_OVER: "true"} if plan.state == INFLIGHT else {}  # only a person asks for such a one
            return pb.ProcedureWork(instant=plan.time, options={**locking, **begun})
        if why := self.needless(table):
            return f"{self.count(table, config).reason}; {why}"
        return pb.ProcedureWork(options={**self.settings(config), **locking})

    def outcome(self, table: AnyTable, work: pb.ProcedureWork, output: pb.ProcedureOutput, planned_at: int) -> str:
        """The instant, once it is completed in the timeline or so old that it has left it as completed.

        Hudi makes no plan where a driver that was lost has completed its own.
        """
        time = work.instant or output.instant or table.done_since(planned_at, self.done)
        timeline = table.timeline
        if not time:
            raise CommitConflict(f"Hudi made no plan for {self.service}, and gives no reason")
        states = {entry.state for entry in timeline if entry.time == time}
        is_archived = not states and bool(timeline) and time < timeline[0].time
        if COMPLETED not in states and not is_archived:
            raise CheckFailed(
                f"instant {time} of {table.facts.identifier} is {', '.join(states) or 'not in the timeline'}, and not "
                "completed as the optimizer says"
            )
        return f"{self.service}: instant {time} completed"

    def _pending(self, table: AnyTable) -> TimelineEntry | None:
        """Its oldest plan that is not completed: of those that nobody has begun, if there are any."""
        plans = [entry for entry in table.timeline if entry.action == self.pending and entry.state != COMPLETED]
        return min(plans, key=lambda entry: entry.state == INFLIGHT, default=None)

    def _locking(self, table: AnyTable, properties: Mapping[str, str], plan: TimelineEntry | None) -> dict[str, str]:
        """The writers' lock. Raises TableRefused("lock") without one, unless the plan to execute needs none."""
        try:
            return lock_options(properties, str(table.facts.identifier))
        except TableRefused:
            if plan is None or self.needs_lock:
                raise
            return {}


class HudiCompact(HudiService):
    """Merges the log files of a merge-on-read table into its base files."""

    name, service, pending, done = "hudi-compact", "compact", "compaction", "COMPACT"

    def count(self, table: AnyTable, config: ServiceConfig) -> TriggerVerdict:
        if table.facts.properties.get("hoodie.table.type") != "MERGE_ON_READ":
            return TriggerVerdict(False, "a copy-on-write table has no log files")
        commits = delta_commits(table.timeline)
        is_due = commits >= config.delta_commits
        return TriggerVerdict(is_due, f"{commits} of {config.delta_commits} delta commits since the last compaction")

    def needless(self, table: AnyTable) -> str:
        """Writers may have put all new rows into small base files."""
        return "" if "log" in table.contents.kinds else "no file group has a log file"

    def settings(self, config: ServiceConfig) -> Mapping[str, str]:
        """Fewer delta commits suffice for Hudi: they were counted here."""
        bound_mb = max(1, config.io_bound // 1024**2)
        return {"hoodie.compaction.target.io": str(bound_mb), "hoodie.compact.inline.max.delta.commits": "1"}


class HudiCluster(HudiService):
    """Orders the rows of base files by the table's columns for it."""

    name, service, pending, done = "hudi-cluster", "cluster", "clustering", "CLUSTER"

    def count(self, table: AnyTable, config: ServiceConfig) -> TriggerVerdict:
        commits = completed_since(table.timeline, ("commit", "deltacommit"), "replacecommit")
        words = f"{commits} of {config.cluster_commits} commits since the last clustering"
        if not config.cluster_columns:
            return TriggerVerdict(False, f"{words}; table-service.cluster.columns names no column")
        return TriggerVerdict(commits >= config.cluster_commits, words)

    def settings(self, config: ServiceConfig) -> Mapping[str, str]:
        """A few groups of files, so that several partitions have their turn."""
        plan = "hoodie.clustering.plan.strategy"
        return {
            f"{plan}.sort.columns": ",".join(config.cluster_columns),
            f"{plan}.max.num.groups": str(_GROUPS),
            f"{plan}.max.bytes.per.group": str(max(1, config.io_bound // _GROUPS)),
        }


class HudiClean(HudiService):
    """Deletes files that only readers of old commits need."""

    name, service, pending, done = "hudi-clean", "clean", "clean", "clean"
    needs_lock = True  # without one Hudi takes writes that go on for failed ones, and rolls them back

    def count(self, table: AnyTable, config: ServiceConfig) -> TriggerVerdict:
        commits = completed_since(table.timeline, ("commit", "deltacommit", "replacecommit"), "clean")
        words = f"{commits} commits since the last cleaning, of which {config.clean_commits} stay readable"
        return TriggerVerdict(commits > config.clean_commits, words)

    def needless(self, table: AnyTable) -> str:
        return "" if table.contents.superseded_files else "no file is superseded"

    def settings(self, config: ServiceConfig) -> Mapping[str, str]:
        return {"hoodie.clean.commits.retained": str(config.clean_commits)}


class PaimonService(EngineService):
    """A service of Paimon tables whose writers leave compaction and expiry to others."""

    format = "paimon"

    @abstractmethod
    def count(self, table: AnyTable, config: ServiceConfig, options: PaimonOptions, now: datetime) -> TriggerVerdict:
        """Whether enough has gathered since the last time."""

    def evaluate(self, table: AnyTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict:
        """By the table's snapshots and files; not due, with the reason, where the service is refused."""
        config = parse_into(ServiceConfig, properties)
        try:
            return self.count(table, config, paimon_options(table, config), now)
        except TableRefused as refusal:
            if refusal.reason == "configuration":
                raise
            return TriggerVerdict(False, refusal.message)


class PaimonCompact(PaimonService):
    """Merges sorted runs of buckets with a primary key, and small files of others."""

    name, service = "paimon-compact", "compact"

    def count(self, table: AnyTable, config: ServiceConfig, options: PaimonOptions, now: datetime) -> TriggerVerdict:
        """By the sorted runs or small files in each bucket, and by the age of level 0."""
        contents = table.contents
        most = max((fragments(group, contents, options) for group in contents.groups), default=0)
        due, total = len(due_buckets(contents, config, options, now)), len(contents.groups)
        kind, least = (
            ("sorted runs", options.most_runs + 1) if contents.key_columns else ("small files", options.least_files)
        )
        return TriggerVerdict(
            due > 0, f"{due} of {total} buckets are due: at most {most} {kind} in one, due from {least}"
        )

    def work(self, table: AnyTable, config: ServiceConfig, situation: PlanningContext) -> pb.ProcedureWork | str:
        """The buckets that are due; if none is, all that have more than one sorted run."""
        options, contents = paimon_options(table, config), table.contents
        due = due_buckets(contents, config, options, situation.now) or due_buckets(contents, config, options, None)
        if not due:
            return "no bucket has enough small files, or more than one sorted run with one at level 0"
        buckets = [(bucket.partition, int(bucket.name), is_full) for bucket, is_full in due]
        mode = "fixed" if options.bucket > 0 else "unaware"
        return pb.ProcedureWork(options={"buckets": json.dumps(buckets), "mode": mode})

    def outcome(self, table: AnyTable, work: pb.ProcedureWork, output: pb.ProcedureOutput, planned_at: int) -> str:
        """The snapshot of a commit user that begins with the marker."""
        ours = [entry.time for entry in table.timeline if entry.user.startswith(work.marker)]
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
        count = len(expirable(table.timeline, options, now))
        return TriggerVerdict(
            count >= config.expire_snapshots,
            f"{count} of {config.expire_snapshots} snapshots are beyond what the table's own options keep",
        )

    def work(self, table: AnyTable, config: ServiceConfig, situation: PlanningContext) -> pb.ProcedureWork | str:
        """The oldest snapshot, to see whether it is gone afterwards."""
        snapshots = expirable(table.timeline, paimon_options(table, config), situation.now)
        if not snapshots:
            return "the table's own options keep every snapshot"
        return pb.ProcedureWork(options={"oldest": str(snapshots[0])})

    def outcome(self, table: AnyTable, work: pb.ProcedureWork, output: pb.ProcedureOutput, planned_at: int) -> str:
        """How far the oldest snapshot has moved on."""
        before, after = int(work.options["oldest"]), min(int(entry.time) for entry in table.timeline if entry.user)
        if after == before:
            raise CommitConflict("Paimon found no snapshot to expire")
        return f"expire: snapshots {before} to {after - 1}"


def paimon_options(table: Serviced, config: ServiceConfig) -> PaimonOptions:
    """The options of a Paimon table. Raises TableRefused where its services are not ours to do, or were not tried."""
    facts = table.facts
    options = parse_into(PaimonOptions, facts.properties)
    if not options.write_only:
        raise TableRefused(
            f"the writers of {facts.identifier} compact and expire themselves: write-only is not true",
            reason="write-only",
            hint="Set write-only=true on the table to have that done by optimizers.",
        )
    contents, scheme = table.contents, scheme_of(normalise(facts.location))
    branches = [*contents.branches, *([] if options.branch == MAIN else [options.branch])]
    problems = {
        f"it has the type {options.kind}": options.kind != "table",
        f"it has branches: {', '.join(branches)}": bool(branches),
        f"bucket={options.bucket}": options.bucket < 1 and (contents.key_columns or options.bucket != NO_BUCKETS),
        "deletion-vectors.enabled=true": options.deletion_vectors,
        "row-tracking.enabled=true": options.row_tracking,
        "on local files a commit may replace another one; for trials: table-service.local-files=true": (
            scheme == "file" and not config.local_files
        ),
        f"in {scheme} a commit may replace another one": scheme not in (*_RENAMING, "file"),
    }
    for problem, is_one in problems.items():
        if is_one:
            raise TableRefused(f"{facts.identifier} is not serviced: {problem}", reason="service")
    return options
