"""Deletes by position that come while files are clustered, whose rows stand in another order in the outputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.formats.iceberg import IcebergTable
from amoro_core.model.clustering import CLUSTER
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.rewrite import PositionMap
from amoro_core.model.work import WorkResult
from amoro_core.protocol.cluster_codec import decode_cluster_input, decode_cluster_output, encode_cluster_output
from amoro_core.services.optimizing import ScheduledTask
from tests.engine import oracle, writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.clustered import Grouping, cluster_with, clusterer, plan_groups_with, unsorted
from tests.services.world import World

SEND = IcebergTable.send
GIVE_WAY = {"self-optimizing.cluster.update-strategy": "give-way"}


@pytest.fixture
def world(tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """A table of four files of a row each in one partition, of which two are in a group."""
    plan_groups_with(monkeypatch, Grouping())
    home = tmp_path / "home"
    home.mkdir()
    made = World(home, catalog)
    table = writer.make_table(made.catalog, "db.t", SCHEMA, BY_PART, properties=GIVE_WAY)
    for number in range(4):
        writer.append(table, [row(number, "a")])
    yield made
    made.close()


def taken(world: World, optimizer: str) -> list[ScheduledTask]:
    """Both tasks, acknowledged."""
    handed = world.poll(optimizer, 1, 2)
    assert None not in world.optimizing.ack(optimizer, [one.attempt for one in handed])
    return handed


def ids_of(world: World, handed: ScheduledTask) -> list[int]:
    """The ids of the rows of a task's files."""
    paths = {file.data.path for file in decode_cluster_input(handed.work.payload).rewrite.rewritten}
    live = oracle.live_rows_with_positions(world.catalog.load_table("db.t"))
    return sorted(one.record["id"] for one in live if one.path in paths)


def live_rows(world: World) -> Counter[object]:
    return oracle.live_rows(world.catalog.load_table("db.t"))


def test_what_a_delete_says_of_one_group_tells_nothing_of_the_next(world: World) -> None:
    """The delete is read for the commit of the first group, whose files it does not name; it names one of the second,
    which is ready by the end of that commit."""
    process_id, optimizer = cluster_with(world, Grouping()), clusterer(world)
    first, second = taken(world, optimizer)
    wanted = ids_of(world, second)[0]
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == wanted, with_bounds=False)
    before = live_rows(world)
    assert world.optimizing.complete(optimizer, first.attempt, unsorted(first))

    def send(self: IcebergTable, payload: bytes) -> None:
        if world.tasks(process_id)[1].status is not TaskStatus.SUCCESS:
            assert world.optimizing.complete(optimizer, second.attempt, unsorted(second))
        SEND(self, payload)

    world.iceberg.table(send=send)
    assert world.committing.commit(process_id) is ProcessStatus.PARTIAL
    oracle.assert_same_rows(before, live_rows(world))


def test_a_result_that_claims_to_tell_where_rows_went_is_not_believed(world: World) -> None:
    """A map of positions says which rows are missing, not in which order the others stand."""
    process_id, optimizer = cluster_with(world, Grouping()), clusterer(world)
    handed = taken(world, optimizer)
    assert not any(decode_cluster_input(one.work.payload).rewrite.tells_left_out for one in handed)
    wanted = ids_of(world, handed[0])[0]
    writer.delete_where(world.catalog.load_table("db.t"), lambda item: item["id"] == wanted)
    before = live_rows(world)
    for one in handed:
        made = decode_cluster_output(unsorted(one).payload)
        claim = replace(made, rewrite=replace(made.rewrite, position_map=PositionMap("", 0, ())))
        assert world.optimizing.complete(optimizer, one.attempt, WorkResult(CLUSTER, encode_cluster_output(claim)))
    assert world.committing.commit(process_id) is ProcessStatus.PARTIAL
    assert "the outputs hold the rows in another order" in world.optimizing.find_process(process_id).process.failure
    oracle.assert_same_rows(before, live_rows(world))
