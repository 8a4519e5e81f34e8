"""Random tables with orphans: each planted one is found and swept, and nothing that anybody needs."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions import orphans
from amoro_core.actions.action_api import Plan, PlanningContext, Request, TriggerVerdict
from amoro_core.actions.orphans import CLEAN_ORPHANS, CleanOrphanFiles
from amoro_core.errors import AttemptAbandoned, OptimizerError
from amoro_core.files.storage.inventory import keys_in_ranges, keys_of, merged
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.iceberg.maintenance.reachable import named_in_ranges
from amoro_core.maintenance.orphans import Search
from amoro_core.model.group_config import Capacity
from amoro_core.model.maintenance import NO_OPTIONS, Options, Surroundings
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.paths import path_aliases
from amoro_core.model.processes import Attempt, CatalogConfig, ProcessContext, TaskId, TaskResult
from amoro_core.model.tables import TableIdentifier
from amoro_core.model.task_payload import Work
from amoro_core.protocol import maintenance_pb2 as pb
from amoro_optimizer.work_kinds import BlobName, Kinds, Run
from tests.iceberg import random_sweeps
from tests.iceberg.orphan_tables import NOW, Site, live_paths, make_site, place_of
from tests.iceberg.scenarios import sql_config
from tests.large import count_as_large
from tests.services.rigs import Limits
from tests.services.rigs import limits as limits
from tests.tiers import count, sample


def config(tmp_path: Path) -> CatalogConfig:
    return sql_config(tmp_path, f"file://{tmp_path}")


def opened(catalog: CatalogConfig, site: Site) -> IcebergTable:
    namespace, name = site.table.name()
    return IcebergFormat().load(catalog, TableIdentifier(catalog.name, (namespace,), name))


def planned(
    table: IcebergTable,
    around: Surroundings,
    properties: Mapping[str, str] | None = None,
    options: Options | None = None,
    now: datetime = NOW,
) -> tuple[TriggerVerdict, Plan | None]:
    situation = PlanningContext(parse_config({}), properties or {}, {}, Capacity(1, 1), now, lambda: around)
    return CleanOrphanFiles().plan(table, situation, Request(CLEAN_ORPHANS, options=options or Options()))


def condemned(plan: Plan | None) -> set[str]:
    return set() if plan is None else {one.path for one in plan.condemned}


@pytest.mark.parametrize("first", sample(range(0, 60, 10), every=3))
def test_all_orphans_of_random_tables_are_found_and_nothing_else(
    tmp_path: Path, catalog: SqlCatalog, first: int
) -> None:
    for number in range(first, first + 10):
        site = make_site(catalog, number, tmp_path)
        table = opened(config(tmp_path), site)
        verdict, plan = planned(table, site.around)
        assert plan is not None
        found = condemned(plan)
        assert {path: site.kept.get(path, "live") for path in found - set(site.orphans)} == {}, number
        assert {path: site.orphans[path] for path in set(site.orphans) - found} == {}, number
        guard = table.guard()
        assert guard.reachable(found) == {}, number
        assert set(guard.reachable(site.stored() & site.named())) >= live(site), number
        assert verdict.is_due


def live(site: Site) -> set[str]:
    return {place_of(path) for path in live_paths(site.table)}


# Random tables with decoys and writers at work: no file that anybody needs is in any batch of deletes


#: `make prove` goes on with other tables.
TABLES = range(count(42, 60))


def test_no_live_file_is_in_any_batch_and_planted_orphans_go(tmp_path: Path) -> None:
    totals: Counter[str] = Counter()
    random_sweeps.run(TABLES, tmp_path, totals)
    assert totals["tables"] + totals["tables in a shared place"] / 2 == len(TABLES)
    assert min(totals["tables seen inside another"], totals["unseen tables inside another"]) >= count(1, 2)
    assert min(totals["batches"], totals["planted orphans"]) > 5 * len(TABLES)
    assert min(totals["guard spoke"], totals["expire-snapshots success"], totals["commits between batches"]) >= count(
        1, 2
    )


def test_without_the_guard_one_would_be(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="would be deleted"):
        random_sweeps.run(TABLES, tmp_path, Counter(), guarded=False)


def test_without_refusing_shared_places_one_would_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(orphans, "refuse_shared", lambda *_: None)
    for asked in ("opened", "_require_opened"):
        monkeypatch.setattr(Search, asked, lambda *_: None)
    monkeypatch.setattr(random_sweeps, "SharedSweep", random_sweeps.Sweep)
    with pytest.raises(AssertionError, match="would be deleted"):
        random_sweeps.run(range(random_sweeps.EACH - 1, TABLES.stop, random_sweeps.EACH), tmp_path, Counter())


# Listing tasks: what optimizers find together is what the coordinator finds alone


ELSEWHERE = "spelled in a way that is looked for elsewhere"
KINDS = Kinds()


def situation(site: Site) -> PlanningContext:
    return PlanningContext(parse_config({}), {}, {}, Capacity(1, 1), NOW, lambda: site.around)


def run_of(plan: Plan, *, is_cancelled: bool = False) -> Run:
    def fetch(name: BlobName) -> bytes:
        assert hashlib.sha256(plan.blobs[name.sha256]).hexdigest() == name.sha256
        return plan.blobs[name.sha256]

    return Run(Attempt(TaskId("p", 1), 1), {}, 1 << 28, lambda done, total: None, lambda: is_cancelled, fetch)


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
        action = CleanOrphanFiles()
        _, divided = action.plan(table, situation(site), Request(CLEAN_ORPHANS))
        assert divided.tasks
        works = [task.work for task in divided.tasks]
        results = tuple(
            TaskResult(at, work.kind, work.payload, KINDS.execute(work, run_of(divided)).payload)
            for at, work in enumerate(works, start=1)
        )
        # Of a process the action asks for the results alone.
        case = cast(ProcessContext, SimpleNamespace(results=results))
        found = action.gathered(table, situation(site), case, NO_OPTIONS)
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
    assert len(plan.tasks) == 2
