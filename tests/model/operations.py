"""Everything that another writer may do while a rewrite is under way, with what then becomes of the rewrite.

Ids below 200 lie in the inputs of the process: 1 to 6 in partition a, 101 to 106 in b. Those from 201 on lie in files
that the process leaves alone. Of the ids 1, 2, 101 and 102 older versions were deleted before the plan.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle
from tests.engine.files import stored_partition
from tests.model.crashes import SteppedWorld
from tests.model.lake import COPIES, Lake, ids_are, row
from tests.services.world import World


class Kind(StrEnum):
    """What the process does with its inputs."""

    REWRITE = "rewrite"
    CONVERT = "convert"


class Fate(StrEnum):
    """What becomes of a process whose commit comes after the operation."""

    UNHARMED = "unharmed"
    CARRIED = "its deletes are carried over"  # but not to outputs in another order
    CARRIED_IN_BOTH = "its deletes in both partitions are carried over"
    CARRIED_BUT_CONVERSIONS_LOSE_A = "its deletes are carried over; conversions lose partition a"
    CARRIED_BUT_CONVERSIONS_FAIL = "its deletes are carried over; conversions fail"
    CARRIED_OR_JOINED = "its deletes are carried over, and joined in format 3; conversions of format 2 fail"
    LOSES_A = "loses partition a"
    LOSES_A_AND_CONVERSIONS_FAIL = "loses partition a; conversions fail"
    FAILS = "fails"


#: How a process that rewrites ends, by its fate, and one that converts, when partition a's task is one of two.
PARTITIONED = {
    Fate.UNHARMED: (ProcessStatus.SUCCESS, ProcessStatus.SUCCESS),
    Fate.CARRIED: (ProcessStatus.SUCCESS, ProcessStatus.SUCCESS),
    Fate.CARRIED_IN_BOTH: (ProcessStatus.SUCCESS, ProcessStatus.SUCCESS),
    Fate.CARRIED_BUT_CONVERSIONS_LOSE_A: (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL),
    Fate.CARRIED_BUT_CONVERSIONS_FAIL: (ProcessStatus.SUCCESS, ProcessStatus.FAILED),
    Fate.CARRIED_OR_JOINED: (ProcessStatus.SUCCESS, ProcessStatus.FAILED),
    Fate.LOSES_A: (ProcessStatus.PARTIAL, ProcessStatus.PARTIAL),
    Fate.LOSES_A_AND_CONVERSIONS_FAIL: (ProcessStatus.PARTIAL, ProcessStatus.FAILED),
    Fate.FAILS: (ProcessStatus.FAILED, ProcessStatus.FAILED),
}
#: The properties by which minor optimizing takes what it is to take. Small files are fragments, or all are segments.
PROPERTIES = {
    Kind.REWRITE: {"self-optimizing.target-size": "80000", f"{COPIES}.min-avg-row-group-size-bytes": "0"},
    Kind.CONVERT: {"self-optimizing.target-size": "4000", "self-optimizing.major.trigger.duplicate-ratio": "1.0"},
}


@dataclass(frozen=True, slots=True)
class Scene:
    """The table and the coordinator under test, with room for another coordinator."""

    lake: Lake
    world: SteppedWorld
    other_home: Path

    def append(self) -> None:
        self.lake.append([row(400), row(401, "b"), row(402, "c")])

    def upsert_inputs(self) -> None:
        self.lake.upsert([row(4, "a", "newer"), row(104, "b", "newer"), row(1, "a", "newer")])

    def upsert_others(self) -> None:
        self.lake.upsert([row(201, "a", "newer"), row(301, "b", "newer")])

    def upsert_and_append(self) -> None:
        """The schedule of apache/iceberg #10312: the append makes the equality delete older than the head."""
        self.upsert_inputs()
        self.append()

    def delete_in_one_partition(self) -> None:
        self.lake.delete_equal([row(4), row(5), row(201)])

    def delete_everywhere(self) -> None:
        self.lake.delete_equal([{"id": 4}, {"id": 104}, {"id": 201}], everywhere=True)

    def delete_position_in_input(self) -> None:
        self.lake.delete_positions(ids_are(5))

    def delete_position_and_append(self) -> None:
        """pyiceberg's own validation overlooks a delete that an append has followed."""
        self.delete_position_in_input()
        self.append()

    def delete_position_and_compact(self) -> None:
        self.delete_position_in_input()
        self.lake.compact_position_deletes(per_file=True)

    def delete_position_in_other(self) -> None:
        self.lake.delete_positions(ids_are(201))

    def delete_position_in_other_without_bounds(self) -> None:
        """By its metadata it may name any file of the partition; only its own rows tell."""
        self.lake.delete_positions(ids_are(201), with_bounds=False)

    def delete_all_positions_of_an_input(self) -> None:
        """What was deleted already is deleted again."""
        self.lake.delete_positions(ids_are(4, 5, 6), with_bounds=False)
        self.lake.delete_positions(ids_are(3, 103), per_file=True)

    def overwrite_input(self) -> None:
        self.lake.overwrite(ids_are(5), {"value": "newer"})

    def overwrite_other(self) -> None:
        self.lake.overwrite(ids_are(201, 301), {"value": "newer"})

    def remove_input(self) -> None:
        self.lake.remove_file(ids_are(5))

    def remove_other(self) -> None:
        self.lake.remove_file(ids_are(201))

    def add_column_and_write(self) -> None:
        self.lake.add_column("more")
        self.lake.append([{**row(400), "more": "m"}])

    def rename_and_reuse(self) -> None:
        """The old name belongs to another column afterwards."""
        self.lake.rename_column("value", "renamed")
        self.lake.add_column("value")
        self.lake.append([{**row(400), "renamed": "r"}])

    def drop_and_reuse(self) -> None:
        self.lake.drop_column("value")
        self.lake.add_column("value")
        self.lake.append([row(400, "a", "other")])

    def change_spec(self) -> None:
        lake = self.lake
        if lake.table.spec().fields:
            lake.partition_by_nothing()
        else:
            lake.partition_by_part()
        lake.append([row(400), row(401, "b")])

    def roll_back(self) -> None:
        """To the last snapshot that the process does not know."""
        planned = self.planned()
        ancestors = self.lake.ancestors()
        self.lake.set_main(ancestors[ancestors.index(planned) + 1])

    def replace_main(self) -> None:
        """By a branch that left main before the plan and went its own way."""
        lake = self.lake
        ancestors = lake.ancestors()
        lake.create_branch("audit", ancestors[ancestors.index(self.planned()) + 1])
        lake.append([row(500)], branch="audit")
        lake.set_main(lake.table.metadata.refs["audit"].snapshot_id)

    def write_to_branch(self) -> None:
        self.lake.create_branch("audit")
        self.lake.append([row(500)], branch="audit")

    def expire_after_appends(self) -> None:
        """What is left of the history does not lead back to the plan."""
        self.append()
        self.lake.append([row(403)])
        self.lake.expire()

    def upsert_and_optimize_a(self, kind: Kind, asked: OptimizingType, force: bool = False) -> None:
        """Equality deletes come to both partitions; who has applied or converted them in one removes them there."""
        self.upsert_inputs()
        latest = self.lake.table.refresh().metadata.last_sequence_number
        self.optimize(kind, asked, force, only="part = 'a'")
        metadata = self.lake.table.refresh().metadata
        # Others may have written while that was committed.
        earlier = [one for one in oracle.live_files(self.lake.table) if one.data_sequence <= latest]
        deletes = [one for one in earlier if one.content == oracle.EQUALITY_DELETES]
        newest = {stored_partition(metadata, one.spec_id, one.partition) for one in deletes}
        assert (("a",) in newest, ("b",) in newest) == (False, True), newest

    def optimize(self, kind: Kind, asked: OptimizingType, force: bool = False, only: str = "") -> None:
        """Let a coordinator of another state directory optimize the table, if it finds something to do."""
        with self.lake.table.refresh().transaction() as change:
            change.set_properties({**PROPERTIES[kind], **({"self-optimizing.filter": only} if only else {})})
        self.other_home.mkdir()
        other = World(self.other_home, self.lake.catalog)
        try:
            begun = other.planning.begin(other.table().table_id, trigger="request", requested=asked, force=force)
            if begun.process_id is not None:
                other.run_all(begun.process_id)
                assert other.committing.commit(begun.process_id) is ProcessStatus.SUCCESS
        finally:
            other.store.close()
        self.lake.require()

    def planned(self) -> int:
        (view,) = self.world.optimizing.list_processes()
        return view.process.snapshot_id


