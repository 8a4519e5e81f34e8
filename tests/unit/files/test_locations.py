"""Paths and places, and what may be touched."""

from itertools import product
from pathlib import Path

import pytest

from amoro_core.errors import DataFileMissing, TableRefused, WorkFailed
from amoro_core.files.io import FileAccess, normalise, open_access, same_place
from amoro_core.files.locations import new_location
from amoro_core.model.paths import is_within, looser_spellings, split_place


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/w/t/a.parquet", "/w/t/a.parquet"),
        ("file:/w/t/a.parquet", "/w/t/a.parquet"),
        ("file:///w/t/a.parquet", "/w/t/a.parquet"),
        ("file:////w//t/./a.parquet/", "/w/t/a.parquet"),
        ("file://localhost/w//t/./a.parquet", "/w/t/a.parquet"),
        ("FILE:///w/t/", "/w/t"),
        ("/w/k=a:b/c%20d#e?f", "/w/k=a:b/c%20d#e?f"),
        ("s3a://b/k/a", "s3://b/k/a"),
        ("s3n://b/k/a", "s3://b/k/a"),
        ("s3://b/k//a", "s3://b/k//a"),
        ("s3://b/", "s3://b"),
        ("gcs://b/k", "gs://b/k"),
        ("abfss://c@a.dfs.core.windows.net/k", "abfss://c@a.dfs.core.windows.net/k"),
        ("file://host/w", "file://host/w"),
        ("/", "/"),
    ],
)
def test_each_place_has_one_spelling(path: str, place: str) -> None:
    assert normalise(path) == place
    assert normalise(place) == place
    assert same_place(path, place)


def test_empty_segments_and_dots_are_left_out_wherever_they_are() -> None:
    for length in range(8):
        for path in map("".join, product("/.a", repeat=length)):
            kept = [segment for segment in path.split("/") if segment not in ("", ".")]
            assert normalise(path) == ("/" if path.startswith("/") else "") + "/".join(kept)


@pytest.mark.parametrize(
    ("path", "spellings"),
    [
        ("s3a://b/k/a", ("/k/a",)),
        ("file:/k/a", ("/k/a",)),
        ("abfss://c@a/k//x/./y/../a", ("/k/x/a",)),
        ("s3://b/k/a%20b", ("/k/a%20b", "/k/a b")),
        ("s3://b/k/a%2520b", ("/k/a%2520b", "/k/a%20b")),  # decoded once
        ("s3://b/k/a%2Fb%", ("/k/a%2Fb%", "/k/a/b%")),
        ("s3://b/k/Zu\u0308rich", ("/k/Z\u00fcrich",)),
        ("s3://b/k/Z%C3%BCrich", ("/k/Z%C3%BCrich", "/k/Z\u00fcrich")),
        ("s3://b//k/a", ("/k/a",)),
        ("s3://b", ("/",)),
    ],
)
def test_looser_spellings_of_one_file_have_one_in_common(path: str, spellings: tuple[str, ...]) -> None:
    assert looser_spellings(path) == spellings


def test_a_place_has_scheme_authority_and_path() -> None:
    assert split_place("s3a://b/k/") == ("s3", "b", "/k")
    assert split_place("file:///k") == split_place("/k") == ("file", "", "/k")
    assert split_place("file://host/k") == ("file", "host", "/k")


def test_other_hosts_buckets_and_cases_are_other_places() -> None:
    assert not same_place("s3://b/k", "s3://c/k")
    assert not same_place("/w/T", "/w/t")
    assert not same_place("file://host/w", "/w")


@pytest.mark.parametrize(
    ("path", "location", "within"),
    [
        ("/w/t/a", "/w/t", True),
        ("file:/w/t/a", "file:///w/t/", True),
        ("/w/t", "/w/t", True),
        ("/w/table/a", "/w/t", False),
        ("s3a://b/w/t/a", "s3://b/w/t", True),
        ("s3://b/w/t2/a", "s3://b/w/t", False),
        ("s3://b2/w", "s3://b", False),
        ("/anything", "/", True),
    ],
)
def test_prefixes_end_at_segments(path: str, location: str, within: bool) -> None:
    assert is_within(path, location) is within


@pytest.fixture
def access(tmp_path: Path) -> FileAccess:
    return open_access(
        {},
        str(tmp_path),
        read_locations=[f"{tmp_path}/in", f"{tmp_path}/out"],
        write_locations=[f"file:{tmp_path}/out"],
    )


