"""Orphan files of random tables: every planted one is found, and nothing that anybody needs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from amoro_core.actions.contract import Plan, Request, Situation, TriggerVerdict
from amoro_core.actions.orphans import NAME, CleanOrphanFiles
from amoro_core.formats.iceberg import IcebergFormat, IcebergTable
from amoro_core.iceberg.catalogs import close_catalogs
from amoro_core.model.config import parse_config
from amoro_core.model.groups import Capacity
from amoro_core.model.maintenance import Options, Surroundings
from amoro_core.model.processes import CatalogConfig
from amoro_core.model.tables import TableIdentifier
from tests.engine.writer import make_catalog
from tests.iceberg.orphan_tables import NOW, Site, live_paths, make_site, place_of


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[SqlCatalog]:
    opened = make_catalog(tmp_path)
    yield opened
    opened.close()
    close_catalogs()


def config(tmp_path: Path, **more: str) -> CatalogConfig:
    properties = {
        "type": "sql",
        "uri": f"sqlite:///{tmp_path / 'catalog.db'}",
        "warehouse": (tmp_path / "warehouse").as_uri(),
        **more,
    }
    return CatalogConfig("cat", tuple(sorted(properties.items())), (f"file://{tmp_path}",))


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
    situation = Situation(parse_config({}), properties or {}, {}, Capacity(1, 1), now, lambda: around)
    return CleanOrphanFiles().plan(table, situation, Request(NAME, options=options or Options()))


def condemned(plan: Plan | None) -> set[str]:
    return set() if plan is None else {one.path for one in plan.condemned}


@pytest.mark.parametrize("first", range(0, 60, 10))
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