@dataclass(frozen=True, slots=True)
class Operation:
    """One thing that others do."""

    name: str
    run: Callable[[Scene], object]
    fate: Fate = Fate.UNHARMED
    deletes: bool = False  # it needs delete files, so format 2
    partitions: bool = False  # it needs a table that is partitioned by `part`

    @property
    def is_own(self) -> bool:
        """Whether another coordinator does it, of which there is one."""
        return self.name.startswith("own ")


#: How conversions end in format 3, where a newer vector is joined with theirs.
JOINED = {Fate.CARRIED_OR_JOINED: ProcessStatus.SUCCESS, Fate.LOSES_A_AND_CONVERSIONS_FAIL: ProcessStatus.PARTIAL}
#: What becomes of rewrites in another order whose rows are looked up: which of them an equality delete of the plan hit
#: is not known, so that none of these may go.
LOOKED_UP = {Fate.CARRIED_BUT_CONVERSIONS_LOSE_A: Fate.LOSES_A, Fate.CARRIED_BUT_CONVERSIONS_FAIL: Fate.FAILS}
#: What becomes of rewrites in another order whose rows are not followed.
ORDERED = {
    Fate.CARRIED: Fate.LOSES_A,
    Fate.CARRIED_IN_BOTH: Fate.FAILS,
    Fate.CARRIED_BUT_CONVERSIONS_LOSE_A: Fate.LOSES_A,
    Fate.CARRIED_BUT_CONVERSIONS_FAIL: Fate.FAILS,
    Fate.CARRIED_OR_JOINED: Fate.FAILS,
    Fate.LOSES_A_AND_CONVERSIONS_FAIL: Fate.FAILS,
}


