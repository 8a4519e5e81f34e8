"""An action of tests alone, in the lane of storage: it commits nothing, and removes the files that it finds."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import datetime

from amoro_core.actions.contract import Plan, Prepare, Request, Situation, TriggerVerdict
from amoro_core.formats.port import AnyTable, Role
from amoro_core.model.actions import Case
from amoro_core.model.lanes import STORAGE
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import Receipt

NAME = "sweep"


class Sweeping:
    """Removes what `find` finds for a table; it is due when there is anything."""

    name = NAME
    names = (NAME,)
    lane = STORAGE
    roles = frozenset({Role.COMMIT})

    def __init__(self, find: Callable[[AnyTable], list[str]]) -> None:
        self._find = find

    def evaluate(self, table: AnyTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict | None:
        found = self._find(table)
        return TriggerVerdict(bool(found), f"{len(found)} files")

    def plan(self, table: AnyTable, situation: Situation, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        found = self._find(table)
        plan = Plan(NAME, "files", 0, 0, (), json.dumps(found), commits=False) if found else None
        return TriggerVerdict(bool(found), f"{len(found)} files"), plan

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
