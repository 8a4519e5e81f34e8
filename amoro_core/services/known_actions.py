"""The state of the actions other than optimizing on a table, for display."""

from collections.abc import Callable, Sequence
from datetime import datetime

from amoro_core.formats.tables import Tables
from amoro_core.model.config import decide_enabled
from amoro_core.model.processes import OptimizingProcess
from amoro_core.model.tables import ActionRecord, TableRuntime
from amoro_core.records import record
from amoro_core.state.pausing import seen_with
from amoro_core.store import actions, processes
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.clockwork import Clockwork, Consent, due_at


@record
class KnownAction:
    """The state of an action on a table."""

    record: ActionRecord
    consent: Consent
    process: OptimizingProcess | None  # that has not ended
    due_at: datetime | None  # None: at no known time
    is_due: bool = False


class KnownActionService:
    """Lists the actions other than optimizing of each table."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        names: Sequence[str],
        clock: Callable[[], datetime],
        clockwork: Clockwork,
    ) -> None:
        """`names` of the actions, in the order in which they are shown."""
        self._store = store
        self._tables = tables_of
        self._names = names
        self._clock = clock
        self._clockwork = clockwork

    def list_actions(self, runtime: TableRuntime) -> list[KnownAction]:
        """Every action on the table with its state, in display order.

        Raises TableRefused("configuration"), and what loading the table raises.
        """
        table = self._tables.open(runtime.identifier)
        defaults = dict(self._tables.catalog(runtime.identifier.catalog).properties)
        enabled = decide_enabled(runtime.enabled_override, table.facts.properties, defaults)
        looks = self._clockwork.look(table, defaults, enabled, runtime.enabled_override)
        looks = self._clockwork.ask(table, defaults, looks, self._clock())
        unasked = Consent(False, "it runs only on request")

        def known(db: Connection, name: str, process: OptimizingProcess | None) -> KnownAction:
            record = actions.get(db, runtime.table_id, name)
            if name not in looks:
                return KnownAction(record, unasked, process, None)
            now = self._clock()
            record = seen_with(record, looks[name].properties)
            at = due_at(db, runtime.table_id, looks[name], record, now)
            return KnownAction(record, looks[name].consent, process, at, at is not None and at <= now)

        def read(db: Connection) -> list[KnownAction]:
            active = {one.action: one for one in processes.list_active_of(db, runtime.table_id)}
            return [known(db, name, active.get(name)) for name in self._names]

        return self._store.read(read)