def test_what_was_written_is_read_and_deleted_again(access: FileAccess, tmp_path: Path) -> None:
    path = f"file://{tmp_path}/out/k=a%2Fb#c?d/x"
    with access.create_output(path) as stream:
        stream.write(b"content")

    assert (tmp_path / "out/k=a%2Fb#c?d/x").read_bytes() == b"content"
    assert (access.read_bytes(path), access.size(path), access.exists(path)) == (b"content", 7, True)
    with access.open_input(path) as stream:
        stream.seek(3)
        assert stream.read() == b"tent"
    access.delete(path)
    assert not access.exists(path)
    access.delete(path)


def test_a_file_is_never_overwritten(access: FileAccess, tmp_path: Path) -> None:
    path = f"{tmp_path}/out/x"
    access.create_output(path).close()

    with pytest.raises(WorkFailed, match="exists"):
        access.create_output(path)


def test_a_missing_file_is_named(access: FileAccess, tmp_path: Path) -> None:
    path = f"{tmp_path}/in/none"
    for ask in (access.read_bytes, access.open_input, access.size):
        with pytest.raises(DataFileMissing, match=path):
            ask(path)


@pytest.mark.parametrize("path", ["{}/secret", "{}/in/../secret", "{}/inside", "s3://b/k", "relative/x"])
def test_reading_outside_the_allowed_locations_is_refused(access: FileAccess, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    for ask in (access.read_bytes, access.open_input, access.size, access.exists):
        with pytest.raises(TableRefused, match="will not read") as refused:
            ask(path.format(tmp_path))
        assert refused.value.reason == "location"


@pytest.mark.parametrize("path", ["{}/in/x", "{}/out/../in/x", "{}/outside"])
def test_writing_and_deleting_outside_the_table_is_refused(access: FileAccess, tmp_path: Path, path: str) -> None:
    place = tmp_path / "in/x"
    place.parent.mkdir()
    place.write_bytes(b"kept")
    with pytest.raises(TableRefused, match="will not write"):
        access.create_output(path.format(tmp_path))
    with pytest.raises(TableRefused, match="will not delete"):
        access.delete(path.format(tmp_path))
    assert place.read_bytes() == b"kept"


def test_properties_that_name_classes_are_never_imported(tmp_path: Path) -> None:
    properties = {
        "py-io-impl": "tests.unit.files.evil.Evil",
        "write.py-location-provider.impl": "tests.unit.files.evil.Evil",
        "s3.retry-strategy-impl": "tests.unit.files.evil.Evil",
        "s3.region": "eu-west-1",
    }

    access = open_access(properties, "s3://b/t", read_locations=[str(tmp_path)], write_locations=[str(tmp_path)])

    access.create_output(f"{tmp_path}/x").close()
    assert access.exists(f"{tmp_path}/x")


HASHED = {"write.object-storage.enabled": "true"}
BARE = {**HASHED, "write.object-storage.partitioned-paths": "false"}


@pytest.mark.parametrize(
    ("data_location", "directory", "properties", "expected"),
    [
        ("s3://b/ns/t/data/", "day=1", {}, "s3://b/ns/t/data/day=1/x.parquet"),
        ("s3://b/ns/t/data", "", {}, "s3://b/ns/t/data/x.parquet"),
        ("s3://b/ns/t/data", "", HASHED, "s3://b/ns/t/data/1110/1000/1010/11100100/x.parquet"),
        ("s3://b/ns/t/data", "day=1", HASHED, "s3://b/ns/t/data/0000/1110/0110/01101000/day=1/x.parquet"),
        ("s3://b/ns/t/data", "day=1", BARE, "s3://b/ns/t/data/1110/1000/1010/11100100/x.parquet"),
        ("s3://o/all", "", HASHED, "s3://o/all/1110/1000/1010/11100100/ns/t/x.parquet"),
        ("s3://o/all", "day=1", HASHED, "s3://o/all/0000/1110/0110/01101000/ns/t/day=1/x.parquet"),
        ("s3://o/all", "day=1", {}, "s3://o/all/day=1/x.parquet"),
    ],
)
def test_files_of_object_stores_lie_below_a_hash_of_their_own_path(
    data_location: str, directory: str, properties: dict[str, str], expected: str
) -> None:
    # With Java's own provider the tests with Spark compare.
    assert new_location("s3://b/ns/t", data_location, directory, "x.parquet", properties) == expected


def test_an_unknown_storage_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TableRefused, match="'ftp'") as refused:
        open_access({}, "ftp://host/t", read_locations=[], write_locations=[])
    assert refused.value.reason == "location"