def expected_status(fate: Fate, kind: Kind, *, partitioned: bool, version: int = 2) -> ProcessStatus:
    """How a process ends that commits after an operation of that fate."""
    ending = PARTITIONED[fate][kind is Kind.CONVERT]
    if version == 3 and kind is Kind.CONVERT:
        ending = JOINED.get(fate, ending)
    # Without partitions there is one task, and what it loses is all.
    return ending if partitioned or ending is ProcessStatus.SUCCESS else ProcessStatus.FAILED


@dataclass(frozen=True, slots=True)
class Case:
    """What others do to one process on a kind of table, each at a point of it."""

    happenings: tuple[tuple[Operation, StrEnum], ...]
    version: int
    partitioned: bool
    how: str  # what the process does with its inputs, or its strategy for updates

    @property
    def table(self) -> str:
        return f"v{self.version}-{'parts' if self.partitioned else 'plain'}-{self.how}"

    @property
    def points(self) -> set[StrEnum]:
        return {point for _, point in self.happenings}

    def __str__(self) -> str:
        what = "-".join(f"{operation.name}-{point}" for operation, point in self.happenings)
        return f"{what}-{self.table}".replace(" ", "_")

    def happens(self, here: StrEnum, scene: Scene) -> None:
        """Let others do what they do here."""
        for operation, point in self.happenings:
            if point is here:
                operation.run(scene)


#: What other operations can't follow, since they name that column.
LAST = ("key column dropped",)
#: Of these only one can happen: each looks for the plan's snapshot in the history, or takes it away from there.
HISTORY = {"main rolled back", "main replaced", "expiry", "expiry after appends"}


def possible(version: int, partitioned: bool) -> list[Operation]:
    """What can be done to such a table."""
    return [one for one in OPERATIONS if (version >= 2 or not one.deletes) and (partitioned or not one.partitions)]


def pair(chance: random.Random, points: Sequence[StrEnum], version: int, partitioned: bool, how: str) -> Case:
    """Two different operations, by chance, at one point or at two, the first at the earlier one."""
    every = [one for one in possible(version, partitioned) if one.name != "nothing"]
    first = chance.choice([one for one in every if one.name not in LAST])
    others = [one for one in every if one is not first and one.is_own + first.is_own < 2]
    second = chance.choice([one for one in others if not {first.name, one.name} <= HISTORY])
    at = sorted(chance.choices(range(len(points)), k=2))
    return Case(((first, points[at[0]]), (second, points[at[1]])), version, partitioned, how)


