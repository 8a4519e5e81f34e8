"""The orphan files of random tables beside those of Iceberg's own `remove_orphan_files`."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import timedelta
from typing import TYPE_CHECKING

from amoro_core.model.processes import CatalogConfig
from tests.iceberg.orphan_tables import NOW, Site, make_site
from tests.iceberg.test_orphans import condemned, opened, planned

from .catalogs import SharedCatalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = 40
PROTECTED = {
    "Flink's manifest", "named by Flink's manifest", "used", "condemned", "active process", "ending process",
    "unreadable", "removed",
}  # fmt: skip


def java_orphans(spark: SparkSession, catalog: SharedCatalog, site: Site) -> set[str]:
    """What Iceberg's Java runtime would delete below the table's location."""
    before = (NOW - timedelta(days=2)).strftime("%Y-%m-%d %H:%M:%S.%f")
    called = spark.sql(
        f"CALL {catalog.name}.system.remove_orphan_files(table => '{'.'.join(site.table.name())}', "
        f"older_than => TIMESTAMP '{before}', dry_run => true)"
    )
    return {row.orphan_file_location.removeprefix("file:") for row in called.collect()}


def test_orphans_are_those_of_java_but_for_what_is_protected(spark: SparkSession, catalog: SharedCatalog) -> None:
    """Java goes by names and age alone, and takes for orphans what only removed entries name."""
    assert differences_from_java(spark, catalog, range(TABLES)) == PROTECTED


def differences_from_java(spark: SparkSession, catalog: SharedCatalog, numbers: Iterable[int]) -> set[str]:
    """What protects the files that Java would delete of the tables of these numbers, and we do not."""
    differences = set()
    config = CatalogConfig(catalog.name, tuple(catalog.properties.items()), (f"file://{catalog.root}",))
    for number in numbers:
        site = make_site(catalog.pyiceberg, number, None, spellings=3)
        _, plan = planned(opened(config, site), site.around)
        ours, java = condemned(plan), java_orphans(spark, catalog, site)
        removed = site.named() - site.named(live=True)
        protected = {**dict.fromkeys(removed, "removed"), **site.kept}
        differences |= {protected.get(path, f"table {number}: {path}") for path in java - ours}
        early = {path for path in ours - java if site.orphans[path] == "ended process"}
        assert ours - java == early, number  # left over by a process of ours that has ended: younger than the age
    return differences
