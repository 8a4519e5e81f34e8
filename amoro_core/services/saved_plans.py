"""Plans that people have seen: kept for ten minutes, also over a restart, to be carried out as they were shown."""

import secrets
from collections.abc import Callable
from datetime import datetime, timedelta

from amoro_core.errors import NotFound
from amoro_core.model.saved_plans import SavedPlan
from amoro_core.model.tables import TableIdentifier
from amoro_core.store import saved_plans
from amoro_core.store.database import Connection, Store

KEPT_FOR = timedelta(minutes=10)
MOST = 100


class SavedPlanService:
    """The newest hundred plans that were kept."""

    def __init__(self, store: Store, clock: Callable[[], datetime]) -> None:
        self._store = store
        self._clock = clock

    def keep(self, table: TableIdentifier, content: bytes) -> SavedPlan:
        """Keep the plan under an id that can't be guessed; what is old or too much goes."""
        made = SavedPlan(secrets.token_urlsafe(9), str(table), self._clock(), content)

        def enter(db: Connection) -> None:
            saved_plans.add(db, made)
            saved_plans.trim(db, made.saved_at - KEPT_FOR, MOST)

        self._store.write(enter)
        return made

    def get(self, table: TableIdentifier, plan_id: str) -> SavedPlan:
        """The table's plan. Raises NotFound for one that is not kept (any more), or is another table's."""
        found = self._store.read(lambda db: saved_plans.find(db, plan_id))
        if found is None or found.table != str(table) or self._clock() - found.saved_at >= KEPT_FOR:
            raise NotFound(
                f"no plan {plan_id!r} of {table} is kept",
                hint="Plans are kept for ten minutes, and the newest hundred of them: plan the table again.",
            )
        return found
