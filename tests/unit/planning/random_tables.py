"""Random tables with every kind of delete, and random histories of their manifests, by difference and file by file."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any

from amoro_core.iceberg.manifest.manifest_cache import NO_MANIFESTS, TableManifests
from amoro_core.model.clustering import SUFFIX
from amoro_core.model.files import (
    DELETE_PATH_FIELD_ID,
    ColumnMetrics,
    DataFile,
    DeleteFile,
    DeleteKind,
    Partition,
    TableScan,
)
from amoro_core.model.optimizing_config import OptimizingConfig, parse_config
from amoro_core.model.plans import PartitionKey
from amoro_core.model.tables import LastOptimized, OptimizingType
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.planner import plan
from amoro_core.scan import matching as in_columns
from amoro_core.scan.columns import ColumnPart, Gathering
from amoro_core.validation import matching as one_by_one
from tests.unit.planning.builders import NOW, by_bounds, data, equality_delete, own_delete, position_delete
from tests.unit.test_matching import said_of

#: Specs without fields, or with void ones only, whose equality deletes hold everywhere.
UNPARTITIONED = frozenset((0, 3))
PLACES: tuple[tuple[int, Partition], ...] = (
    (0, ()),
    (1, (b"a",)),
    (1, (b"b",)),
    (1, (None,)),
    (2, (b"a",)),
    (3, (None,)),
)
SPELLINGS = ("{}", "{}", "{}", "file:{}", "file://{}", "file:///{}", "{}/", "/.{}")
SIZES = (1, 10, 16, 17, 50, 75, 90, 100, 128, 130, 260)


def random_files(chance: random.Random) -> tuple[list[DataFile], list[DeleteFile]]:
    """Up to thirty data files in some of the places, and up to twelve deletes, some of which dangle."""
    places = chance.sample(PLACES, chance.randint(1, 4))
    files = []
    for at in range(chance.choice([0, 1, 3, 8, 30])):
        spec_id, partition = chance.choice(places)
        file = data(
            f"f{at:02}{SUFFIX if at % 3 else ''}",
            chance.choice(SIZES) * chance.choice([1000, 1024 * 1024]),
            records=chance.choice([0, 5, 1000]),
            sequence_number=chance.randint(0, 5),
            partition=partition,
            spec_id=spec_id,
        )
        files.append(replace(file, path=chance.choice(SPELLINGS).format(file.path)))
    of = [chance.choice(files) if files else data("gone", 1) for _ in range(chance.choice([0, 1, 4, 12]))]
    return files, [_delete(chance, at, file) for at, file in enumerate(of)]


def _delete(chance: random.Random, at: int, of: DataFile) -> DeleteFile:
    number, records = chance.randint(0, 6), chance.choice([0, 1, 3, 200, 900])
    spec_id, partition = chance.choice([(of.spec_id, of.partition)] * 3 + list(PLACES))
    match chance.randint(0, 8):
        case 0 | 1:
            return equality_delete(f"e{at}", sequence_number=number, partition=partition, spec_id=spec_id)
        case 2:
            named = position_delete(f"p{at}", of, records=records, sequence_number=number)
            named = replace(named, referenced_data_file=chance.choice(SPELLINGS).format(of.path))
            # One that lies in another place than its file is refused.
            return replace(named, spec_id=spec_id, partition=partition) if chance.random() < 0.2 else named
        case 3:
            return by_bounds(position_delete(f"b{at}", of, records=records, sequence_number=number))
        case 4:
            named = position_delete(f"v{at // 2}", of, records=records, sequence_number=number)
            return replace(named, content_offset=4 + 40 * at, content_size_bytes=40)
        case 5:
            made = own_delete(of, records=records, sequence_number=number)
            return replace(made, path=made.path.replace("-1-1-", f"-{at}-1-"))
        case 6:  # as Amoro names what it converted
            made = position_delete(of.path.rpartition("/")[2].removesuffix(".parquet") + f"-delete-{at}", of)
            return replace(made, sequence_number=number, referenced_data_file=chance.choice([None, of.path]))
        case 7:
            free = position_delete(f"s{at}", None, records=records, sequence_number=number)
            return replace(free, spec_id=spec_id, partition=partition)
        case _:
            return _bounded(chance, at, of, number)


def _bounded(chance: random.Random, at: int, of: DataFile, number: int) -> DeleteFile:
    """One that may name several files, whose bounds leave some of them out, or are shortened."""
    low, high = sorted(
        (chance.choice(["/", of.path, "/t/data/f05", "file:/t"]), chance.choice([of.path, "/t/data/f2", "z"]))
    )
    bounds = ColumnMetrics(
        lower_bounds={DELETE_PATH_FIELD_ID: low.encode()[: chance.choice([3, 12, 99])]},
        upper_bounds={DELETE_PATH_FIELD_ID: high.encode() + chance.choice([b"", b"\xff"])},
    )
    free = position_delete(f"w{at}", None, sequence_number=number)
    return replace(free, spec_id=of.spec_id, partition=of.partition, metrics=bounds, kind=DeleteKind.POSITION)


def random_config(chance: random.Random) -> OptimizingConfig:
    """Triggers that fire often."""
    properties = {
        "self-optimizing.target-size": chance.choice(["128000", "134217728"]),
        "self-optimizing.fragment-ratio": chance.choice(["8", "4"]),
        "self-optimizing.min-target-size-ratio": chance.choice(["0.75", "0.5", "1.0"]),
        "self-optimizing.minor.trigger.file-count": chance.choice(["2", "4", "12"]),
        "self-optimizing.minor.trigger.interval": chance.choice(["-1", "0", "3600000"]),
        "self-optimizing.major.trigger.duplicate-ratio": chance.choice(["0.0", "0.1", "0.5"]),
        "self-optimizing.full.trigger.interval": chance.choice(["-1", "-1", "0", "3600000"]),
        "self-optimizing.full.rewrite-all-files": chance.choice(["true", "false"]),
        "self-optimizing.evaluation.fallback-interval": chance.choice(["-1", "3600000"]),
        "self-optimizing.max-file-count": chance.choice(["3", "10000"]),
    }
    return parse_config(properties)


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
