"""Random tables with every kind of delete, specs, sequence numbers and null partitions."""

import random
from dataclasses import replace

from amoro_core.model.clustering import SUFFIX
from amoro_core.model.files import DELETE_PATH_FIELD_ID, ColumnMetrics, DataFile, DeleteFile, DeleteKind, Partition
from amoro_core.model.optimizing_config import OptimizingConfig, parse_config
from tests.unit.planning.builders import by_bounds, data, equality_delete, own_delete, position_delete

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
