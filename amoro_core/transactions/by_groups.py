"""What came of some groups of a process that commits group by group, within the write that stores it."""

from collections.abc import Iterable, Mapping
from datetime import datetime

from amoro_core.model.clustering import KnownGroup
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import CommitAttempt, CommitOutcome
from amoro_core.records import record
from amoro_core.state import processes as process_machine
from amoro_core.store import cluster_groups, commits, dropped_groups, partitions
from amoro_core.store.database import Connection
from amoro_core.transactions.releasing import move
from amoro_core.transactions.settling import Effects, settle


@record
class LandedGroups:
    """A commit of some groups that has landed."""

    attempt: CommitAttempt
    partitions: Iterable[PartitionKey]  # whose last times move
    made: Iterable[KnownGroup]  # groups of files that are known from now on
    dropped: Mapping[int, str]  # groups that were ready and that the commit lacks


def keep_landed(db: Connection, landed: LandedGroups, effects: Effects, now: datetime) -> None:
    """The process goes on with its other groups, or ends where none is left."""
    attempt = landed.attempt
    commits.save_outcome(db, attempt.process_id, attempt.number, CommitOutcome.DONE)
    dropped_groups.add(db, attempt.process_id, landed.dropped)
    process = move(db, attempt.process_id, process_machine.CommittedSome(), now)
    cluster_groups.add_many(db, process.table_id, process.table_uuid, landed.made, now)
    partitions.record(db, process.table_id, landed.partitions, process.type, process.created_at)
    settle(db, attempt.process_id, effects, now)


def keep_dropped(db: Connection, process_id: str, dropped: Mapping[int, str], effects: Effects, now: datetime) -> None:
    """None of the groups that were ready can be committed; the process goes on with the others, or ends."""
    dropped_groups.add(db, process_id, dropped)
    move(db, process_id, process_machine.GroupsDropped(), now)
    settle(db, process_id, effects, now)
