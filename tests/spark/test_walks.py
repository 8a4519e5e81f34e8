"""Committers of Flink and Kafka Connect find what they committed last, by Iceberg's own API, after an expiry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.engine.aging import aged
from tests.engine.builders import SCHEMA, row
from tests.engine.writer import append, make_table

from .catalogs import SharedCatalog
from .java_writer import load_java_table
from .test_expiring import expire, ids, selected

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

FLINK = {
    "flink.job-id": "a1b2",
    "flink.operator-id": "sink",
    "flink.max-committed-checkpoint-id": "17",
}
KAFKA = {"kafka.connect.offsets.control.workers": '{"0":42}', "kafka.connect.valid-through-ts": "2026-01-01"}


def walked(java: Any, found: Callable[[Any], str | None]) -> str | None:
    """What the first snapshot says that has it, from main's head through the parents that the table still has."""
    snapshot = java.snapshot("main")
    while snapshot is not None:
        if (told := found(snapshot.summary())) is not None:
            return told
        parent = snapshot.parentId()
        snapshot = None if parent is None else java.snapshot(parent)
    return None


def of_flink(summary: Any) -> str | None:
    """As Flink's committer: the checkpoint of its job, of its operator or of none."""
    if summary.get("flink.job-id") != "a1b2" or summary.get("flink.operator-id") not in (None, "sink"):
        return None
    told: str | None = summary.get("flink.max-committed-checkpoint-id")
    return told


def of_kafka(summary: Any) -> str | None:
    """As Kafka Connect's coordinator: the offsets of its control topic and group."""
    told: str | None = summary.get("kafka.connect.offsets.control.workers")
    return told


@pytest.mark.parametrize(
    ("retention", "expected"), [("7d", ("17", '{"0":42}')), ("0d", (None, None))], ids=["with chains", "without"]
)
def test_committers_find_their_snapshots_by_walking_back_from_the_head(
    spark: SparkSession, catalog: SharedCatalog, retention: str, expected: tuple[str | None, str | None]
) -> None:
    """amoro #930, iceberg #5846: a committer that finds nothing commits its last files again."""
    properties = {"snapshot.keep.duration": "1h", "snapshot.keep.flink.checkpoint-retention": retention}
    table = make_table(catalog.pyiceberg, "db.walked", SCHEMA, properties=properties)
    for number, summary in enumerate(({}, KAFKA, {}, FLINK, {}, {}, {})):
        append(table, [row(number)], summary=summary)
    aged(table, {one: 6.5 - at for at, one in enumerate(ids(table))})
    first, *_, head = ids(table)
    gone = set(selected(table).go)
    assert first in gone
    assert head not in gone
    expire(table, *gone)
    java = load_java_table(spark, catalog.name, "db.walked").table
    assert (walked(java, of_flink), walked(java, of_kafka)) == expected
