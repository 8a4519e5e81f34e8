"""When a table's services are due, by the table's own properties, and whether we may schedule them. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from amoro_core.errors import TableRefused
from amoro_core.model.properties import boolean, column_names, declared, duration, integer, size, whole
from amoro_core.model.table_services import COMPLETED, LOCK_PROVIDER, FileGroup, TableContents, TimelineEntry
from amoro_core.model.tables import MAIN

#: Switches the services of a table on; without it they are only observed.
SERVICES_ENABLED = "table-service.enabled"
#: Properties that a Hudi writer of ours needs of the table's: they make it exclude other writers.
_LOCKING = ("hoodie.write.lock.", "hoodie.write.concurrency.mode")
#: Lock providers are classes that Spark's driver loads: Hudi's own ones only.
_PROVIDERS = "org.apache.hudi."
_WITHIN_A_PROCESS = "InProcessLockProvider"
#: Paimon's `bucket` of tables without buckets.
NO_BUCKETS = -1
#: The kind of a Paimon table's files that no compaction has read.
_LEVEL_0 = "level 0"


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The properties of a table for the services of its format's own engine; sizes in bytes."""

    enabled: bool = declared(SERVICES_ENABLED, "false", boolean)
    delta_commits: int = declared("table-service.compact.delta-commits", "5", whole(1))
    compact_interval: timedelta = declared("table-service.compact.interval", "1h", duration)  # of level 0 (Paimon)
    io_bound: int = declared("table-service.io-bound", "500MB", size)  # read and written by one plan
    cluster_columns: tuple[str, ...] = declared("table-service.cluster.columns", "", column_names)
    cluster_commits: int = declared("table-service.cluster.commits", "4", whole(1))
    clean_commits: int = declared("table-service.clean.commits", "10", whole(1))  # that stay readable, too
    expire_snapshots: int = declared("table-service.expire.snapshots", "10", whole(1))  # that are due (Paimon)
    local_files: bool = declared("table-service.local-files", "false", boolean)  # for trials (Paimon)


def lock_options(properties: Mapping[str, str], table: str) -> dict[str, str]:
    """The locking that a Hudi table's properties, or the defaults of its catalog, state.

    Raises TableRefused("lock") where they state none that excludes other processes: only who knows the table's writers
    knows how they exclude each other.
    """
    provider = properties.get(LOCK_PROVIDER, "").strip()
    problem = ""
    if not provider:
        problem = f"{LOCK_PROVIDER} is not set"
    elif not provider.startswith(_PROVIDERS):
        problem = f"{LOCK_PROVIDER} is {provider!r}, which is none of Hudi's own"
    elif provider.endswith(_WITHIN_A_PROCESS):
        problem = f"{LOCK_PROVIDER} is {provider}, which excludes nobody outside of its process"
    if problem:
        raise TableRefused(
            f"nothing is scheduled on {table}, whose writers might write at the same time: {problem}",
            reason="lock",
            hint=f"State the lock that every writer of the table uses: {LOCK_PROVIDER} on the table, or "
            f"table.{LOCK_PROVIDER} on its catalog. Plans that a writer has scheduled are executed without it.",
        )
    return {key: value for key, value in properties.items() if key.startswith(_LOCKING)}


def completed_since(timeline: tuple[TimelineEntry, ...], actions: tuple[str, ...], last: str) -> int:
    """How many instants of these actions were completed after the last one of another action was requested."""
    done = [entry for entry in timeline if entry.state == COMPLETED]
    start = max((entry.time for entry in done if entry.action == last), default="")
    return sum(entry.action in actions and (entry.completed or entry.time) > start for entry in done)


def delta_commits(timeline: tuple[TimelineEntry, ...]) -> int:
    """Delta commits completed since the last compaction; without one, since the first, which made base files."""
    first = 0 if any(entry.action == "commit" and entry.state == COMPLETED for entry in timeline) else 1
    return max(0, completed_since(timeline, ("deltacommit",), "commit") - first)


def _age(text: str) -> timedelta:
    return duration(f"{text}ms" if text.strip().isdigit() else text)


