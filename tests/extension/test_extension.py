"""A format, an action and a kind of work that are installed: what they do runs, ends and is shown as all else does."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.errors import AmoroError, CatalogMisconfigured, CommitUnknown, TableRefused
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import ProcessStatus, TaskStatus
from amoro_core.model.tables import OptimizingStatus, OptimizingType, TableIdentifier
from tests.engine import oracle, writer
from tests.engine.builders import SCHEMA, row
from tests.extension.conftest import LARGE, SMALL, TABLE, World
from tests.extension.journal import JournalTable


class Killed(BaseException):
    """The coordinator is no more."""


@contextmanager
def dying_at(point: str) -> Iterator[list[str]]:
    """Die at the failpoint, and say which ones were reached."""
    reached: list[str] = []

    def reach(name: str) -> None:
        reached.append(name)
        if name == point:
            raise Killed

    with pytest.MonkeyPatch.context() as patch, suppress(Killed):
        for module in ("maintenance", "committing", "task_lifecycle"):
            patch.setattr(f"amoro_core.services.{module}.failpoint", reach)
        yield reached


def counted_once(world: World, *counts: int) -> None:
    """Every file is counted, right and once, by a process each of which ended well."""
    assert [sorted(tally.values()) for tally in world.tallies()] == [sorted(counts)]
    assert [one.status for one in world.processes() if one.status is not ProcessStatus.CLOSED] == ["success"]
    assert world.look() == []


def test_large_files_are_counted_by_optimizers_that_know_the_kind(world: World) -> None:
    world.append(a=LARGE, b=LARGE, c=SMALL)
    [process_id] = world.look()
    assert world.services.optimizing.poll(world.optimizer(), "default", [1]) == []  # it does not know the kind
    tasks = world.services.optimizing.find_process(process_id).tasks
    assert [(task.kind, task.input_bytes, task.status) for task in tasks] == [
        ("tally", len(LARGE), TaskStatus.PLANNED)
    ] * 2
    world.work()
    counted_once(world, 20, 20, 1)


def test_it_can_be_cancelled_and_begun_again_by_name(world: World) -> None:
    world.append(a=LARGE)
    [process_id] = world.look()
    assert world.services.optimizing.cancel(process_id, "by hand").process.status is ProcessStatus.CLOSED
    assert [task.status for task in world.services.optimizing.find_process(process_id).tasks] == [TaskStatus.CANCELED]
    world.work()
    assert world.tallies() == []
    assert world.services.maintaining.preview(TABLE, "tally").plan is not None
    world.services.maintaining.begin(world.services.tables.ensure(TABLE).table_id, "tally", trigger="request")
    world.work()
    counted_once(world, 20)


def test_it_is_listed_and_counted_as_all_processes_are_and_its_format_refused_for_optimizing_alone(
    world: World,
) -> None:
    world.append(a=SMALL)
    world.look()
    world.work()
    counted_once(world, 1)
    assert [(one.type, one.receipt is not None) for one in world.processes()] == [("tally", True)]
    samples = {(one.name, one.labels): one.value for one in world.services.meters.samples()}
    ended = {name: value for (name, labels), value in samples.items() if {"tally", "success"} <= set(labels)}
    assert ended == {"amoro_processes_total": 1.0, "amoro_maintenance_processes_total": 1.0}

    found = world.services.tables.ensure(TABLE)
    assert (found.status, found.refusal, found.format) == (OptimizingStatus.REFUSED, "format", "journal")
    assert "lake.db.log has the format journal, which lacks what optimizing needs: read, rewrite" in found.status_reason
    with pytest.raises(TableRefused, match="lacks what auto-create-tags needs: maintain, read"):
        world.services.maintaining.begin(found.table_id, "auto-create-tags", trigger="request")


def test_a_table_that_was_never_looked_at_is_shown_with_what_loading_it_says(world: World) -> None:
    found = world.services.tables.find(TABLE)
    assert (found.table_id, found.status, found.refusal) == (0, OptimizingStatus.REFUSED, "format")
    assert (found.uuid, found.format) == (world.journal().facts.uuid, "journal")


@pytest.mark.parametrize("arrives", [True, False])
def test_an_unknown_commit_is_traced_and_applied_once(world: World, arrives: bool) -> None:
    send = JournalTable.send

    def lose(journal: JournalTable, payload: bytes) -> None:
        if arrives:
            send(journal, payload)
        raise CommitUnknown("the disk went away")

    world.append(a=SMALL)
    [process_id] = world.look()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(JournalTable, "send", lose)
        assert world.services.committing.commit(process_id) is ProcessStatus.COMMIT_UNKNOWN
    world.restart()
    assert world.services.committing.commit(process_id) is ProcessStatus.SUCCESS
    counted_once(world, 1)


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["coordinator", "optimizer"])
def test_without_the_package_its_processes_and_tables_wait_and_with_it_they_go_on(world: World, content: str) -> None:
    world.append(a=content)
    [process_id] = world.look()
    with pytest.MonkeyPatch.context() as patch:  # it is not installed meanwhile
        patch.setattr(sys, "path", [place for place in sys.path if place != str(world.home.parent / "site")])
        world.restart()
        [before] = world.processes()
        with pytest.raises(CatalogMisconfigured, match="names 'journal', which is not installed"):
            world.services.discovery.explore("lake")
        [lake] = world.services.catalogs.list_catalogs()  # which is shown all the same
        assert "'journal', which is not installed" in (world.services.catalogs.commits_refused(lake) or "")
        assert world.services.optimizing.poll(world.optimizer_id, "default", [1]) == []
        with pytest.raises(AmoroError) if content == SMALL else nullcontext():
            world.services.committing.commit(process_id)
        assert [one.status for one in world.processes()] == [before.status]
        assert (before.is_active, world.tallies()) == (True, [])
    world.restart()
    world.work()
    counted_once(world, content.count("\n"))


POINTS = (
    "plan.after_mark", "plan.before_store", "plan.after_store", "poll.after_store", "ack.after_store",
    "complete.before_store", "complete.after_store", "commit.after_intent", "commit.after_send", "commit.after_done",
)  # fmt: skip


@pytest.mark.parametrize("content", [SMALL, LARGE], ids=["coordinator", "optimizer"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_anywhere_every_file_is_counted_once(world: World, point: str, content: str) -> None:
    world.append(a=content)
    with dying_at(point) as reached:
        world.look()
        world.work()
    is_here = content == LARGE or not point.startswith(("poll", "ack", "complete"))
    assert (point in reached) == is_here
    world.restart()
    world.work()
    world.look()
    world.work()
    counted_once(world, content.count("\n"))


@pytest.mark.parametrize("formats", ["iceberg,journal", "journal,iceberg"])
def test_beside_iceberg_tables_both_are_planned_and_optimized_at_the_same_time(
    tmp_path: Path, plugged_in: None, formats: str
) -> None:
    """In a SQL catalog of pyiceberg's whose warehouse also has a journal."""
    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/catalog.db", "table-formats": formats}
    world = World(tmp_path / "home", properties)
    catalog = SqlCatalog("lake", uri=properties["uri"], warehouse=str(world.home / "lake"))
    events = writer.make_table(catalog, "db.events", SCHEMA)
    for one in (1, 2, 3):
        writer.append(events, [row(one)])
    world.append(a=LARGE, b=LARGE)
    before = oracle.live_rows(events)
    [counting] = world.look()  # the journal is due by itself
    table_id = world.services.tables.ensure(TableIdentifier("lake", ("db",), "events")).table_id
    begin, full = world.services.planning.begin, OptimizingType.FULL
    rewriting = begin(table_id, trigger="request", requested=full, force=True).process_id
    running = {one.process_id: (one.type, one.lane) for one in world.processes()}
    assert running == {counting: ("tally", "metadata"), rewriting: ("full", "files")}
    world.work()
    assert [one.status for one in world.processes()] == [ProcessStatus.SUCCESS] * 2
    assert world.tallies() == [{"a": 20, "b": 20}]
    assert len(oracle.live_files(events.refresh())) == 1
    oracle.assert_same_rows(before, oracle.live_rows(events))
    world.store.close()
    close_catalogs()
    catalog.close()
