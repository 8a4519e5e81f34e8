"""Where data files lie is told by their directories, with the same outcome as path by path."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from amoro_core.errors import TableRefused
from amoro_core.files.confining import require_all_real, require_real
from amoro_core.iceberg.contradictions import refuse_twice_live
from amoro_core.iceberg.scan import _refuse_parts_outside, refuse_outside
from amoro_core.live.files import LiveFiles
from amoro_core.live.matching import match
from amoro_core.live.spelling import Names, Paths
from amoro_core.model.files import TableScan
from amoro_core.model.paths import normalise
from tests.unit.planning.builders import data, position_delete

LOCATIONS = ("/w/t", "s3://bucket/t", "s3://bucket/other/file", "hdfs://h/t")
PARTS = ("w", "t", "data", "file", "..", ".", "", "bucket", "other", "f.parquet", "a\0b", "t2")
STARTS = (
    "/",
    "file:/",
    "file:///",
    "s3://bucket/",
    "s3a://bucket/",
    "hdfs://h/",
    "",
    "s3:/",
    "file://w/",
    "/w/t/",
    "/w/t/data/",
)


def of(paths: list[str]) -> Paths:
    return Paths(pa.array(paths, pa.string()))


def outcome(paths: list[str], *, by_columns: bool) -> str | None:
    try:
        if by_columns:
            _refuse_parts_outside([of(paths[:1]), of(paths[1:])], LOCATIONS, "")
        else:
            refuse_outside(paths, LOCATIONS)
    except TableRefused as refusal:
        return refusal.message
    return None


def test_random_paths_are_refused_as_one_by_one() -> None:
    chance, seen = random.Random(5), Counter[bool]()
    for _ in range(4000):
        paths = [
            chance.choice(STARTS) + "/".join(chance.choices(PARTS, k=chance.randint(0, 4)))
            for _ in range(chance.choice([1, 1, 2, 4]))
        ]
        expected = outcome(paths, by_columns=False)
        assert outcome(paths, by_columns=True) == expected, paths
        seen[expected is None] += 1
    assert min(seen.values()) > 200


def test_a_location_that_is_a_file_lets_no_other_file_of_its_directory_pass() -> None:
    assert outcome(["s3://bucket/other/file"], by_columns=True) is None
    assert outcome(["s3://bucket/other/file", "s3://bucket/other/f.parquet"], by_columns=True) is not None


def test_a_directory_that_links_lead_out_of_the_locations_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "t" / "data").symlink_to(tmp_path / "elsewhere")
    paths = of([f"{tmp_path}/t/data/f.parquet"])
    with pytest.raises(TableRefused, match="links lead"):
        _refuse_parts_outside([paths], (f"{tmp_path}/t",), "")


def test_a_path_that_is_live_twice_is_found_however_it_is_spelled() -> None:
    chance = random.Random(6)
    starts = ("/t/", "file:/t/", "file:///t/", "s3://t/", "s3a://t/", "/./t/", "FILE:/t/", "//t/")
    seen: Counter[bool] = Counter()
    for _ in range(3000):
        some = chance.choices(starts, k=chance.choice([1, 1, 2]))
        paths = [chance.choice(some) + str(chance.randrange(30)) for _ in range(chance.randint(0, 8))]
        counts = Counter(map(normalise, paths))
        cut = chance.randint(0, len(paths))
        found = Names([of(paths[:cut]), of(paths[cut:])]).repeated()
        assert (found is None) is (max(counts.values(), default=1) == 1), paths
        assert found is None or counts[found] > 1
        seen[found is None] += 1
    assert min(seen.values()) > 200


def test_names_that_follow_others_are_found_as_without_them() -> None:
    chance, seen = random.Random(7), Counter[bool]()
    for _ in range(1000):
        parts = [of([f"/t/{chance.randrange(40)}" for _ in range(chance.randint(0, 6))]) for _ in range(6)]
        first = chance.randint(0, 3)
        before = Names(parts[first : first + chance.randint(0, 3)])
        if chance.random() < 0.9:
            before.repeated()  # sorts them
        now = list(parts)
        if chance.random() < 0.3:
            chance.shuffle(now)
        followed, alone = Names(now), Names(now)
        followed.follow(before)
        seen[followed._known is None] += 1
        names = [f"/t/{at}" for at in chance.sample(range(40), 10)]
        assert pairs(followed, names) == pairs(alone, names)
        assert (followed.repeated() is None) is (alone.repeated() is None)
    assert min(seen.values()) > 200


def pairs(names: Names, wanted: list[str]) -> list[tuple[int, int]]:
    files, at = names.find(wanted)
    return sorted(zip(files.tolist(), at.tolist(), strict=True))


def test_names_follow_in_which_parts_came_at_the_beginning_or_the_end() -> None:
    one, two, new = of(["/t/1", "/t/2"]), of(["/t/3"]), of(["/t/0"])
    before = Names([one, two])
    assert before.repeated() is None
    for parts, at in (([new, one, two], 3), ([one, two, new], 2), ([one, new, two], 3)):
        names = Names(parts)
        names.follow(before)
        assert names.find(["/t/3"])[0].tolist() == [at]


def test_a_data_file_that_is_a_delete_file_too_is_live_twice() -> None:
    one, other = data("one", 1), data("other", 1)
    both = replace(position_delete("p", other), path=f"file:{one.path}")
    live, dangling = match([one, other], [both], frozenset())
    assert isinstance(live, LiveFiles)
    with pytest.raises(TableRefused, match=r"/t/data/one\.parquet is live more than once in snapshot 1"):
        refuse_twice_live(TableScan(1, 2, live, dangling))


def test_links_of_many_places_are_followed_as_of_each(tmp_path: Path) -> None:
    chance, seen = random.Random(11), Counter[bool]()
    inside, outside = tmp_path / "t", tmp_path / "elsewhere"
    for parent in (inside, outside):
        for name in "abc":
            (parent / name / "d").mkdir(parents=True)
    for number in range(6):
        target = chance.choice([inside, outside]) / chance.choice("abc")
        (chance.choice([inside, inside / "a", inside / "b" / "d"]) / f"link{number}").symlink_to(target)
    places = [str(one) for one in [inside, *inside.rglob("*")] if one.is_dir()]
    places += [f"{one}/d" for one in places] + [f"{one}/missing/d" for one in places] + ["/", str(outside)]
    for prefixes in ((str(inside),), (f"file://{inside}", "s3://bucket"), (str(inside / "link0"), str(inside / "a"))):
        for place in places:
            alone, among = _refused_by(require_real, place, prefixes), _refused_by(require_all_real, [place], prefixes)
            assert alone == among, place
            seen[alone is None] += 1
        allowed = [place for place in places if _refused_by(require_real, place, prefixes) is None]
        require_all_real(allowed, prefixes, "read")
        refused = next(place for place in places if place not in allowed)
        assert _refused_by(require_all_real, [*allowed, refused], prefixes) is not None
    assert min(seen.values()) > 10


def _refused_by(require: Callable[..., None], what: str | list[str], prefixes: tuple[str, ...]) -> str | None:
    try:
        require(what, prefixes, "read")
    except TableRefused as refusal:
        return refusal.message
    return None
