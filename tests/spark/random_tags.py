"""Tags that are made at any moment of an expiry through a REST catalog: each is there in the end, and Spark reads it.

On REST a window of one request stays in which the catalog takes a new tag along; then it has to be brought back.
"""

from __future__ import annotations

import random
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

from amoro_core.errors import AmoroError
from amoro_core.iceberg.catalog.catalogs import close_catalogs
from amoro_core.model.processes import CatalogConfig, ProcessStatus
from tests.engine import writer
from tests.engine.aging import aged
from tests.engine.builders import SCHEMA, row
from tests.faults.rest import RestServer
from tests.services.world import World

from .catalogs import SharedCatalog

NAME = "db.tagged"
MOMENTS = ("before the plan", "after the plan", "within the commit", "within the commit", "after the commit")
TRIES = 5


def run(catalog: SharedCatalog, home: Path, seed: int, tags: int, totals: Counter[str]) -> None:
    """So many tags, one in each expiry of a table."""
    home.mkdir()
    beneath = SqlCatalog(catalog.name, uri=f"{catalog.uri}?timeout=60", warehouse=catalog.warehouse)
    with RestServer(beneath) as server:
        config = CatalogConfig(catalog.name, (("type", "rest"), ("uri", server.uri), ("warehouse", catalog.warehouse)))
        world = World(home, catalog.pyiceberg, config=config)
        try:
            table = writer.make_table(catalog.pyiceberg, NAME, SCHEMA)
            writer.append(table, [row(0)])
            chance = random.Random(seed)
            for number in range(tags):
                _one(world, catalog, server, table, chance, number, totals)
        finally:
            server.proxy.release()
            world.close()
    beneath.close()
    close_catalogs()


def _one(
    world: World,
    catalog: SharedCatalog,
    server: RestServer,
    table: Table,
    chance: random.Random,
    number: int,
    totals: Counter[str],
) -> None:
    """An expiry of the snapshots but the last, while one of them gets a tag."""
    for one in range(2):
        writer.append(table, [row(number * 10 + one)])
    aged(table, 30)
    world.now = datetime.now(UTC) + timedelta(seconds=1)
    *old, _ = [one.snapshot_id for one in table.refresh().metadata.snapshots]
    target, name, moment = chance.choice(old), f"tag{number}", chance.choice(MOMENTS)
    rows = _rows(catalog, str(target))
    made: list[str] = []

    def tag(now: str) -> None:
        if now == moment and not made:
            with suppress(CommitFailedException, ValueError):
                writer.create_tag(table, name, target)
                made.append(name)

    tag("before the plan")
    begun = world.maintaining.begin(
        world.table(f"{catalog.name}.{NAME}").table_id, "expire-snapshots", trigger="request"
    )
    tag("after the plan")
    server.proxy.before_commit = partial(tag, "within the commit")
    for _ in range(TRIES):
        with suppress(AmoroError):
            if not begun.process_id or world.committing.commit(begun.process_id) in _ENDED:
                break
        world.later(3600)
    server.proxy.before_commit = None
    tag("after the commit")
    totals["tags made" if made else "tags refused"] += 1
    if not made:
        return
    refs = table.refresh().metadata.refs
    assert name in refs, f"{name}, made {moment}, is lost"
    assert _rows(catalog, f"'{name}'") == rows, f"{name}, made {moment}, has other rows"
    totals["lost and brought back"] += refs[name].snapshot_id != target
    totals[f"made {moment}"] += 1
    table.manage_snapshots().remove_tag(name).commit()


_ENDED = (ProcessStatus.SUCCESS, ProcessStatus.PARTIAL, ProcessStatus.FAILED)


def _rows(catalog: SharedCatalog, version: str) -> list[tuple[int, str, str]]:
    """What Spark reads of a snapshot or tag."""
    name = catalog.full_name(NAME)
    catalog.spark.sql(f"REFRESH TABLE {name}")
    return sorted(map(tuple, catalog.spark.sql(f"SELECT * FROM {name} VERSION AS OF {version}").collect()))
