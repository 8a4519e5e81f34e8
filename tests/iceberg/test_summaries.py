"""Summaries of snapshots, which hold whatever their writers put there."""

import json
from pathlib import Path

import pytest
from pyiceberg.table.metadata import TableMetadataUtil

from amoro_core.iceberg.metadata import snapshot_facts
from tests.engine.builders import SCHEMA, row
from tests.engine.parquet_rows import local_path
from tests.engine.writer import append, make_catalog, make_table
from tests.iceberg.rewriting import optimized, rewritten


def test_values_that_are_no_texts_are_shown_as_texts_and_nothing_is_no_value(tmp_path: Path) -> None:
    catalog = make_catalog(tmp_path)
    table = make_table(catalog, "db.t", SCHEMA)
    append(table, [row(1)])
    metadata = json.loads(table.refresh().metadata.model_dump_json())
    metadata["snapshots"][0]["summary"] = {"operation": "append", "a": 7, "b": None, "c": [1], "d": "x"}
    (facts,) = snapshot_facts(TableMetadataUtil.parse_raw(json.dumps(metadata)))
    assert facts.summary == {"a": "7", "c": "[1]", "d": "x"}
    catalog.close()


@pytest.mark.parametrize("total", ["²", "many", "-1", "9" * 19, "9" * 5_000])
def test_a_total_that_is_no_count_is_not_carried_on(tmp_path: Path, total: str) -> None:
    catalog = make_catalog(tmp_path)
    table = make_table(catalog, "db.t", SCHEMA)
    append(table, [row(1)])
    append(table, [row(2)])
    path = Path(local_path(table.refresh().metadata_location))
    metadata = json.loads(path.read_text())
    for snapshot in metadata["snapshots"]:
        snapshot["summary"] |= {"total-records": total, "total-data-files": "2"}
    path.write_text(json.dumps(metadata))
    table.refresh()
    optimized(table, rewritten(table))
    head = table.refresh().current_snapshot()
    assert head is not None
    assert head.summary is not None
    assert (head.summary["total-data-files"], "total-records" in head.summary.additional_properties) == ("1", False)
    catalog.close()
