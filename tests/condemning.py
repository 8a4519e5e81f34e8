"""Actions of the tests in the lane of storage: they commit nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from amoro_core.actions.action_api import Plan, PlanningContext, Prepare, Request, TriggerVerdict
from amoro_core.formats.ports import AnyTable, Readable, Role
from amoro_core.model.maintenance import Condemned, FileKind, Surroundings
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import STORAGE, ProcessContext, Receipt

NAME = "condemn"


class Storing:
    """What these actions have in common."""

    lane = STORAGE

    def preparing(self) -> Prepare:
        raise AssertionError("it commits nothing")

    def optimized(self, case: ProcessContext, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        return frozenset()

    def inputs(self, case: ProcessContext) -> tuple[str, ...]:
        return ()

    def outputs(self, case: ProcessContext, groups: frozenset[int]) -> tuple[str, ...]:
        return ()

    def removals(self, case: ProcessContext) -> tuple[str, ...]:
        return ()


@dataclass
class Condemn(Storing):
    """Condemns the files, each a path with its kind; `most` is how many need no confirmation."""

    files: Callable[[], Sequence[tuple[str, FileKind]]]
    keep: timedelta = timedelta(days=1)
    most: int = 1000
    on: str = "maintenance.condemn.enabled"
    seen: list[Surroundings] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)
    error: Exception | None = None  # with which its planning fails

    name = NAME
    names = (NAME,)
    roles = frozenset({Role.READ})
    every = timedelta(hours=1)
    needs_gc = True

    @property
    def switch(self) -> str:
        return self.on

    def enabled(self, properties: Mapping[str, str]) -> bool:
        return properties.get(self.on, "true") == "true"

    def plan(self, table: Readable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        if self.error is not None:
            raise self.error
        around = situation.around()
        self.seen.append(around)
        found = [one for one in self.files() if one[0] not in around.condemned]
        if not found:
            return TriggerVerdict(False, "nothing to condemn"), None
        held = f"{len(found)} files are more than {self.most}" if len(found) > self.most else ""
        files = tuple(Condemned(path, kind, self.sizes.get(path), None, "told so") for path, kind in found)
        plan = Plan(
            NAME,
            f"{len(found)} files",
            table.facts.snapshot_id or 0,
            table.facts.sequence_number,
            (),
            commits=False,
            held=held,
            measures={"files": len(found)},
            condemned=files,
            keep=self.keep,
            document={"files": [path for path, _ in found]},
        )
        return TriggerVerdict(True, "told so"), plan

    def receipt(self, case: ProcessContext) -> Receipt:
        return Receipt.brief("condemned", case.process.snapshot_id)


class Sweeping(Storing):
    """Removes what `find` finds for a table; it is due when there is anything."""

    name = "sweep"
    names = ("sweep",)
    roles = frozenset({Role.COMMIT})

    def __init__(self, find: Callable[[AnyTable], list[str]]) -> None:
        self._find = find

    def evaluate(self, table: AnyTable, properties: Mapping[str, str], now: datetime) -> TriggerVerdict | None:
        found = self._find(table)
        return TriggerVerdict(bool(found), f"{len(found)} files")

    def plan(self, table: AnyTable, situation: PlanningContext, request: Request) -> tuple[TriggerVerdict, Plan | None]:
        found = self._find(table)
        plan = Plan(self.name, "files", 0, 0, (), json.dumps(found), commits=False) if found else None
        return TriggerVerdict(bool(found), f"{len(found)} files"), plan

    def removals(self, case: ProcessContext) -> tuple[str, ...]:
        return tuple(json.loads(case.process.detail))

    def receipt(self, case: ProcessContext) -> Receipt:
        return Receipt.brief("swept")
