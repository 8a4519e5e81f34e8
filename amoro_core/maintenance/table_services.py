"""When a table's services are due, by the table's own properties, and whether we may schedule them. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from amoro_core.errors import TableRefused
from amoro_core.model.properties import boolean, declared, size, whole
from amoro_core.model.table_services import COMPLETED, TimelineEntry

#: Switches the services of a table on; without it they are only observed.
SERVICES_ENABLED = "table-service.enabled"
LOCK_PROVIDER = "hoodie.write.lock.provider"
#: Properties that a Hudi writer of ours needs of the table's: they make it exclude other writers.
_LOCKING = ("hoodie.write.lock.", "hoodie.write.concurrency.mode")
#: Lock providers are classes that Spark's driver loads: Hudi's own ones only.
_PROVIDERS = "org.apache.hudi."
_WITHIN_A_PROCESS = "InProcessLockProvider"


def _columns(text: str) -> tuple[str, ...]:
    names = [name.strip() for name in text.split(",")] if text.strip() else []
    if not all(names):
        raise ValueError("expected names of columns, separated by commas")
    return tuple(names)


@dataclass(frozen=True, slots=True)
class ServiceConfig:
    """The properties of a table for the services of its format's own engine; sizes in bytes."""

    enabled: bool = declared(SERVICES_ENABLED, "false", boolean)
    delta_commits: int = declared("table-service.compact.delta-commits", "5", whole(1))
    io_bound: int = declared("table-service.io-bound", "500MB", size)  # read and written by one plan
    cluster_columns: tuple[str, ...] = declared("table-service.cluster.columns", "", _columns)
    cluster_commits: int = declared("table-service.cluster.commits", "4", whole(1))
    clean_commits: int = declared("table-service.clean.commits", "10", whole(1))  # that stay readable, too


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
