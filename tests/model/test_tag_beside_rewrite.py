"""A tag is made while a rewrite commits: whichever slips into the other at any step, both land, and no row is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from itertools import product
from pathlib import Path

import pytest
from pyiceberg.catalog import MetastoreCatalog

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer
from tests.engine.aging import wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.model.crashes import SteppedWorld, before

#: The last one lies within a commit: after the catalog has read the state on which it is made, before it is written.
STEPS = ("load", "head", "stage", "stage_tag", "send", "trace", "staged by the catalog")
PROPERTIES = {"tag.auto-create.enabled": "true", "tag.auto-create.trigger.max-delay.minutes": "0"}


@contextmanager
def slipping(world: SteppedWorld, step: str, meanwhile: Callable[[], object]) -> Iterator[None]:
    """Let something happen once, before that step."""
    if step in STEPS[:-1]:
        with before(world, step, meanwhile, must_come=False):
            yield
        return
    stage, waiting = MetastoreCatalog._update_and_stage_table, [meanwhile]

    def staged(*given: object, **named: object) -> object:
        done = stage(*given, **named)
        if waiting:
            waiting.pop()()
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MetastoreCatalog, "_update_and_stage_table", staged)
        yield


def test_both_land_whichever_slips_into_the_other_at_any_step(quick_path: Path) -> None:
    catalog = writer.make_catalog(quick_path)
    wait_for_one_day()
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, properties=PROPERTIES)
    writer.append(table, [row(0, "a")])
    world, slipped = SteppedWorld(quick_path, catalog), 0
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    for number, (step, slips) in enumerate(product(STEPS, ("rewrite", "tag"))):
        writer.append(table, [row(number + 1, "a")])
        rewrite = world.begin_and_run(OptimizingType.FULL)
        tag = world.maintaining.begin(world.table().table_id, "auto-create-tags", trigger="request").process_id
        there = oracle.live_rows(table.refresh())
        ends: list[tuple[str, str]] = []

        def end(process_id: str, ends: list[tuple[str, str]] = ends) -> None:
            """What nobody knows of is looked into again, as the coordinator's loop does."""
            for _ in range(5):
                if (status := world.committing.commit(process_id)) is not ProcessStatus.COMMIT_UNKNOWN:
                    break
            ends.append((process_id, status))

        inner, outer = (rewrite, tag) if slips == "rewrite" else (tag, rewrite)
        with slipping(world, step, lambda inner=inner, end=end: end(inner)):
            end(outer)
        slipped += len(ends) == 2
        if len(ends) == 1:  # there is no such step
            end(inner)
        assert dict(ends) == dict.fromkeys((rewrite, tag), ProcessStatus.SUCCESS), (step, slips)
        made = table.refresh().metadata
        assert world.snapshots_of(rewrite) == 1
        (name,) = made.refs.keys() - {"main"}
        assert made.refs[name].snapshot_id == min(made.snapshots, key=lambda one: one.sequence_number or 0).snapshot_id
        oracle.assert_same_rows(there, oracle.live_rows(table))
        table.manage_snapshots().remove_tag(name).commit()
    assert slipped == 9  # those that the process has which the other one slips into
    world.close()
    catalog.close()
