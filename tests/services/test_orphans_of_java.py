"""Iceberg's `TestRemoveOrphanFilesAction`, test by test: what proves the same here, or why not.

Those that no other test has are below, each with the name of Java's.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from pyiceberg.partitioning import PartitionField, PartitionSpec
from pyiceberg.schema import Schema
from pyiceberg.transforms import IdentityTransform, TruncateTransform
from pyiceberg.types import IntegerType, NestedField, StringType

from amoro_core.errors import TableRefused
from amoro_core.maintaining.orphans import Search, Terms
from amoro_core.maintaining.places import Named, settled_names
from amoro_core.model.maintenance import Surroundings
from amoro_core.model.paths import looser_spellings, split_place
from amoro_core.model.stored import StoredFile
from tests.engine import writer
from tests.engine.builders import BY_PART, SCHEMA, row
from tests.services.test_orphans import AT_ONCE, Place
from tests.services.world import World
from tests.unit.maintaining.test_orphans import GROUND, NOW, OLD


@pytest.fixture
def place(world: World) -> Place:
    return Place(world)


def made_anew(place: Place, schema: Schema, spec: PartitionSpec, **properties: str) -> None:
    """Another table in place of the first one."""
    place.world.catalog.drop_table("db.t")
    place.table = writer.make_table(place.world.catalog, "db.t", schema, spec, properties={**AT_ONCE, **properties})
    place.root = Path(place.table.location().removeprefix("file://"))
    for path in place.root.rglob("*.*"):
        if str(path) != place.table.metadata_location.removeprefix("file://"):
            path.unlink()
    place.age()


def test_all_valid_files_are_kept(place: Place) -> None:
    writer.copy_on_write(place.table, lambda one: one["id"] == 1, lambda one: {**one, "value": "new"})
    strays = [place.put(f"data/{below}stray.parquet") for below in ("", "part=a/", "part=a/c3=A/", "invalid/invalid/")]
    assert place.found() == sorted([place.orphan, *strays])


def test_wap_files_are_kept(place: Place) -> None:
    """Files of a snapshot that no branch or tag leads to."""
    writer.create_branch(place.table, "audit")
    staged = writer.append(place.table, [row(7, "a")], branch="audit")
    assert staged is not None
    with place.table.manage_snapshots() as change:
        change.remove_branch("audit")
    assert place.table.refresh().snapshot_by_id(staged.snapshot_id) is not None
    place.age()
    assert place.found() == [place.orphan]


def test_metadata_folder_is_intact(place: Place) -> None:
    """Data lies right in the table's location, so its metadata lies among it."""
    made_anew(place, SCHEMA, BY_PART)
    with place.table.transaction() as change:
        change.set_properties({"write.data.path": place.table.location()})
    writer.append(place.table, [row(1, "a")])
    stray = place.put("part=a/c3=A/stray.parquet")
    assert place.found() == [stray]


def test_remove_unreachable_metadata_version_files(place: Place) -> None:
    made_anew(place, SCHEMA, BY_PART, **{"write.metadata.previous-versions-max": "1"})
    first = place.table.metadata_location
    writer.append(place.table, [row(1, "a")])
    writer.append(place.table, [row(2, "a")])
    place.age()
    assert place.found() == [first.removeprefix("file://")]


def test_many_top_level_and_leaf_partitions(place: Place) -> None:
    made_anew(place, SCHEMA, BY_PART)
    writer.append(place.table, [row(number, str(number)) for number in range(30)])
    place.age()
    assert place.found() == []


HIDDEN = Schema(
    NestedField(1, "_c1", IntegerType(), required=False),
    NestedField(2, "_c2", StringType(), required=False),
    NestedField(3, "c3", StringType(), required=False),
)
BY_C2 = PartitionSpec(PartitionField(2, 1000, TruncateTransform(2), "_c2_trunc"))


def test_hidden_partition_paths(place: Place) -> None:
    spec = PartitionSpec(*BY_C2.fields, PartitionField(3, 1001, IdentityTransform(), "c3"))
    made_anew(place, HIDDEN, spec)
    strays = [place.put(f"data/_c2_trunc=AA/c3=AAAA/{number}.parquet") for number in range(2)]
    assert place.found() == strays


def test_hidden_partition_paths_with_partition_evolution(place: Place) -> None:
    made_anew(place, HIDDEN, BY_C2)
    with place.table.update_spec() as change:
        change.add_identity("_c1")
    strays = [place.put(f"data/_c2_trunc=AA/{below}x.parquet") for below in ("", "_c1=1/")]
    assert place.found() == sorted(strays)


def test_hidden_paths_starting_with_partition_names_are_ignored(place: Place) -> None:
    made_anew(place, HIDDEN, BY_C2)
    place.put("data/_c2_trunc/file.txt")
    assert place.found() == []


def test_remove_orphan_files_with_relative_file_path(place: Place) -> None:
    """The location names no scheme."""
    world = place.world
    location = place.table.location().removeprefix("file://") + "2"
    place.table = world.catalog.create_table("db.t2", SCHEMA, location=location)
    writer.append(place.table, [row(1, "a")])
    place.root = Path(location)
    stray = place.put("data/stray.parquet")
    plan = world.maintaining.preview(world.table("cat.db.t2").identifier, "clean-orphan-files").plan
    assert plan is not None
    assert [one.path for one in plan.condemned] == [stray]


# Paths


def searched(valid: str, actual: str, **more: str) -> Sequence[str]:
    """What is an orphan of that file, where the table names the other."""

    def places_of(paths: Sequence[str]) -> list[set[tuple[str, str]]]:
        known = set(looser_spellings(valid))
        return [{split_place(valid)[:2]} if known & set(looser_spellings(path)) else set() for path in paths]

    equal = {name: settled_names(text) for name, text in more.items()}
    search = Search(
        replace(GROUND, **equal), Named(places_of), Terms(NOW, timedelta(days=2), timedelta(), Surroundings())
    )
    place = actual.rpartition("/dir1")[0]
    search.see(place, [StoredFile(actual, 1, OLD)])
    return [one.path for one in search.end().orphans]


@pytest.mark.parametrize(
    ("valid", "actual", "equal"),
    [
        ("file:///dir1/dir2/file1", "/dir1//dir2///file1", {}),  # testPathsWithExtraSlashes
        (
            "hdfs:///dir1/dir2/file1",
            "hdfs://servicename/dir1/dir2/file1",
            {},
        ),  # testPathsWithValidFileHavingNoAuthority
        (
            "hdfs://servicename/dir1/dir2/file1",
            "hdfs:///dir1/dir2/file1",
            {},
        ),  # testPathsWithActualFileHavingNoAuthority
        ("scheme1://b/dir1/file1", "scheme2://b/dir1/file1", {"same_schemes": "scheme1,scheme2=scheme"}),
        ("hdfs://name1/dir1/file1", "hdfs://name2/dir1/file1", {"same_authorities": "name1,name2=name"}),
    ],
)
def test_paths_with_equal_schemes_and_authorities(valid: str, actual: str, equal: dict[str, str]) -> None:
    assert searched(valid, actual, **equal) == []


@pytest.mark.parametrize("actual", ["scheme2://b/dir1/file1", "scheme1://c/dir1/file1"])
def test_paths_with_different_schemes_and_authorities(actual: str) -> None:
    with pytest.raises(TableRefused, match="it may be the same file"):
        searched("scheme1://b/dir1/file1", actual)
