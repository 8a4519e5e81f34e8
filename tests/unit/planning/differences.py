"""Random histories of a table's manifests, looked at by difference and file by file."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from amoro_core.iceberg.manifest.manifest_cache import NO_MANIFESTS, TableManifests
from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.model.plans import PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.planner import plan
from amoro_core.scan import matching as in_columns
from amoro_core.scan.columns import ColumnPart, Gathering
from amoro_core.validation import matching as one_by_one
from tests.unit.planning.builders import NOW
from tests.unit.planning.random_tables import PLACES, UNPARTITIONED, random_config, random_files
from tests.unit.test_matching import said_of

Manifests = dict[int, tuple[Any, ...]]  # by number, each of data files or of delete files
TICK = timedelta(milliseconds=1)


def part_of(files: tuple[DataFile, ...]) -> ColumnPart:
    """The files of a manifest in columns."""
    gathering = Gathering()
    for file in files:
        gathering.add(file)
    return gathering.end_part()


@dataclass
class History:
    """A table whose manifests change by chance."""

    chance: random.Random
    seen: Counter[str] = field(default_factory=Counter)

    def __post_init__(self) -> None:
        self.files, self.deletes = random_files(self.chance)
        self.written = 0
        self.data: Manifests = {}
        self.applied: Manifests = {}
        self.states: list[tuple[Manifests, Manifests]] = []
        self.parts: dict[int, ColumnPart] = {}
        self.known: TableManifests = NO_MANIFESTS
        self.config = random_config(self.chance)
        self.last: dict[PartitionKey, LastOptimized] = {}
        self.now = NOW
        for at in range(3):
            self.write(self.data, self.files[at::4])
        self.write(self.applied, self.deletes[::2])

    def write(self, manifests: Manifests, files: list[Any]) -> None:
        """A new manifest of these files, if there are any."""
        if files:
            self.written += 1
            manifests[self.written] = tuple(files)

    def commit(self) -> None:
        """Another writer's change, or that of one who brings an earlier state back."""
        chance = self.chance
        self.data, self.applied = dict(self.data), dict(self.applied)
        which, pool = chance.choice([(self.data, self.files), (self.data, self.files), (self.applied, self.deletes)])
        live = [file for files in which.values() for file in files]
        match chance.randrange(6):
            case 0 | 1 if fresh := [one for one in pool if one not in live]:  # an append, or new deletes
                self.write(which, chance.sample(fresh, min(len(fresh), chance.randint(1, 6))))
            case 2 if which:  # files go, their manifest is written anew
                at = chance.choice(list(which))
                self.write(which, [one for one in which.pop(at) if chance.random() < 0.7])
            case 3 if which:  # manifests are merged
                some = chance.sample(list(which), chance.randint(1, len(which)))
                self.write(which, [one for at in some for one in which.pop(at)])
            case 4 if which:  # as an expiry by a filter: a whole manifest goes
                which.pop(chance.choice(list(which)))
            case 5 if self.states:  # a rollback, or another branch
                self.data, self.applied = map(dict, chance.choice(self.states))
        self.states.append((self.data, self.applied))

    def pass_time(self) -> None:
        """Time passes up to the end of an interval, or beyond; at times terms change, or partitions were optimized."""
        chance = self.chance
        ends = [
            at + timedelta(hours=1)
            for one in self.last.values()
            for at in (one.minor, one.major, one.full)
            if at is not None
        ]
        if chance.random() < 0.5:
            end = chance.choice([self.now, *ends])
            self.now = end + chance.choice([-TICK, timedelta(0), TICK, timedelta(minutes=7), timedelta(hours=-1)])
        if chance.random() < 0.15:
            self.config = random_config(chance)
        if chance.random() < 0.3:
            key = PartitionKey(*chance.choice(PLACES))
            self.last = {**self.last, key: LastOptimized(*(chance.choice([None, self.now]) for _ in range(3)))}

    def look(self) -> None:
        """By difference, all is as it is file by file."""
        asked = self._asked()
        files = [file for some in self.data.values() for file in some]
        deletes = [file for some in self.applied.values() for file in some]
        rows, dangling = said_of(one_by_one.match, files, deletes, UNPARTITIONED)
        found = self._by_difference()
        if not isinstance(rows, tuple):
            assert found == (rows, dangling)
            self.seen["refused"] += 1
            return
        live, loose = found
        assert (tuple(live), loose) == (rows, dangling)
        plain = self._decided(TableScan(7, 9, rows, dangling), asked)
        assert self._decided(TableScan(7, 9, live, loose), asked) == plain
        self.seen[str(plain[0].type)] += 1

    def _asked(self) -> dict[str, Any]:
        chance = self.chance
        asked: dict[str, Any] = {"config": self.config, "last": self.last, "now": self.now}
        if chance.random() < 0.15:
            asked |= {"requested": chance.choice([*OptimizingType]), "force": chance.random() < 0.3}
        if chance.random() < 0.1:
            asked["selects"] = lambda file: file.sequence_number > 2
        if chance.random() < 0.1:
            asked["chooses"] = lambda key: key.spec_id != 1
        return asked

    def _by_difference(self) -> tuple[Any, Any]:
        for number, files in self.data.items():
            self.parts.setdefault(number, part_of(files))
        data = {(number,): self.parts[number] for number in self.data}
        deletes: dict[tuple[object, ...], tuple[DeleteFile, ...]] = {
            (number,): some for number, some in self.applied.items()
        }
        manifests = TableManifests(data, deletes, UNPARTITIONED)
        if self.known.matched is not None and self.known.has_same_manifests(manifests):
            self.seen["unchanged"] += 1
            return self.known.matched
        gathering = Gathering()
        for part in data.values():
            gathering.take(part)
        every = [file for some in deletes.values() for file in some]
        matched = said_of(in_columns.match, gathering.columns(), every, UNPARTITIONED)
        if isinstance(matched[0], str):
            return matched
        self.known = replace(manifests, matched=matched)
        return matched

    @staticmethod
    def _decided(scan: TableScan, asked: dict[str, Any]) -> tuple[Any, ...]:
        found = evaluate(scan, **asked)
        config: OptimizingConfig = asked["config"]
        made = plan(scan, found, config, threads=1)
        return found, [one.work for one in found.partitions], found.basis, found.digest, made


def lived(seed: int, commits: int = 12) -> Counter[str]:
    """What a random history of so many commits has shown."""
    history = History(random.Random(seed))
    for _ in range(commits):
        history.commit()
        history.pass_time()
        try:
            history.look()
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {error}") from error
    return history.seen
