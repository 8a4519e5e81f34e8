"""A tag is made while a rewrite commits: whoever comes first at each step, both land, and no row is lost."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from pyiceberg.catalog import MetastoreCatalog

from amoro_core.model.processes import ProcessStatus
from amoro_core.model.tables import OptimizingType
from tests.engine import oracle, writer
from tests.engine.aging import wait_for_one_day
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.model.crashes import SteppedWorld
from tests.tiers import count

CHUNKS, SCHEDULES = count(1, 5), count(8, 20)  # each chunk has a table of its own, whose history stays short
#: Before each of these it is decided who goes on.
STEPS = ("load", "head", "stage", "stage_tag", "send", "trace")
PROPERTIES = {"tag.auto-create.enabled": "true", "tag.auto-create.trigger.max-delay.minutes": "0"}


class Schedule:
    """Threads of which one runs at a time, from one step to the next; whose turn it is comes from the seed."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._changed = threading.Condition()
        self._live: set[str] = set()
        self._waiting: set[str] = set()
        self._turn = ""
        self.taken = ""  # whose turns there were, in order

    def step(self) -> None:
        """Wait for a turn; nothing for threads of others."""
        me = threading.current_thread().name
        with self._changed:
            if me not in self._live:
                return
            self._waiting.add(me)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: self._turn == me, timeout=60)
            self._waiting.discard(me)
            self._turn = ""
            self._changed.notify_all()

    def run(self, works: Mapping[str, Callable[[], object]]) -> None:
        """Let the works, by one letter each, go on until all have ended."""
        threads = [threading.Thread(target=self._work, args=(work,), name=name) for name, work in works.items()]
        self._live = set(works)
        for thread in threads:
            thread.start()
        while self._chosen():
            pass
        for thread in threads:
            thread.join()

    def _work(self, work: Callable[[], object]) -> None:
        try:
            self.step()
            work()
        finally:
            with self._changed:
                self._live.discard(threading.current_thread().name)
                self._changed.notify_all()

    def _chosen(self) -> bool:
        with self._changed:
            assert self._changed.wait_for(lambda: self._waiting == self._live and not self._turn, timeout=60)
            if not self._live:
                return False
            self._turn = self._chance.choice(sorted(self._live))
            self.taken += self._turn
            self._changed.notify_all()
            return True


@contextmanager
def stepping(world: SteppedWorld, schedule: Schedule) -> Iterator[None]:
    """Decide who goes on before each step of the world, and within a commit: after the catalog has read the state on
    which it is made, and before it is written.
    """
    stage = MetastoreCatalog._update_and_stage_table

    def step(real: Callable[..., object], *given: object, **named: object) -> object:
        schedule.step()
        return real(*given, **named)

    def act(name: str, real: Callable[..., object], *given: object, **named: object) -> object:
        return step(real, *given, **named) if name in STEPS else real(*given, **named)

    with pytest.MonkeyPatch.context() as patch, world.steps(act):
        patch.setattr(MetastoreCatalog, "_update_and_stage_table", lambda *given, **named: step(stage, *given, **named))
        yield


def ended(world: SteppedWorld, process_id: str) -> str:
    """How the process ends; what nobody knows of is looked into again, as the coordinator's loop does."""
    for _ in range(5):
        status = world.committing.commit(process_id)
        if status is not ProcessStatus.COMMIT_UNKNOWN:
            break
    return status


def end_noted(world: SteppedWorld, ends: dict[str, str], letter: str, process_id: str) -> None:
    ends[letter] = ended(world, process_id)


@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_both_land_in_every_schedule(chunk: int, quick_path: Path) -> None:
    catalog = writer.make_catalog(quick_path)
    wait_for_one_day()
    table = writer.make_table(catalog, "db.t", SCHEMA, BY_PART, properties=PROPERTIES)
    writer.append(table, [row(0, "a")])
    world, seen = SteppedWorld(quick_path, catalog), set()
    world.now = datetime.now(UTC).replace(microsecond=0) + timedelta(seconds=5)
    for seed in range(chunk * SCHEDULES, (chunk + 1) * SCHEDULES):
        writer.append(table, [row(seed + 1, "a")])
        rewrite = world.begin(OptimizingType.FULL)
        world.run_all(rewrite)
        tag = world.maintaining.begin(world.table().table_id, "auto-create-tags", trigger="request").process_id
        before = oracle.live_rows(table.refresh())
        schedule = Schedule(seed)
        ends: dict[str, str] = {}
        note = partial(end_noted, world, ends)
        with stepping(world, schedule):
            schedule.run({"r": partial(note, "r", rewrite), "t": partial(note, "t", tag)})
        assert ends == {"r": ProcessStatus.SUCCESS, "t": ProcessStatus.SUCCESS}, f"seed {seed}: {schedule.taken}"
        made = table.refresh().metadata
        assert (
            sum(one.summary is not None and one.summary.get("amoro.process-id") == rewrite for one in made.snapshots)
            == 1
        )
        (name,) = made.refs.keys() - {"main"}
        assert made.refs[name].snapshot_id == min(made.snapshots, key=lambda one: one.sequence_number or 0).snapshot_id
        oracle.assert_same_rows(before, oracle.live_rows(table))
        table.manage_snapshots().remove_tag(name).commit()
        seen.add(schedule.taken)
    assert len(seen) > SCHEDULES // 2  # they differ
    world.close()
    catalog.close()
