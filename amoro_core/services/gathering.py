"""Gathering: the results of a process's tasks decide what it does."""

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from amoro_core.actions.contract import Action, Gathering, Plan, Situation
from amoro_core.events import get_logger
from amoro_core.failpoints import failpoint
from amoro_core.formats.port import AnyTable, with_roles
from amoro_core.formats.tables import Tables
from amoro_core.maintaining.timing import MaintenanceConfig
from amoro_core.model.actions import Case
from amoro_core.model.config import effective_properties, parse_config
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.properties import parse_into
from amoro_core.state import processes as process_machine
from amoro_core.store import groups, process_plans, processes
from amoro_core.store.database import Connection, Store
from amoro_core.store.process_plans import KeptPlan
from amoro_core.transactions.cases import open_planned
from amoro_core.transactions.planned import beyond, keep_plan
from amoro_core.transactions.releasing import done, done_words, move, release_condemned
from amoro_core.transactions.surroundings import neighbours, surroundings

log = get_logger("amoro.gathering")


class GatheringService:
    """Ends the work of processes whose tasks determine what to do."""

    def __init__(
        self,
        store: Store,
        tables_of: Tables,
        find_action: Callable[[str], Action],
        clock: Callable[[], datetime],
        task_limit: timedelta,
    ) -> None:
        """`task_limit`: how long tasks of an ended process may still write."""
        self._store = store
        self._tables = tables_of
        self._find_action = find_action
        self._clock = clock
        self._task_limit = task_limit

    def gather(self, case: Case, action: Gathering) -> None:
        """Act on the results of all tasks: condemn the files and end the process, or hold it.

        Raises what the action raises; nothing is changed then.
        """
        process_id = case.process.process_id
        table = with_roles(open_planned(self._tables, case), action.roles, case.process.type)
        kept = self._store.read(lambda db: process_plans.get(db, process_id))
        made = action.gathered(table, self._situation(case, table), case, kept.options)
        held = _held(made, kept)
        receipt = action.receipt(replace(case, process=replace(case.process, detail=made.detail)))

        def store(db: Connection) -> None:
            now, process = self._clock(), processes.get(db, process_id)
            if process.status is not ProcessStatus.RUNNING:
                return  # closed meanwhile
            processes.save(db, replace(process, detail=made.detail, reason=made.reason))
            keep_plan(db, process, made, replace(kept.options, confirmed=False), now)
            if held:
                move(db, process_id, process_machine.Hold(held), now)
                return
            ended = move(db, process_id, process_machine.Cleared(receipt), now)
            done(db, ended, done_words(ended, None), now)
            release_condemned(db, ended, now)

        failpoint("gather.before_store")
        self._store.write(store)
        failpoint("gather.after_store")
        log.info("work.gathered", process=process_id, reason=made.reason, held=held)

    def _situation(self, case: Case, table: AnyTable) -> Situation:
        catalog = self._tables.catalog(case.runtime.identifier.catalog)
        properties = effective_properties(dict(catalog.properties), table.facts.properties)
        config, now = parse_config(properties), self._clock()
        keep = parse_into(MaintenanceConfig, properties).undo_keep
        process = case.process
        return Situation(
            config,
            properties,
            {},
            self._store.read(lambda db: groups.capacity(db, config.group)),
            now,
            task_limit=self._task_limit,
            around=lambda: self._store.read(
                lambda db: surroundings(db, process.table_id, self._find_action, now, process.process_id, keep)
            ),
            neighbours=lambda: self._store.read(lambda db: neighbours(db, process.table_id)),
        )


def _held(made: Plan, kept: KeptPlan) -> str:
    """Why a person must confirm what was found; "" when it is ordinary, or confirmed already."""
    if not kept.options.confirmed:
        return made.held
    return beyond(made, kept.measures) if kept.measures else ""
