"""Looks at real tables after random commits: by what is known of their manifests, and anew."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile

from amoro_core.errors import TableRefused
from amoro_core.iceberg.column_cache import ColumnCache
from amoro_core.iceberg.column_reading import ColumnReader, Listed, read_here
from amoro_core.iceberg.known_manifests import KnownTables
from amoro_core.iceberg.manifests import Manifest, read_manifest
from amoro_core.iceberg.scan import NOTHING_KNOWN, Known, scan
from amoro_core.live.columns import ColumnPart
from amoro_core.model.config import OptimizingConfig
from amoro_core.model.files import TableScan
from amoro_core.planning.evaluating import evaluate
from amoro_core.planning.planner import plan
from tests.model.lake import Lake, row
from tests.unit.planning.builders import NOW
from tests.unit.planning.random_tables import random_config

ROOM = 2**30


class Reader:
    """Counts the manifests that are read, by their content."""

    def __init__(self, read_at_once: ColumnReader = read_here) -> None:
        self.read: list[ManifestContent] = []
        self._read_at_once = read_at_once

    def __call__(self, io: FileIO, listed: ManifestFile) -> Manifest:
        self.read.append(listed.content)
        return read_manifest(io, listed)

    def columns(self, io: FileIO, manifests: Sequence[tuple[ManifestFile, Listed]]) -> Iterable[ColumnPart | None]:
        """Data manifests, read at once as a scan of a table reads them."""
        self.read += [listed.content for listed, _ in manifests]
        return self._read_at_once(io, manifests)


def said(found: TableScan | None) -> object:
    """All that a scan says, file by file."""
    return found and (
        found.snapshot_id,
        found.sequence_number,
        tuple(found.files),
        found.dangling,
        found.unpartitioned_specs,
    )


def watched(
    lake: Lake, directory: Path, chance: random.Random, commits: int, read: ColumnReader = read_here
) -> Counter[str]:
    """What looks after each of so many random commits have shown; any difference is an AssertionError."""
    seen: Counter[str] = Counter()
    cache, tables = ColumnCache(directory, ROOM, least_files=1), KnownTables(ROOM, 0)
    config = random_config(chance)
    lake.append([row(at, "ab"[at % 2]) for at in range(6)])
    for number in range(commits):
        _change(lake, chance, number)
        if chance.random() < 0.2:  # a restart
            tables = KnownTables(ROOM, 0)
        if chance.random() < 0.2:
            config = random_config(chance)
        plain, reader, trusts = _seen(lake, NOTHING_KNOWN, Reader(), config), Reader(read), chance.random() < 0.7
        columns = None if chance.random() < 0.3 else reader.columns
        assert _seen(lake, Known(cache, tables, trusts, columns), reader, config) == plain
        again = Reader(read)
        assert _seen(lake, Known(cache, tables, trusts, again.columns), again, config) == plain
        assert again.read == [] or isinstance(plain, str)
        seen += Counter(known=len(again.read) < len(reader.read), read=len(reader.read), refused=isinstance(plain, str))
        for path in chance.sample(files := _files(directory), k=min(2, len(files))):
            chance.choice(BREAKS)(path, chance)
            seen["broken"] += 1
    lake.require()
    return seen


def _seen(lake: Lake, known: Known, read: Reader, config: OptimizingConfig) -> Any:
    """The scan, verdict and plan, or the refusal."""
    table = lake.table.refresh()
    try:
        found = scan(table, [table.location()], read, known=known)
    except TableRefused as refusal:
        return refusal.message
    verdict = evaluate(found, config, {}, NOW)
    work = [one.work for one in verdict.partitions]
    made = None if found is None else plan(found, verdict, config, threads=1)
    return said(found), verdict, work, verdict.digest, made


def _change(lake: Lake, chance: random.Random, number: int) -> None:
    """A commit of any kind; some change nothing."""
    keys = [one.record["id"] for one in lake.placed()]
    some = chance.sample(keys, k=min(2, len(keys)))
    part = chance.choice("abc")
    match chance.randrange(11):
        case 0 | 1:
            lake.append([row(100 + number, part), row(200 + number, "a")], files=chance.randint(1, 2))
        case 2:
            lake.upsert([row(chance.randrange(8), part, f"new {number}")])
        case 3:
            lake.delete_equal([row(chance.randrange(8), part)], everywhere=chance.random() < 0.5)
        case 4:
            lake.delete_positions(lambda one: one["id"] in some, per_file=chance.random() < 0.5)
        case 5:
            lake.overwrite(lambda one: one["id"] in some, {"value": f"over {number}"})
        case 6 if some:
            lake.remove_file(lambda one: one["id"] == some[0])
        case 7:
            (lake.partition_by_nothing if lake.table.refresh().spec().fields else lake.partition_by_part)()
        case 8:
            lake.expire()
        case 9:
            lake.set_main(chance.choice(lake.ancestors()))
        case _:
            if "branch" not in lake.table.refresh().metadata.refs:
                lake.create_branch("branch")
            lake.append([row(300 + number, part)], branch="branch")


def _files(directory: Path) -> list[Path]:
    return sorted(directory.iterdir()) if directory.exists() else []


def _cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size or 1))  # it may be cut already


def _flip(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _remove(path: Path, chance: random.Random) -> None:
    path.unlink()


BREAKS: tuple[Callable[[Path, random.Random], None], ...] = (_cut, _flip, _remove)
