"""Random stories of a table: writes, maintenance, and undo of what was done, beside a list of its rows."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable, Set
from typing import Any

from pyiceberg.table import Table

from amoro_core.errors import CannotUndo
from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, SPECS, row
from tests.services.world import World

IDS, PARTS = range(12), "ab"
#: Small files are fragments, or all are segments whose deletes are converted.
SIZES = ({}, {"self-optimizing.target-size": "4000", "self-optimizing.major.trigger.duplicate-ratio": "1.0"})
ENDED = (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL)

Item = tuple[int, str, str]
Key = tuple[int] | tuple[int, str]  # the second within its partition


def item_of(row: oracle.LiveRow) -> Item:
    """What a row is in the list."""
    return row.record["id"], row.record["part"], row.record["value"]


def without(rows: Iterable[Item], gone: Set[Key]) -> list[Item]:
    """The rows that have none of the keys."""
    return [one for one in rows if one[:2] not in gone and one[:1] not in gone]


class Story:
    """One table with what should be in it."""

    def __init__(self, world: World, name: str, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world, self.name, self.seed = world, f"cat.db.{name}", seed
        self.version = self.chance.choice((1, 2, 2, 2))
        self.spec = SPECS[self.chance.choice(list(SPECS))]
        properties = self.chance.choice(SIZES)
        self.table: Table = writer.make_table(
            world.catalog, f"db.{name}", SCHEMA, self.spec, self.version, properties=properties
        )
        self.rows: list[Item] = []
        self.done: list[str] = []  # processes that may be undone
        self.told: list[str] = []
        self.undone = self.refused = 0

    def run(self, steps: int) -> None:
        """Go on for so many steps; after each the rows are as they should be."""
        self.append()
        self.check()
        for _ in range(steps):
            self.chance.choice(self.choices())()
            self.check()

    def choices(self) -> list[Callable[[], None]]:
        """What may come next, the likelier the more often."""
        every = [
            self.append,
            self.optimize,
            self.optimize,
            self.undo,
            self.undo,
            self.undo,
            self.rewrite_files,
            self.maintain,
        ]
        return [*every, self.upsert, self.upsert, self.delete] if self.version >= 2 else every

    def check(self) -> None:
        """The head has the rows that it should have."""
        found = Counter(map(item_of, oracle.live_rows_with_positions(self.table.refresh())))
        assert found == Counter(self.rows), f"seed {self.seed}: {self.told}"

    def append(self) -> None:
        items = [self._item() for _ in range(self.chance.randint(1, 4))]
        writer.append(self.table, [row(*item) for item in items], files=self.chance.randint(1, 2))
        self._note("append", items)
        self.rows += items

    def upsert(self) -> None:
        items = list({item[:2]: item for item in (self._item() for _ in range(self.chance.randint(1, 3)))}.values())
        if self.spec is not BY_PART:
            items = list({item[0]: item for item in items}.values())
        writer.upsert(self.table, [row(*item) for item in items], ["id"])
        self._note("upsert", items)
        gone = {item[:2] if self.spec is BY_PART else item[:1] for item in items}
        self.rows = without(self.rows, gone) + items
        self.deleted_by_key(gone)

    def deleted_by_key(self, gone: Set[Key]) -> None:
        """Equality deletes of the keys came to the table."""

    def delete(self) -> None:
        gone = self._some_ids()
        writer.delete_where(self.table, lambda item: item["id"] in gone, per_file=self.chance.random() < 0.5)
        self._forget("delete", gone)

    def rewrite_files(self) -> None:
        """Copy on write, by somebody else."""
        gone = self._some_ids()
        writer.copy_on_write(self.table, lambda item: item["id"] in gone)
        self._forget("copy on write", gone)

    def optimize(self) -> None:
        kind = self.chance.choice(list(OptimizingType))
        table_id = self.world.table(self.name).table_id
        begun = self.world.planning.begin(table_id, trigger="request", requested=kind, force=True)
        if begun.process_id is None:
            return
        self.world.run_all(begun.process_id)
        if self.chance.random() < 0.3:
            self.append()  # beside the rewrite
        self._note(kind.value, self.world.committing.commit(begun.process_id))
        if self.world.status(begun.process_id) in ENDED:
            self.done.append(begun.process_id)

    def maintain(self) -> None:
        name = self.chance.choice(("clean-dangling-delete-files", "rewrite-manifests", "compute-statistics"))
        begun = self.world.maintaining.begin(self.world.table(self.name).table_id, name, trigger="request")
        self._note(name, begun.reason)
        if begun.process_id and self.world.committing.commit(begun.process_id) in ENDED:
            self.done.append(begun.process_id)

    def undo(self) -> None:
        if not self.done:
            return
        process_id = self.chance.choice(self.done)
        try:
            begun = self.world.maintaining.undo(process_id)
        except CannotUndo as refusal:
            self._note("no undo", refusal.message)
            self.refused += 1
            return
        if self.chance.random() < 0.3:
            self.append()
        status = self.world.committing.commit(begun.process_id)
        self._note("undo", process_id, status)
        assert status is ProcessStatus.SUCCESS, f"seed {self.seed}: {self.told}"
        self.undone += 1
        self.done.remove(process_id)
        self.was_undone(process_id)

    def was_undone(self, process_id: str) -> None:
        """The process was taken back."""

    def _item(self) -> Item:
        return self.chance.choice(IDS), self.chance.choice(PARTS), f"v{self.chance.randrange(1000)}"

    def _some_ids(self) -> set[int]:
        return set(self.chance.sample(IDS, 2))

    def _forget(self, what: str, gone: set[int]) -> None:
        self._note(what, gone)
        self.rows = [one for one in self.rows if one[0] not in gone]

    def _note(self, *words: Any) -> None:
        self.told.append(" ".join(map(str, words)))
