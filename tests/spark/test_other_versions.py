"""Other versions of Iceberg's Java library than Spark's here read vectors and lineage that our services wrote."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from amoro_core.model.tables import OptimizingType

from .java_reader import at_metadata, java_with, read_by_java
from .java_writer import load_java_table
from .optimizing import Services
from .session import JARS
from .shapes import SHAPES, Shape, set_property

VERSIONS = ("1.10.1", "1.12.0")
MINOR, FULL = OptimizingType.MINOR, OptimizingType.FULL
#: Shapes of tables, and what is done to them one after the other.
DONE = {"three-kinds": (MINOR, FULL), "with-some-ids": (FULL,)}


@pytest.fixture(scope="module")
def others() -> Iterator[dict[str, Any]]:
    """Gateways to a JVM of each version."""
    jars = {version: next((JARS / "other-versions").glob(f"*-{version}.jar"), None) for version in VERSIONS}
    if missing := [version for version, jar in jars.items() if jar is None]:
        reason = f"no library of Iceberg {', '.join(missing)} in build/jars/other-versions: run make test"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    with ExitStack() as stack:
        yield {version: stack.enter_context(java_with(jar)) for version, jar in jars.items() if jar is not None}


@pytest.mark.parametrize("shape", [one for one in SHAPES if one.name in DONE], ids=lambda shape: shape.name)
def test_other_versions_read_what_a_conversion_and_a_rewrite_leave(
    services: Services, others: dict[str, Any], shape: Shape
) -> None:
    catalog, table = services.catalog, services.catalog.full_name("db.t")
    shape.make(catalog, table)
    set_property(catalog, table, "self-optimizing.fragment-ratio", "1000000000")  # so that minor converts
    before = read_by_java(load_java_table(catalog.spark, catalog.name, "db.t"))
    for kind in DONE[shape.name]:
        receipt = services.finish(services.begin(table, kind))
        assert (receipt.data_files_after > 0, receipt.delete_files_after > 0) == (kind is FULL, kind is MINOR)
        location = catalog.load("db.t").metadata_location
        for version, gateway in others.items():
            assert version in gateway.jvm.org.apache.iceberg.IcebergBuild.fullVersion()
            assert read_by_java(at_metadata(gateway, location)) == before, version