@dataclass(frozen=True, slots=True)
class PaimonOptions:
    """Options of a table by which Paimon decides, with Paimon's keys and defaults."""

    write_only: bool = declared("write-only", "false", boolean)
    kind: str = declared("type", "table", str)
    branch: str = declared("branch", MAIN, str)
    bucket: int = declared("bucket", str(NO_BUCKETS), integer)
    deletion_vectors: bool = declared("deletion-vectors.enabled", "false", boolean)
    row_tracking: bool = declared("row-tracking.enabled", "false", boolean)
    most_runs: int = declared("num-sorted-run.compaction-trigger", "5", whole(1))
    least_files: int = declared("compaction.min.file-num", "5", whole(1))
    target_size: int = declared("target-file-size", "256MB", size)
    least_snapshots: int = declared("snapshot.num-retained.min", "10", whole(1))
    most_snapshots: int = declared("snapshot.num-retained.max", str(2**31 - 1), whole(1))
    snapshot_age: timedelta = declared("snapshot.time-retained", "1h", _age)


def fragments(bucket: FileGroup, contents: TableContents, options: PaimonOptions) -> int:
    """Sorted runs with a primary key: every file of level 0 is one, and all files of each further level are one.
    Without one small files: Paimon compacts those below seven tenths of the target size."""
    if contents.key_columns:
        levels = [level for level, _ in bucket.files]
        return levels.count(_LEVEL_0) + len(set(levels) - {_LEVEL_0})
    return sum(10 * size_bytes < 7 * options.target_size for _, size_bytes in bucket.files)


def due_buckets(
    contents: TableContents, config: ServiceConfig, options: PaimonOptions, now: datetime | None
) -> list[tuple[FileGroup, bool]]:
    """The buckets that are due, within the bound of bytes, each with whether it is compacted fully.

    The most fragmented come first. Without `now` every level 0 is old enough.
    """
    since = snapshots_since_compaction(contents.timeline)
    is_old = now is None or (bool(since) and now - _committed_at(since[0]) >= config.compact_interval)
    due = []
    for bucket in contents.groups:
        count = fragments(bucket, contents, options)
        # At exactly its trigger Paimon may find nothing to merge.
        if count > options.most_runs if contents.key_columns else count >= options.least_files:
            due.append((count, bucket, False))
        elif contents.key_columns and is_old and count > 1 and bucket.files[0][0] == _LEVEL_0:
            due.append((count, bucket, True))
    chosen, total = list[tuple[FileGroup, bool]](), 0
    for _, bucket, is_full in sorted(due, key=lambda item: -item[0]):
        if not chosen or total + bucket.size_bytes <= config.io_bound:
            chosen.append((bucket, is_full))
            total += bucket.size_bytes
    return chosen


def snapshots_since_compaction(timeline: Sequence[TimelineEntry]) -> Sequence[TimelineEntry]:
    """Paimon's snapshots after the last COMPACT, the oldest first."""
    snapshots = [entry for entry in timeline if entry.user]
    last = max((at for at, entry in enumerate(snapshots) if entry.action == "COMPACT"), default=-1)
    return snapshots[last + 1 :]


def expirable(timeline: Sequence[TimelineEntry], options: PaimonOptions, now: datetime) -> range:
    """The snapshots that Paimon would expire; consumers keep theirs, tags keep only files."""
    snapshots = [entry for entry in timeline if entry.user]
    if not snapshots:
        return range(0)
    oldest, newest = int(snapshots[0].time), int(snapshots[-1].time)
    consumed = [int(entry.time) - 1 for entry in timeline if entry.action.startswith("consumer ")]
    old = [
        int(entry.time)
        for entry in snapshots
        if now - _committed_at(entry) > options.snapshot_age or int(entry.time) <= newest - options.most_snapshots
    ]
    return range(oldest, min(max(old, default=oldest - 1), newest - options.least_snapshots, *consumed) + 1)


def _committed_at(snapshot: TimelineEntry) -> datetime:
    return datetime.fromisoformat(snapshot.completed)
