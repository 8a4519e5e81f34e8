"""What clustering knows of a table beside the table itself, and the columns that it has chosen."""

from collections.abc import Callable
from dataclasses import replace

from amoro_core.actions.contract import Action, Situation, Verdict
from amoro_core.planning.clustering.facts import ClusterVerdict
from amoro_core.store import cluster_groups, table_scans
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.pins import taken


def with_clustered(
    db: Connection, situation: Situation, table_id: int, uuid: str, find_action: Callable[[str], Action]
) -> Situation:
    """The situation with the files of other plans, the groups that are known, how the table is read, and the choice."""
    return replace(
        situation,
        taken=taken(db, table_id, uuid, find_action),
        known_groups=cluster_groups.of_table(db, table_id, uuid),
        scans=table_scans.list_of(db, table_id),
        choice=table_scans.find_choice(db, table_id),
    )


def keep_choice(store: Store, table_id: int, situation: Situation, verdict: Verdict) -> None:
    """Keep the columns that the verdict has chosen, if they were chosen anew."""
    if isinstance(verdict, ClusterVerdict) and verdict.choice is not None and verdict.choice != situation.choice:
        choice = verdict.choice
        store.write(lambda db: table_scans.save_choice(db, table_id, choice))
