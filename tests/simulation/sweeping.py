"""An action of the simulation alone, in the lane of storage: it commits nothing, and removes what nobody names."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime

from amoro_core.actions.contract import Plan, Prepare, Request, Situation, TriggerVerdict
from amoro_core.formats.port import AnyTable, Role
from amoro_core.model.actions import Case
from amoro_core.model.lanes import STORAGE
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import Receipt
from tests.simulation.lake import Lake

NAME = "sweep"


class Sweeping:
    """Removes the strays of a table."""

    name = NAME
    names = (NAME,)
    lane = STORAGE
    roles = frozenset({Role.COMMIT})

    def __init__(self, lake: Lake) -> None:
        self._lake = lake

    def evaluate(self, table: AnyTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict | None:
        found = self._lake.strays_of(table.facts.location)
        return TriggerVerdict(bool(found), f"{len(found)} strays")

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        found = self._lake.strays_of(table.facts.location)
        # A live file among them must stay: whoever removes looks at the table as it is then.
        named = [*found, *self._lake.live_paths(table.facts.identifier)[:1]]
        plan = Plan(NAME, "strays", 0, 0, (), json.dumps(named), commits=False) if found else None
        return TriggerVerdict(bool(found), f"{len(found)} strays"), plan

    def preparing(self) -> Prepare:
        raise AssertionError("it commits nothing")

    def optimized(self, case: Case, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        return frozenset()

    def inputs(self, case: Case) -> tuple[str, ...]:
        return ()

    def outputs(self, case: Case, groups: frozenset[int]) -> tuple[str, ...]:
        return ()

    def removals(self, case: Case) -> tuple[str, ...]:
        return tuple(json.loads(case.process.detail))

    def receipt(self, case: Case) -> Receipt:
        return Receipt.told("swept")
