"""Random tables with orphans: each planted one is found and swept, and nothing that anybody needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions import orphans
from amoro_core.actions.action_api import Plan, PlanningContext, Request, TriggerVerdict
from amoro_core.actions.orphans import CLEAN_ORPHANS, CleanOrphanFiles
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.maintenance.orphans import Search
from amoro_core.model.group_config import Capacity
from amoro_core.model.maintenance import Options, Surroundings
from amoro_core.model.optimizing_config import parse_config
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.iceberg import random_sweeps
from tests.iceberg.orphan_tables import NOW, Site, live_paths, make_site, place_of
from tests.iceberg.scenarios import sql_config
from tests.tiers import count, sample


def config(tmp_path: Path) -> CatalogConfig:
    return sql_config(tmp_path, f"file://{tmp_path}")


def opened(catalog: CatalogConfig, site: Site) -> IcebergTable:
    return IcebergFormat().load(catalog, TableIdentifier(catalog.name, *_parts(site)))


def _parts(site: Site) -> tuple[tuple[str, ...], str]:
    namespace, name = site.table.name()
    return (namespace,), name


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
