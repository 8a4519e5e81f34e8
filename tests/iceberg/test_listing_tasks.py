"""Listing tasks over random tables: what optimizers find together is what the coordinator finds alone."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.action_api import Plan, PlanningContext, Request
from amoro_core.actions.orphans import CLEAN_ORPHANS, CleanOrphanFiles
from amoro_core.errors import AttemptAbandoned, OptimizerError
from amoro_core.files.storage.inventory import keys_in_ranges, keys_of, merged
from amoro_core.formats.iceberg import IcebergTable
from amoro_core.iceberg.maintenance.reachable import named_in_ranges
from amoro_core.model.group_config import Capacity
from amoro_core.model.maintenance import NO_OPTIONS
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.paths import path_aliases
from amoro_core.model.processes import Attempt, ProcessContext, TaskId, TaskResult
from amoro_core.model.task_payload import Work
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_optimizer.work_kinds import BlobName, Kinds, Run
from tests.iceberg.orphan_tables import NOW, Site, make_site, place_of
from tests.iceberg.test_orphans import condemned, config, opened, planned
from tests.large import count_as_large
from tests.services.rigs import Limits
from tests.services.rigs import limits as limits
from tests.tiers import sample

ELSEWHERE = "spelled in a way that is looked for elsewhere"
KINDS = Kinds()


def situation(site: Site) -> PlanningContext:
    return PlanningContext(parse_config({}), {}, {}, Capacity(1, 1), NOW, lambda: site.around)


def run_of(plan: Plan, *, is_cancelled: bool = False) -> Run:
    def fetch(name: BlobName) -> bytes:
        assert hashlib.sha256(plan.blobs[name.sha256]).hexdigest() == name.sha256
        return plan.blobs[name.sha256]

    return Run(Attempt(TaskId("p", 1), 1), {}, 1 << 28, lambda done, total: None, lambda: is_cancelled, fetch)


def executed(plan: Plan) -> tuple[TaskResult, ...]:
    return tuple(
        TaskResult(number, task.work.kind, task.work.payload, KINDS.execute(task.work, run_of(plan)).payload)
        for number, task in enumerate(plan.tasks, start=1)
    )


def case_of(results: tuple[TaskResult, ...]) -> ProcessContext:
    """Of a process the action asks for the results alone."""
    return cast(ProcessContext, SimpleNamespace(results=results))


def by_tasks(table: IcebergTable, site: Site) -> Plan:
    action = CleanOrphanFiles()
    _, plan = action.plan(table, situation(site), Request(CLEAN_ORPHANS))
    assert plan is not None
    assert plan.tasks
    return action.gathered(table, situation(site), case_of(executed(plan)), NO_OPTIONS)


@pytest.mark.parametrize("first", sample(range(0, 30, 10), every=3))
def test_tasks_find_what_the_coordinator_finds_alone(
    tmp_path: Path, catalog: SqlCatalog, first: int, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_as_large(monkeypatch)
    for number in range(first, first + 10):
        site = make_site(catalog, number, tmp_path)
        table = opened(config(tmp_path), site)
        with limits(large_table=10**9):
            _, plan = planned(table, site.around)
        assert plan is not None
        found = by_tasks(table, site)
        missed = condemned(plan) - condemned(found)
        # A file whose other spelling sorts into another task's range is kept.
        assert all(len(path_aliases(path)) > 1 or not path.isascii() for path in missed), number
        assert condemned(found) <= condemned(plan), number
        assert found.document["listed_files"] == plan.document["listed_files"], number
        kept, alone_kept = dict(found.document["kept"]), dict(plan.document["kept"])
        assert kept.pop(ELSEWHERE, 0) >= len(missed), number
        if not missed:
            assert {path for path in site.orphans if path in condemned(plan)} == condemned(found)
        for reason in ("young", "of a process that has ended just now"):
            assert kept.get(reason, 0) <= alone_kept.get(reason, 0), number


def test_named_paths_stand_in_the_range_of_each_of_their_spellings(tmp_path: Path, catalog: SqlCatalog) -> None:
    for number in range(10):
        site = make_site(catalog, number, tmp_path)
        spelled = sorted({one for path in site._named(live=False) for one in path_aliases(path)})
        cuts = spelled[:: max(1, len(spelled) // 4)]
        ranges = named_in_ranges(site.table, cuts)
        assert len(ranges) == len(cuts) + 1
        every = keys_of(site._named(live=False))
        assert list(merged(keys for columns in ranges for keys in columns.values())) == list(every)
        for at, columns in enumerate(ranges):
            inside = keys_in_ranges(site._named(live=False), cuts).get(at, ())
            assert list(merged(columns.values())) == list(inside)


def the_task(tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> tuple[Plan, Work]:
    count_as_large(monkeypatch, 10**6)
    site = make_site(catalog, 3, tmp_path)
    _, plan = CleanOrphanFiles().plan(opened(config(tmp_path), site), situation(site), Request(CLEAN_ORPHANS))
    assert plan is not None
    (task,) = plan.tasks
    return plan, task.work


def test_a_cancelled_listing_is_abandoned(tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch) -> None:
    plan, work = the_task(tmp_path, catalog, monkeypatch)
    with pytest.raises(AttemptAbandoned):
        KINDS.execute(work, run_of(plan, is_cancelled=True))


@pytest.mark.parametrize("change", ["more", "less", "unsorted"])
def test_a_blob_that_does_not_fit_its_columns_is_refused(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    plan, work = the_task(tmp_path, catalog, monkeypatch)
    (content,) = plan.blobs.values()
    altered = {"more": content + bytes(8), "less": content[:-8], "unsorted": content[8:16] + content[:8] + content[16:]}
    run = Run(Attempt(TaskId("p", 1), 1), {}, 1, lambda done, total: None, lambda: False, lambda name: altered[change])
    with pytest.raises(OptimizerError, match="is not sorted" if change == "unsorted" else "its columns say otherwise"):
        KINDS.execute(work, run)


def test_what_was_written_since_the_plan_is_young_and_no_sign_of_a_wrong_clock(
    tmp_path: Path, catalog: SqlCatalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan, work = the_task(tmp_path, catalog, monkeypatch)
    message = pb.ListWork.FromString(work.payload)
    message.now_us = round((datetime.now(UTC) - timedelta(hours=2)).timestamp() * 1e6)
    Path(f"{place_of(message.places[0])}/new.parquet").write_bytes(b"x")
    said = pb.ListOutput.FromString(KINDS.execute(Work(work.kind, message.SerializeToString()), run_of(plan)).payload)
    assert all("new.parquet" not in one.path for one in said.candidates)


def test_most_tasks_is_the_limit(
    tmp_path: Path, catalog: SqlCatalog, limits: Limits, monkeypatch: pytest.MonkeyPatch
) -> None:
    count_as_large(monkeypatch)
    limits(listing_tasks=2)
    site = make_site(catalog, 3, tmp_path)
    _, plan = CleanOrphanFiles().plan(opened(config(tmp_path), site), situation(site), Request(CLEAN_ORPHANS))
    assert plan is not None
    assert len(plan.tasks) == 2