OPERATIONS = (
    Operation("nothing", lambda scene: None),
    Operation("append", Scene.append),
    Operation("upsert of inputs", Scene.upsert_inputs, deletes=True),
    Operation("upsert of inputs, then append", Scene.upsert_and_append, deletes=True),
    Operation("upsert of others", Scene.upsert_others, deletes=True),
    Operation("equality delete in one partition", Scene.delete_in_one_partition, deletes=True),
    Operation("equality delete everywhere", Scene.delete_everywhere, deletes=True),
    Operation("position delete in input", Scene.delete_position_in_input, Fate.CARRIED, deletes=True),
    Operation("position delete in input, then append", Scene.delete_position_and_append, Fate.CARRIED, deletes=True),
    Operation("position delete in other", Scene.delete_position_in_other, deletes=True),
    Operation("position delete in other, without bounds", Scene.delete_position_in_other_without_bounds, deletes=True),
    Operation(
        "position deletes of every row of an input",
        Scene.delete_all_positions_of_an_input,
        Fate.CARRIED_IN_BOTH,
        deletes=True,
    ),
    Operation(
        "position deletes compacted",
        lambda scene: scene.lake.compact_position_deletes(),
        Fate.CARRIED_OR_JOINED,
        deletes=True,
    ),
    Operation(
        "position delete, then all compacted", Scene.delete_position_and_compact, Fate.CARRIED_OR_JOINED, deletes=True
    ),
    Operation(
        "row taken back", lambda scene: scene.lake.take_back([row(2)]), Fate.LOSES_A_AND_CONVERSIONS_FAIL, deletes=True
    ),
    Operation("overwrite of input", Scene.overwrite_input, Fate.LOSES_A),
    Operation("overwrite of other", Scene.overwrite_other),
    Operation("removal of input", Scene.remove_input, Fate.LOSES_A),
    Operation("removal of other", Scene.remove_other),
    Operation("column added and written", Scene.add_column_and_write),
    Operation("column renamed and its name reused", Scene.rename_and_reuse),
    Operation("column promoted", lambda scene: scene.lake.promote_column("number")),
    Operation("column dropped and its name reused", Scene.drop_and_reuse),
    Operation("key column dropped", lambda scene: scene.lake.drop_column("id")),
    Operation("spec changed and written", Scene.change_spec),
    Operation("branch created", lambda scene: scene.lake.create_branch("audit")),
    Operation("branch written", Scene.write_to_branch),
    Operation("tag created", lambda scene: scene.lake.create_tag("release")),
    Operation("main rolled back", Scene.roll_back, Fate.FAILS),
    Operation("main replaced", Scene.replace_main, Fate.FAILS),
    Operation("expiry", lambda scene: scene.lake.expire()),
    Operation("expiry after appends", Scene.expire_after_appends, Fate.FAILS),
    Operation("own rewrite", lambda scene: scene.optimize(Kind.REWRITE, OptimizingType.FULL, force=True), Fate.FAILS),
    Operation(
        "own conversion",
        lambda scene: scene.optimize(Kind.CONVERT, OptimizingType.MINOR),
        Fate.CARRIED_BUT_CONVERSIONS_FAIL,
        deletes=True,
    ),
)


#: Deletes that come and are removed again in one partition, while what is planned in the other stays as it is.
OPERATIONS += (
    Operation(
        "own rewrite of a after an upsert",
        lambda scene: scene.upsert_and_optimize_a(Kind.REWRITE, OptimizingType.FULL, force=True),
        Fate.LOSES_A,
        deletes=True,
        partitions=True,
    ),
    Operation(
        "own conversion of a after an upsert",
        lambda scene: scene.upsert_and_optimize_a(Kind.CONVERT, OptimizingType.MINOR),
        Fate.CARRIED_BUT_CONVERSIONS_LOSE_A,
        deletes=True,
        partitions=True,
    ),
)


def prepared(catalog: SqlCatalog, version: int, *, partitioned: bool, kind: Kind) -> Lake:
    """A table with the inputs, deletes of both kinds over them where the format has them, and files beside them."""
    lake = Lake.created(catalog, version, partitioned=partitioned, properties=PROPERTIES[kind])
    lake.append([row(id_, part) for id_, part in _both(1, 2, 3)])
    lake.append([row(id_, part) for id_, part in _both(4, 5, 6)])
    if lake.version == 1:
        lake.overwrite(ids_are(1, 101), {"value": "new"})
        lake.overwrite(ids_are(2, 102))
    else:
        lake.upsert([row(1, "a", "new"), row(101, "b", "new")])
        lake.delete_positions(ids_are(2, 102), per_file=True)
    # Beside fragments the others have to be large; beside segments they only need to be without deletes.
    filling = "".join(f"{at * 2654435761 % 2**32:08x}" for at in range(2500)) if kind is Kind.REWRITE else "v"
    lake.append([row(201, "a", filling), row(301, "b", filling)])
    return lake


def _both(*ids: int) -> list[tuple[int, str]]:
    return [*((id_, "a") for id_ in ids), *((id_ + 100, "b") for id_ in ids)]
