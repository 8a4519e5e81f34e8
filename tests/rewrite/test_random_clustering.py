"""Random tables with deletes of all kinds, clustered by random layouts: the slow reader's rows, in Iceberg's order.

The number in a test's name is the seed of its table.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from functools import cmp_to_key
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField

from amoro_core.model.clustering import ClusterInput, ClusterOutput, Layout, LayoutKey, Strategy
from amoro_core.model.processes import CatalogConfig
from amoro_optimizer.cluster.engine import cluster
from amoro_optimizer.cluster.sort_keys import transform_parts
from tests.engine.parquet_rows import read_parquet
from tests.rewrite.checking import ATTEMPT, ENGINE, access_to, assert_true_metrics, at, leaves, read_rows
from tests.rewrite.random_tables import random_work
from tests.tiers import seeds
from tests.unit.cluster.builders import compared, transformed

TRANSFORMS = ("identity", "identity", "bucket[3]", "truncate[2]", "year", "month", "day", "hour")
GROUP = "0123456789ab"


@pytest.mark.parametrize("seed", seeds(5, 12))
def test_a_random_table_is_clustered_with_its_rows_in_order(
    warehouse: tuple[Catalog, CatalogConfig], seed: int, tmp_path: Path
) -> None:
    made, live, works = random_work(*warehouse, seed)
    for work in works:
        schema = Schema.model_validate_json(work.table.schema_json)
        layout = _layout(made.chance, schema)
        if layout is None:
            continue
        print(layout)
        rewritten = replace(work, rewritten=(*work.rewritten, *work.converted), converted=())
        group = ClusterInput(rewritten, layout, GROUP, seed=seed)
        outputs = [_clustered(group, limit, tmp_path) for limit in (512 << 20, 1)]
        expected = [row.row for file in rewritten.rewritten for row in live.get(file.data.path, ())]
        written = [[read_rows(file, schema) for file in output.rewrite.data_files] for output in outputs]
        assert written[0] == written[1]
        assert outputs[0].cuts == outputs[1].cuts
        assert Counter(map(repr, chain.from_iterable(written[0]))) == Counter(map(repr, expected))
        assert len(written[0]) == min(work.output_count, len(expected))
        if layout.strategy is Strategy.LINEAR:
            _assert_in_order(outputs[0], schema, layout)
        told = _told_properties(made.table.properties, schema, layout)
        for file in outputs[0].rewrite.data_files:
            assert_true_metrics(file, schema, told)


def _clustered(group: ClusterInput, limit: int, root: Path) -> ClusterOutput:
    access = access_to(group.rewrite.table)
    return cluster(group, access, ATTEMPT, memory_limit_bytes=limit, spill_root=str(root), **ENGINE)


def _layout(chance: random.Random, schema: Schema) -> Layout | None:
    """Of columns that have an order; None where there are none."""
    columns = [field for _, field, is_repeated in leaves(schema.fields) if not is_repeated]
    if not columns:
        return None
    chosen = chance.sample(columns, chance.randint(1, min(4, len(columns))))
    if chance.random() < 0.4:
        return Layout(
            chance.choice([Strategy.HILBERT, Strategy.ZORDER]),
            tuple(LayoutKey(field.field_id, "identity", *chance.choices([False, True], k=2)) for field in chosen),
        )
    keys = []
    for field in chosen:
        known = [name for name in TRANSFORMS if _takes(field, name)]
        keys.append(LayoutKey(field.field_id, chance.choice(known), *chance.choices([False, True], k=2)))
    return Layout(Strategy.LINEAR, tuple(keys))


def _takes(field: NestedField, transform: str) -> bool:
    try:
        transform_parts(transform, field.field_type)
    except Exception:
        return False
    # The least numbers wrap around, as in Java and not in Python.
    return transform != "truncate[2]" or str(field.field_type) not in ("int", "long")


def _assert_in_order(output: ClusterOutput, schema: Schema, layout: Layout) -> None:
    """Fail unless each row is at most as great as the next, in all files, compared one by one."""
    places = {field.field_id: (path, field) for path, field, _ in leaves(schema.fields)}
    rows = []
    for file in output.rewrite.data_files:
        for record in read_parquet(file.path, None, {}).records(schema.as_struct()):
            values = []
            for key in layout.keys:
                path, field = places[key.field_id]
                value = at(record, path)
                values.append(None if value is None else transformed(field.field_type, key, value))
            rows.append(values)

    def order(one: list[Any], other: list[Any]) -> int:
        signs = (compared(key, a, b) for key, a, b in zip(layout.keys, one, other, strict=True))
        return next((sign for sign in signs if sign), 0)

    assert all(order(one, other) <= 0 for one, other in pairwise(rows))
    assert rows == sorted(rows, key=cmp_to_key(order))


def _told_properties(properties: Any, schema: Schema, layout: Layout) -> dict[str, str]:
    """Those by which the columns of the layout have bounds, whatever the table says."""
    told = dict(properties)
    for key in layout.keys:
        name = f"write.metadata.metrics.column.{schema.find_column_name(key.field_id)}"
        mode = told.get(name, told.get("write.metadata.metrics.default", "truncate(64)"))
        told[name] = "truncate(64)" if mode in ("none", "counts") else mode
    return told
