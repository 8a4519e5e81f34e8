"""Snapshots of a table: two compared, and what the next expiry takes and what keeps the rest."""

from collections.abc import Callable
from datetime import datetime

from amoro_core.actions.contract import Action
from amoro_core.errors import InvalidArgument
from amoro_core.formats.port import Role, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.maintaining.comparing import Comparison, compare
from amoro_core.maintaining.retention import RetentionConfig
from amoro_core.maintaining.snapshots import Selection, Target, select
from amoro_core.maintaining.timing import MaintenanceConfig
from amoro_core.model.config import effective_properties
from amoro_core.model.maintenance import Surroundings
from amoro_core.model.properties import parse_into
from amoro_core.model.tables import History, SnapshotFacts, TableIdentifier
from amoro_core.records import record
from amoro_core.store import tables
from amoro_core.store.database import Connection, Store
from amoro_core.transactions.surroundings import surroundings


@record
class Retention:
    """What an expiry would decide now on every snapshot and reference of a table."""

    history: History
    selection: Selection


class SnapshotService:
    """Loads a table's metadata and tells of its snapshots; no manifest is read, nothing is changed."""

    def __init__(
        self, store: Store, tables_of: Tables, find_action: Callable[[str], Action], clock: Callable[[], datetime]
    ) -> None:
        self._store = store
        self._tables = tables_of
        self._find_action = find_action
        self._clock = clock

    def compare(self, identifier: TableIdentifier, before: int, after: int) -> Comparison:
        """Compare two snapshots by their ids.

        Raises InvalidArgument for an unknown id, TableNotFound, CatalogUnavailable, TableRefused.
        """
        table = with_roles(self._tables.open(identifier), (Role.READ,), "reading it")
        snapshots = table.snapshots()
        return compare(snapshots, _one(snapshots, before), _one(snapshots, after))

    def retention(self, identifier: TableIdentifier) -> Retention:
        """What the next expiry would take, and what keeps the rest: by the rule and the needs that expiry goes by.

        Raises TableNotFound, CatalogUnavailable, TableRefused (a malformed property, a format without expiry).
        """
        catalog = self._tables.catalog(identifier.catalog)
        table = with_roles(self._tables.open(identifier), (Role.EXPIRE,), "reading it")
        properties = effective_properties(dict(catalog.properties), table.facts.properties)
        config, keep = parse_into(RetentionConfig, properties), parse_into(MaintenanceConfig, properties).undo_keep
        now = self._clock()

        def read(db: Connection) -> Surroundings:
            known = tables.find(db, identifier)
            if known is None:
                return Surroundings()
            return surroundings(db, known.table_id, self._find_action, now, undo_keep=keep)

        around, history = self._store.read(read), table.history()
        target = Target(pinned=dict(around.pinned), since=dict(around.since))
        return Retention(history, select(history.snapshots, history.refs, config, target, now))


def _one(snapshots: tuple[SnapshotFacts, ...], snapshot_id: int) -> SnapshotFacts:
    for one in snapshots:
        if one.snapshot_id == snapshot_id:
            return one
    raise InvalidArgument(f"the table has no snapshot {snapshot_id}", hint="See: amoro table snapshots TABLE")
