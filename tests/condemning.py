"""An action of the tests that condemns what it is told, and is held when it is told so."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from amoro_core.actions.contract import Plan, Prepare, Request, Situation
from amoro_core.formats.port import Readable, Role
from amoro_core.model.actions import Case
from amoro_core.model.lanes import STORAGE
from amoro_core.model.maintenance import Condemned, FileKind, Surroundings
from amoro_core.model.plans import PartitionKey
from amoro_core.model.processes import Receipt

NAME = "condemn"


@dataclass(frozen=True)
class Told:
    """What the action says of a table."""

    reason: str = "told so"
    due_at: datetime | None = None


@dataclass
class Condemn:
    """Condemns the files, each a path with its kind; `most` is how many need no confirmation."""

    files: Callable[[], Sequence[tuple[str, FileKind]]]
    keep: timedelta = timedelta(days=1)
    most: int = 1000
    on: str = "maintenance.condemn.enabled"
    seen: list[Surroundings] = field(default_factory=list)
    sizes: dict[str, int] = field(default_factory=dict)

    name = NAME
    names = (NAME,)
    lane = STORAGE
    roles = frozenset({Role.READ})
    every = timedelta(hours=1)
    needs_gc = True

    @property
    def switch(self) -> str:
        return self.on

    def enabled(self, properties: Mapping[str, str]) -> bool:
        return properties.get(self.on, "true") == "true"

    def plan(self, table: Readable, situation: Situation, request: Request) -> tuple[Told, Plan | None]:
        around = situation.around()
        self.seen.append(around)
        found = [one for one in self.files() if one[0] not in around.condemned]
        if not found:
            return Told("nothing to condemn"), None
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
        return Told(), plan

    def preparing(self) -> Prepare:
        raise AssertionError("it commits nothing")

    def optimized(self, case: Case, groups: tuple[int, ...]) -> frozenset[PartitionKey]:
        return frozenset()

    def inputs(self, case: Case) -> tuple[str, ...]:
        return ()

    def outputs(self, case: Case, groups: frozenset[int]) -> tuple[str, ...]:
        return ()

    def removals(self, case: Case) -> tuple[str, ...]:
        return ()

    def receipt(self, case: Case) -> Receipt:
        return Receipt.told("condemned", case.process.snapshot_id)
