"""By which rules a listed file is an orphan, is kept, or stops the search."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from amoro_core.errors import CatalogUnavailable, TableRefused
from amoro_core.maintenance.orphans import (
    AFTER_THE_END,
    IN_FLIGHT,
    LEAST_AGE,
    MOST_AHEAD,
    OrphanConditions,
    OrphanConfig,
    ReferencedFiles,
    Search,
    SearchResult,
    TableLocations,
    breaker,
    is_in_flight,
    kind_of,
    outermost,
    refuse_shared,
    settled_names,
)
from amoro_core.model.maintenance import Condemned, FileKind, KeyRange, StoredFile, Surroundings
from amoro_core.model.paths import path_aliases, split_place
from amoro_core.model.properties import parse_into

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
AGE = timedelta(days=2)
OLD = NOW - timedelta(days=3)
PROCESS = "01a1e9dc-799b-7004-9888-6e5310144642"
OUTPUT = f"{PROCESS}-1-1-226bceb4-0058-4d6e-ad33-518b5d84790c.parquet"
GROUND = TableLocations(
    location="s3://b/wh/db/t",
    places=("s3://b/wh/db/t/data", "s3://b/wh/db/t/metadata"),
    metadata_place="s3://b/wh/db/t/metadata",
    flink_place="s3://b/wh/db/t/metadata",
    writable=("s3://b/wh/db/t",),
)
DATA = GROUND.places[0]
TICK = timedelta(microseconds=1)


def named(*paths: str, place: tuple[str, str] = ("s3", "b")) -> ReferencedFiles:
    return ReferencedFiles(lambda asked: [{place} if one in paths else set() for one in asked])


def file(path: str, at: datetime | None = OLD, size: int = 10) -> StoredFile:
    return StoredFile(path if ":" in path else f"{DATA}/{path}", size, at)


def terms(**more: object) -> OrphanConditions:
    return replace(OrphanConditions(NOW, AGE, timedelta(hours=2), Surroundings()), **more)


def searched(
    *files: StoredFile, ground: TableLocations = GROUND, place: str = DATA, by: OrphanConditions | None = None
) -> SearchResult:
    search = Search(ground, named(f"{DATA}/named"), by or terms())
    search.see(place, files)
    return search.end()


def orphans(found: SearchResult) -> list[str]:
    return [one.path.removeprefix(f"{DATA}/") for one in found.orphans]


def test_a_file_is_young_until_it_is_older_than_the_age() -> None:
    assert orphans(searched(file("x", NOW - AGE), file("y", NOW - AGE - TICK))) == ["y"]


def test_the_age_is_never_less_than_a_day() -> None:
    key = "clean-orphan-file.min-existing-time-minutes"
    assert OrphanConfig().age == timedelta(days=2)
    assert parse_into(OrphanConfig, {key: "1439"}).age == LEAST_AGE == timedelta(days=1)
    assert parse_into(OrphanConfig, {key: "1441"}).age == timedelta(minutes=1441)


def test_a_file_without_time_is_kept_and_more_than_half_without_stop_the_search() -> None:
    found = searched(file("x", None), file("y"))
    assert (orphans(found), found.kept["without a time"]) == (["y"], 1)
    with pytest.raises(CatalogUnavailable, match="2 of 3 listed files have no modification time"):
        searched(file("x", None), file("named", None), file("z"))


def test_a_time_ahead_of_now_stops_the_search_whoever_needs_the_file() -> None:
    assert searched(file("named", NOW + MOST_AHEAD), file("y")).orphans
    with pytest.raises(CatalogUnavailable, match="later than now"):
        searched(file("y"), file("named", NOW + MOST_AHEAD + TICK))


@pytest.mark.parametrize("below", ["_x", ".x", "_delta_log/0.json", "a/.b/c", "_p=1/_x", "_other=1/x"])
def test_hidden_names_are_kept(below: str) -> None:
    """A partition field may begin like one; `version-hint.text` is of a directory table."""
    ground = replace(GROUND, partition_fields=("_p", ".q", "p"))
    found = searched(
        file(below), file("_y"), file("_p=1/x"), file(".q=1/x"), file("metadata/version-hint.text"), ground=ground
    )
    assert (orphans(found), found.kept["hidden"]) == (["_p=1/x", ".q=1/x"], 3)


def test_what_is_condemned_or_used_is_kept_in_any_spelling() -> None:
    around = Surroundings(paths=frozenset({"s3a://b//wh/db/t/data/u%20v"}), condemned=frozenset({f"{DATA}/c"}))
    found = searched(file("u v"), file("c"), file("f"), by=terms(around=around, in_flight=frozenset({f"{DATA}/f"})))
    assert found.orphans == []
    assert found.kept == Counter({"used by a process or not committed yet": 2, "condemned already": 1})


def test_outputs_of_an_active_process_are_kept_and_those_of_an_ended_one_go_soon() -> None:
    young = file(OUTPUT, NOW)
    assert searched(young).orphans == []
    assert orphans(searched(file(OUTPUT))) == [OUTPUT]  # of nobody's process: like any other file
    assert searched(file(OUTPUT), by=terms(around=Surroundings(active=frozenset({PROCESS})))).orphans == []
    ended = {PROCESS: NOW - timedelta(hours=2) - AFTER_THE_END}
    assert orphans(searched(young, by=terms(around=Surroundings(ended=ended)))) == [OUTPUT]
    ended = {PROCESS: NOW - timedelta(hours=2) - AFTER_THE_END + TICK}
    assert searched(file(OUTPUT), by=terms(around=Surroundings(ended=ended))).orphans == []
    ended = {PROCESS: OLD}
    assert searched(file(OUTPUT, None), file("named"), by=terms(around=Surroundings(ended=ended))).orphans == []


@pytest.mark.parametrize(
    ("valid", "actual", "equal"),
    [
        ("file:///dir1/dir2/file1", "/dir1//dir2///file1", {}),
        ("hdfs:///dir1/dir2/file1", "hdfs://servicename/dir1/dir2/file1", {}),
        ("hdfs://servicename/dir1/dir2/file1", "hdfs:///dir1/dir2/file1", {}),
        ("scheme1://b/dir1/file1", "scheme2://b/dir1/file1", {"same_schemes": "scheme1,scheme2=scheme"}),
        ("hdfs://name1/dir1/file1", "hdfs://name2/dir1/file1", {"same_authorities": "name1,name2=name"}),
        ("s3://b/dir1/file1", "s3://c/dir1/file1", {"same_authorities": "c=b"}),
        ("s3://b/dir1/file1", "s3://c/dir1/file1", {"same_authorities": "b=c"}),
    ],
)
def test_the_same_path_elsewhere_stops_the_search_unless_the_two_places_are_equal(
    valid: str, actual: str, equal: dict[str, str]
) -> None:
    """As Iceberg tests paths in `TestRemoveOrphanFilesAction`."""

    def search(**same: str) -> list[Condemned]:
        def places_of(paths: Sequence[str]) -> list[set[tuple[str, str]]]:
            known = set(path_aliases(valid))
            return [{split_place(valid)[:2]} if known & set(path_aliases(path)) else set() for path in paths]

        ground = replace(GROUND, **{name: settled_names(text) for name, text in same.items()})
        made = Search(ground, ReferencedFiles(places_of), terms())
        made.see(actual.rpartition("/dir1")[0], [file(actual) if ":" in actual else StoredFile(actual, 1, OLD)])
        return list(made.end().orphans)

    assert search(**equal) == []
    if equal:
        with pytest.raises(TableRefused, match="it may be the same file") as refused:
            search()
        assert refused.value.reason == "authority"


@pytest.mark.parametrize("text", ["a", "a=", "=b", "a=b;c"])
def test_equal_names_are_said_in_one_way_only(text: str) -> None:
    with pytest.raises(ValueError, match="equal to one"):
        settled_names(text)


def test_equal_names_are_many_to_one() -> None:
    assert settled_names(" a, b=c ; d = e;") == {"a": "c", "b": "c", "d": "e"}


def test_a_listing_without_a_file_that_is_there_for_certain_was_cut() -> None:
    ground = replace(GROUND, must_be_listed=(f"{DATA}/named",))
    assert searched(file("named"), ground=ground).files == 1
    with pytest.raises(CatalogUnavailable, match="it was cut"):
        searched(file("x"), ground=ground)


def test_in_a_place_that_tables_share_only_paths_with_the_tables_own_names_go() -> None:
    place = "s3://lake/all"
    own = file(f"{place}/0101/0/db/t/p=1/x.parquet")
    found = searched(own, file(f"{place}/0101/0/db/tt/x"), file(f"{place}/x"), file(f"{place}/xdb/t/x"), place=place)
    assert [one.path for one in found.orphans] == [own.path]
    assert found.kept["in a place that tables share"] == 3
    assert searched(file("s3://lake/db/t/x"), place="s3://lake/db/t").orphans


def test_metadata_files_go_by_the_table_that_they_are_of() -> None:
    search = Search(GROUND, named(), terms())
    place = GROUND.metadata_place
    names = (
        "1-a.metadata.json",
        "v1.gz.metadata.json",
        "2-b.metadata.json.gz",
        "young.metadata.json",
        "c.metadata.json",
    )
    files = [file(f"{place}/{name}", NOW if "young" in name else OLD) for name in names]
    search.see(place, files)
    assert search.found.metadata_files == files
    search.opened({files[0].path: "U", files[1].path: "", files[3].path: "u"}, "u")
    assert search.found.kept == Counter({"metadata that can't be read": 3, "young": 1})
    assert [(one.path, one.kind) for one in search.end().orphans] == [(files[0].path, FileKind.METADATA)]
    search.see(place, files[3:])
    with pytest.raises(TableRefused, match="another table, with the UUID other") as refused:
        search.opened({files[3].path: "other"}, "u")
    assert refused.value.reason == "shared-location"


@pytest.mark.parametrize(
    "other", ["s3://b/wh/db/t", "s3://b/wh/db/t/data/inner", "s3://b/wh", "s3://lake/all/deep", "s3://elsewhere/db/t"]
)
def test_a_table_at_above_or_below_one_of_the_places_is_named(other: str) -> None:
    places = (*GROUND.places, "s3://lake/all")
    refuse_shared("cat.db.t", GROUND, places, {"cat.db.u": "s3://b/wh/db/tt"})
    with pytest.raises(TableRefused, match=r"cat\.db\.t and cat2\.x\.y share a place") as refused:
        refuse_shared("cat.db.t", GROUND, places, {"cat2.x.y": other})
    assert refused.value.reason == "shared-location"


def test_a_namesake_elsewhere_is_no_matter_where_all_files_lie_in_the_location() -> None:
    refuse_shared("cat.db.t", GROUND, GROUND.places, {"cat2.db.t": "s3://elsewhere/db/t"})


def test_places_within_others_are_listed_once() -> None:
    assert outermost(["s3a://b/x/", "s3://b/x/y", "s3://b/xy", "", "s3://b/x"]) == ("s3://b/x", "s3://b/xy")


@pytest.mark.parametrize(
    ("name", "in_metadata", "in_data"),
    [
        ("snap-1-1-a.avro", FileKind.MANIFEST_LIST, FileKind.DATA),
        ("a-m0.avro", FileKind.MANIFEST, FileKind.DATA),
        ("a.stats", FileKind.STATISTICS, FileKind.STATISTICS),
        ("partition-stats-1-a.parquet", FileKind.STATISTICS, FileKind.STATISTICS),
        ("a.metadata.json", FileKind.METADATA, FileKind.METADATA),
        ("a.puffin", FileKind.STATISTICS, FileKind.DELETE),
        ("a-deletes.parquet", FileKind.DELETE, FileKind.DELETE),
        ("a", FileKind.OTHER, FileKind.OTHER),
    ],
)
def test_the_kind_of_a_file_is_told_by_its_name_and_place(name: str, in_metadata: FileKind, in_data: FileKind) -> None:
    assert kind_of(f"/t/metadata/{name}", in_metadata=True) is in_metadata
    assert kind_of(f"/t/data/{name}", in_metadata=False) is in_data


def test_flinks_manifests_are_known_by_their_names_for_a_week() -> None:
    name = f"s3://b/m/{'0a' * 16}-operator-1-00000-0-12-00003-x.avro"
    assert is_in_flight(file(name, NOW - IN_FLIGHT + TICK), NOW)
    assert is_in_flight(file(name, None), NOW)
    assert not is_in_flight(file(name, NOW - IN_FLIGHT), NOW)
    assert is_in_flight(file(name.replace("-x.", "."), NOW), NOW)
    assert not is_in_flight(file("s3://b/m/0a-operator-1-00000-0-12-00003.avro", NOW), NOW)
    assert not is_in_flight(file("s3://b/m/226bceb4-0058-4d6e-ad33-518b5d84790c-m0.avro", NOW), NOW)


def test_a_manifest_of_flink_that_was_not_opened_stops_the_search() -> None:
    """The listing by which those were sought was cut: what it names may be an orphan of the other listing."""
    name = f"{GROUND.flink_place}/{'0a' * 16}-operator-1-00000-0-12-00003.avro"
    for moment in (NOW - AGE - TICK, None):
        with pytest.raises(CatalogUnavailable, match=f"{name} is a manifest that Flink may still commit"):
            searched(file(name, moment))
        read = terms(in_flight=frozenset({name}))
        assert orphans(searched(file(name, moment), file("named"), by=read)) == []
    assert orphans(searched(file(name, NOW - AGE))) == []  # it came between the two listings
    assert searched(file(name, NOW - IN_FLIGHT)).orphans != []


def test_a_table_in_the_location_is_told_before_its_manifest_of_flink() -> None:
    search = Search(GROUND, named(), terms())
    manifest = f"inner/metadata/{'0a' * 16}-operator-1-00000-0-12-00003.avro"
    metadata = "inner/metadata/00001-x.metadata.json"
    search.see(DATA, [file(manifest, NOW - AGE - TICK), file(metadata)])
    with pytest.raises(TableRefused, match="a metadata file of another table"):
        search.opened({f"{DATA}/{metadata}": "b"}, "a")
    with pytest.raises(CatalogUnavailable, match=f"{manifest} is a manifest that Flink may still commit"):
        search.opened({}, "a")


def test_a_path_with_a_spelling_outside_the_known_range_is_kept() -> None:
    """What is named there stands in the range of another task."""
    first, last = (min(path_aliases(f"{DATA}/{name}")) for name in "mz")
    within = KeyRange(first, last)
    found = searched(file("plain"), file("n%20x"), file("named"), by=terms(within=within))
    assert orphans(found) == ["plain", "n%20x"]
    outside = searched(file("a"), file("plain"), by=terms(within=within))
    assert (orphans(outside), outside.kept["spelled in a way that is looked for elsewhere"]) == (["plain"], 1)


def some(count: int, size: int = 1) -> list[Condemned]:
    return [Condemned(f"{DATA}/{at}", FileKind.DATA, size, OLD, "") for at in range(count)]


@pytest.mark.parametrize(
    ("found", "word"),
    [
        (SearchResult(some(20), files=100, bytes=100), ""),
        (SearchResult(some(21), files=100, bytes=1000), "20 %"),
        (SearchResult(some(1, 21), files=100, bytes=100), "20 % of bytes"),
        (SearchResult(some(99), files=99, bytes=99), ""),  # too few to tell
        (SearchResult(some(10_000), files=100_000, bytes=10**6), ""),
        (SearchResult(some(10_001), files=100_000, bytes=10**6), "more than 10000"),
        (SearchResult(some(1, 10**12), files=10**6, bytes=10**14), ""),
        (SearchResult(some(1, 10**12 + 1), files=10**6, bytes=10**14), "bytes"),
    ],
)
def test_too_much_at_a_time_is_held(found: SearchResult, word: str) -> None:
    said = breaker(found)
    assert bool(said) == bool(word)
    assert word.split(" of ")[0] in said
