"""Looks at real tables after random commits: by what is known of their manifests, and anew."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

from pyiceberg.io import FileIO
from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import Table

from amoro_core.errors import TableRefused
from amoro_core.iceberg.manifest.columns import read_columns
from amoro_core.iceberg.manifest.manifest_cache import TableManifestCache
from amoro_core.iceberg.manifest.reading import (
    Manifest,
    PartitionTypes,
    is_unpartitioned,
    partition_types,
    read_list,
    read_manifest,
    to_data_file,
    to_delete_file,
)
from amoro_core.iceberg.scan import DEFAULT_SOURCES, ManifestSources, scan
from amoro_core.model.files import DataFile, DeleteFile, TableScan
from amoro_core.model.optimizing_config import OptimizingConfig
from amoro_core.planning.optimizing.evaluator import evaluate
from amoro_core.planning.optimizing.planner import plan
from amoro_core.scan.columns import ColumnPart
from amoro_core.validation.matching import match
from tests.iceberg.histories import BRANCH, History
from tests.model.lake import Lake, row
from tests.unit.planning.builders import NOW
from tests.unit.planning.random_tables import random_config

ROOM = 2**30


class Reader:
    """Counts the manifests that are read, by their content."""

    def __init__(self) -> None:
        self.read: list[ManifestContent] = []

    def __call__(self, io: FileIO, listed: ManifestFile) -> Manifest:
        self.read.append(listed.content)
        return read_manifest(io, listed)

    def columns(self, io: FileIO, listed: ManifestFile, types: PartitionTypes) -> ColumnPart | None:
        """A data manifest, read at once as a scan of a table reads it."""
        self.read.append(listed.content)
        return read_columns(io, listed, types)


def said(found: TableScan | None) -> object:
    """All that a scan says, file by file."""
    return found and (
        found.snapshot_id,
        found.sequence_number,
        tuple(found.files),
        found.dangling,
        found.unpartitioned_specs,
    )


Homes = dict[str, frozenset[str]]  # the live files of each manifest


def one_by_one(table: Table, snapshot_id: int) -> tuple[TableScan, Homes]:
    """The snapshot's live files, from every entry of every manifest, matched file by file; and which manifests hold
    them."""
    metadata, snapshot = table.metadata, table.metadata.snapshot_by_id(snapshot_id)
    assert snapshot is not None
    data: list[DataFile] = []
    deletes: list[DeleteFile] = []
    homes: Homes = {}
    for listed in read_list(table.io, snapshot.manifest_list):
        types = partition_types(metadata, metadata.specs()[listed.partition_spec_id])
        live = read_manifest(table.io, listed).live
        if listed.content == ManifestContent.DATA:
            data += [to_data_file(one, types) for one in live]
        else:
            deletes += [to_delete_file(one, types) for one in live]
        homes[listed.manifest_path] = frozenset(one.data_file.file_path for one in live)
    unpartitioned = frozenset(number for number, spec in metadata.specs().items() if is_unpartitioned(spec))
    files, dangling = match(data, deletes, unpartitioned)
    number, version = snapshot.sequence_number or 0, metadata.format_version
    return TableScan(snapshot_id, number, files, dangling, unpartitioned, version), homes


def is_merged(before: Homes, now: Homes) -> bool:
    """Whether a new manifest has files of several that are gone."""
    gone = [files for path, files in before.items() if path not in now]
    fresh = [files for path, files in now.items() if path not in before]
    return any(sum(not files.isdisjoint(other) for other in gone) > 1 for files in fresh)


def watched(lake: Lake, chance: random.Random, commits: int) -> Counter[str]:
    """What looks after each of so many random commits have shown; any difference is an AssertionError."""
    tables = TableManifestCache(ROOM, 0)
    config, history, homes = random_config(chance), History(lake, chance), Homes()
    lake.append([row(at, "ab"[at % 2]) for at in range(6)])
    for _ in range(commits):
        history.commit(ManifestSources(tables, read_columns))
        if chance.random() < 0.2:  # a restart
            tables = TableManifestCache(ROOM, 0)
        if chance.random() < 0.2:
            config = random_config(chance)
        refs = lake.table.refresh().metadata.refs
        if BRANCH in refs and chance.random() < 0.3:
            _looked(lake, refs[BRANCH].snapshot_id, ManifestSources(tables, read_columns), config, chance, history.seen)
            history.seen["looks at the branch"] += 1
        before = homes
        homes = _looked(lake, lake.head, ManifestSources(tables, read_columns), config, chance, history.seen) or homes
        history.seen["merged"] += is_merged(before, homes)
    lake.require()
    return history.seen


def _looked(
    lake: Lake, head: int, sources: ManifestSources, config: OptimizingConfig, chance: random.Random, seen: Counter[str]
) -> Homes | None:
    """A look anew, one by what is known, and another one; where the files are, unless the table is refused."""
    plain, homes = _seen(lake, head, DEFAULT_SOURCES, Reader(), config), None
    if isinstance(plain, str):
        seen["refused"] += 1
    else:
        found, homes = one_by_one(lake.table, head)
        assert _decided(found, config) == plain
    reader, again = (Reader() for _ in range(2))
    columns = None if chance.random() < 0.3 else reader.columns
    first = replace(sources, columns=columns)
    assert _seen(lake, head, first, reader, config) == plain
    assert _seen(lake, head, replace(first, columns=again.columns), again, config) == plain
    assert again.read == [] or homes is None
    seen["read"] += len(reader.read)
    seen["known"] += len(again.read) < len(reader.read)
    return homes


def _seen(lake: Lake, head: int, sources: ManifestSources, read: Reader, config: OptimizingConfig) -> Any:
    """The scan, verdict and plan, or the refusal."""
    table = lake.table
    try:
        found = scan(table, [table.location()], read, head, sources=sources)
    except TableRefused as refusal:
        return refusal.message
    assert found is not None
    return _decided(found, config)


def _decided(found: TableScan, config: OptimizingConfig) -> Any:
    verdict = evaluate(found, config, {}, NOW)
    work = [one.work for one in verdict.partitions]
    return said(found), verdict, work, verdict.digest, plan(found, verdict, config, threads=1)
