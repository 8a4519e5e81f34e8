"""The files that a table reaches, by the tests' own reader of Avro files."""

from __future__ import annotations

from collections.abc import Iterable

from pyiceberg.table.metadata import TableMetadata

from tests.engine.oracle import DELETED, read_avro


def reached(metadata: TableMetadata, snapshot_ids: Iterable[int] | None = None) -> set[str]:
    """Manifest lists, manifests, live data and delete files of the snapshots, all by default, and their statistics."""
    ids = {one.snapshot_id for one in metadata.snapshots} if snapshot_ids is None else set(snapshot_ids)
    found = {one.manifest_list for one in metadata.snapshots if one.snapshot_id in ids}
    manifests = {one["manifest_path"] for path in found for one in read_avro(path)[1]}
    entries = (entry for path in manifests for entry in read_avro(path)[1])
    files = {entry["data_file"]["file_path"] for entry in entries if entry["status"] != DELETED}
    every = (*metadata.statistics, *metadata.partition_statistics)
    return found | manifests | files | {one.statistics_path for one in every if one.snapshot_id in ids}
