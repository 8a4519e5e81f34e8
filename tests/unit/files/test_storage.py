"""Files and places: what may be touched, how paths are spelled, and files listed, looked at, moved and deleted."""

from __future__ import annotations

import errno
import io
import os
import socket
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import product
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from amoro_core.errors import DataFileMissing, StorageFull, TableRefused, WorkFailed
from amoro_core.files.deletes.vectors import write_vectors
from amoro_core.files.storage.io import FileAccess, new_location, open_access
from amoro_core.files.storage.stores import PAGE, ArrowStorage, LocalStorage, Storage
from amoro_core.model.maintenance import ABSENT, DELETED, MOVED, Ended, Removal, StoredFile
from amoro_core.model.paths import is_within, normalise, path_aliases, split_place


@pytest.mark.parametrize(
    ("path", "place"),
    [
        ("/w/t/a.parquet", "/w/t/a.parquet"),
        ("file:///w/t/a.parquet", "/w/t/a.parquet"),
        ("file:////w//t/./a.parquet/", "/w/t/a.parquet"),
        ("file://localhost/w//t/./a.parquet", "/w/t/a.parquet"),
        ("/w/k=a:b/c%20d#e?f", "/w/k=a:b/c%20d#e?f"),
        ("s3a://b/k/a", "s3://b/k/a"),
        ("s3://b/k//a", "s3://b/k//a"),
        ("s3://b/", "s3://b"),
        ("gcs://b/k", "gs://b/k"),
        ("abfss://c@a.dfs.core.windows.net/k", "abfss://c@a.dfs.core.windows.net/k"),
        ("file://host/w", "file://host/w"),
        ("/a/../b", "/a/../b"),
        ("/", "/"),
    ],
)
def test_each_place_has_one_spelling(path: str, place: str) -> None:
    assert normalise(path) == place
    assert normalise(place) == place


def test_empty_segments_and_dots_are_left_out_wherever_they_are() -> None:
    for length in range(8):
        for path in map("".join, product("/.a", repeat=length)):
            kept = [segment for segment in path.split("/") if segment not in ("", ".")]
            assert normalise(path) == ("/" if path.startswith("/") else "") + "/".join(kept)


@pytest.mark.parametrize(
    ("path", "spellings"),
    [
        ("file:/k/a", ("/k/a",)),
        ("abfss://c@a/k//x/./y/../a", ("/k/x/a",)),
        ("s3://b/k/a%20b", ("/k/a%20b", "/k/a b")),
        ("s3://b/k/a%2520b", ("/k/a%2520b", "/k/a%20b")),  # decoded once
        ("s3://b/k/a%2Fb%", ("/k/a%2Fb%", "/k/a/b%")),
        ("s3://b/k/Zu\u0308rich", ("/k/Z\u00fcrich",)),
        ("s3://b/k/Z%C3%BCrich", ("/k/Z%C3%BCrich", "/k/Z\u00fcrich")),
        ("s3://b", ("/",)),
    ],
)
def test_looser_spellings_of_one_file_have_one_in_common(path: str, spellings: tuple[str, ...]) -> None:
    assert path_aliases(path) == spellings


def test_a_place_has_scheme_authority_and_path() -> None:
    assert split_place("s3a://b/k/") == ("s3", "b", "/k")
    assert split_place("file:///k") == split_place("/k") == ("file", "", "/k")
    assert split_place("file://host/k") == ("file", "host", "/k")


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
def written_to(tmp_path: Path) -> FileAccess:
    return open_access(
        {},
        str(tmp_path),
        read_locations=[f"{tmp_path}/in", f"{tmp_path}/out"],
        write_locations=[f"file:{tmp_path}/out"],
    )


def test_what_was_written_is_read_and_deleted_again(written_to: FileAccess, tmp_path: Path) -> None:
    path = f"file://{tmp_path}/out/k=a%2Fb#c?d/x"
    with written_to.create_output(path) as stream:
        stream.write(b"content")

    assert (tmp_path / "out/k=a%2Fb#c?d/x").read_bytes() == b"content"
    assert (written_to.read_bytes(path), written_to.size(path), written_to.exists(path)) == (b"content", 7, True)
    with written_to.open_input(path) as stream:
        stream.seek(3)
        assert stream.read() == b"tent"
    written_to.delete(path)
    assert not written_to.exists(path)
    written_to.delete(path)


def test_a_missing_file_is_named_and_none_is_overwritten(written_to: FileAccess, tmp_path: Path) -> None:
    path = f"{tmp_path}/out/x"
    written_to.create_output(path).close()

    with pytest.raises(WorkFailed, match="exists"):
        written_to.create_output(path)
    path = f"{tmp_path}/in/none"
    for ask in (written_to.read_bytes, written_to.open_input, written_to.size):
        with pytest.raises(DataFileMissing, match=path):
            ask(path)


@pytest.mark.parametrize("path", ["{}/secret", "{}/in/../secret", "{}/inside", "s3://b/k", "relative/x"])
def test_reading_outside_the_allowed_locations_is_refused(written_to: FileAccess, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_bytes(b"s")
    for ask in (written_to.read_bytes, written_to.open_input, written_to.size, written_to.exists):
        with pytest.raises(TableRefused, match="will not read") as refused:
            ask(path.format(tmp_path))
        assert refused.value.reason == "location"


@pytest.mark.parametrize("path", ["{}/in/x", "{}/out/../in/x", "{}/outside"])
def test_writing_and_deleting_outside_the_table_is_refused(written_to: FileAccess, tmp_path: Path, path: str) -> None:
    place = tmp_path / "in/x"
    place.parent.mkdir()
    place.write_bytes(b"kept")
    with pytest.raises(TableRefused, match="will not write"):
        written_to.create_output(path.format(tmp_path))
    with pytest.raises(TableRefused, match="will not delete"):
        written_to.delete(path.format(tmp_path))
    assert place.read_bytes() == b"kept"


def test_properties_that_name_classes_are_never_imported(tmp_path: Path) -> None:
    properties = {
        "py-io-impl": "tests.unit.files.evil.Evil",
        "write.py-location-provider.impl": "tests.unit.files.evil.Evil",
        "s3.retry-strategy-impl": "tests.unit.files.evil.Evil",
        "s3.region": "eu-west-1",
    }

    written_to = open_access(properties, "s3://b/t", read_locations=[str(tmp_path)], write_locations=[str(tmp_path)])

    written_to.create_output(f"{tmp_path}/x").close()
    assert written_to.exists(f"{tmp_path}/x")


def test_an_unknown_storage_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(TableRefused, match="'ftp'") as refused:
        open_access({}, "ftp://host/t", read_locations=[], write_locations=[])
    assert refused.value.reason == "location"


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


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A granted directory with a table in it, and a foreign one beside it."""
    (tmp_path / "lake/t/data").mkdir(parents=True)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/secret").write_bytes(b"secret")
    return tmp_path / "lake"


@pytest.fixture
def reached(lake: Path) -> FileAccess:
    return open_access({}, f"{lake}/t", read_locations=[str(lake)], write_locations=[f"{lake}/t"])


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(TableRefused) as error:
        call()
    return error.value.reason


def test_a_directory_that_is_a_link_to_a_foreign_one_is_neither_read_nor_written(
    lake: Path, reached: FileAccess, tmp_path: Path
) -> None:
    (lake / "t/data").rmdir()
    (lake / "t/data").symlink_to(tmp_path / "foreign")
    path = f"{lake}/t/data/secret"
    for ask in (reached.read_bytes, reached.open_input, reached.size, reached.exists, reached.require_readable):
        assert refused(lambda ask=ask: ask(path)) == "location"
    assert refused(lambda: reached.delete(path)) == "location"
    assert refused(lambda: reached.create_output(f"{lake}/t/data/new")) == "location"
    assert sorted(os.listdir(tmp_path / "foreign")) == ["secret"]


def test_a_directory_that_is_a_link_out_is_neither_read_nor_written_and_a_granted_one_may_be_a_link(
    lake: Path, tmp_path: Path
) -> None:
    (lake / "linked").symlink_to(tmp_path / "foreign")
    reached = open_access({}, f"{lake}/linked", read_locations=[str(lake)], write_locations=[f"{lake}/linked"])
    with pytest.raises(TableRefused, match=f"links lead to {tmp_path}/foreign/secret"):
        reached.read_bytes(f"{lake}/linked/secret")
    assert refused(lambda: reached.create_output(f"{lake}/linked/new")) == "location"
    (lake / "t/data/x").write_bytes(b"x")
    (tmp_path / "alias").symlink_to(lake)
    alias = f"{tmp_path}/alias"
    reached = open_access({}, f"{alias}/t", read_locations=[alias], write_locations=[f"{alias}/t"])
    assert reached.read_bytes(f"{alias}/t/data/x") == b"x"
    reached.create_output(f"{alias}/t/data/y").close()
    assert (lake / "t/data/y").exists()


def test_a_file_that_is_a_link_out_is_refused_and_one_within_is_read(
    lake: Path, reached: FileAccess, tmp_path: Path
) -> None:
    (lake / "t/out").symlink_to(tmp_path / "foreign/secret")
    assert refused(lambda: reached.read_bytes(f"{lake}/t/out")) == "location"
    (lake / "t/new").symlink_to(tmp_path / "foreign/new")
    assert refused(lambda: reached.create_output(f"{lake}/t/new")) == "location"
    (lake / "kept").write_bytes(b"own")
    (lake / "t/in").symlink_to(lake / "kept")
    assert reached.read_bytes(f"{lake}/t/in") == b"own"


@pytest.fixture(params=["a FIFO", "a directory", "a socket", "a device"])
def odd(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, str]:
    """Something that is no regular file, and what it is."""
    kind = request.param
    place = tmp_path / "odd"
    if kind == "a FIFO":
        os.mkfifo(place)
    elif kind == "a directory":
        place.mkdir()
    elif kind == "a socket":
        monkeypatch.chdir(tmp_path)  # names of sockets are short
        with socket.socket(socket.AF_UNIX) as server:
            server.bind("odd")
    else:
        place = Path("/dev/zero")
    return place, kind


def test_what_is_no_regular_file_is_refused_at_once(odd: tuple[Path, str]) -> None:
    place, kind = odd
    reached = open_access({}, str(place.parent), read_locations=[str(place.parent)], write_locations=[])
    for ask in (reached.read_bytes, reached.open_input):
        with pytest.raises(TableRefused, match=f"{place} is not a regular file but {kind}") as error:
            ask(str(place))
        assert error.value.reason == "file"


def test_what_is_written_must_be_readable_too(tmp_path: Path) -> None:
    reached = open_access({}, str(tmp_path), read_locations=[f"{tmp_path}/in"], write_locations=[f"{tmp_path}/out"])
    assert refused(lambda: reached.create_output(f"{tmp_path}/out/x")) == "location"


WRITTEN = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)


def write(path: Path, size: int = 3) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (WRITTEN.timestamp(), WRITTEN.timestamp()))
    return str(path)


def listed(storage: Storage | FileAccess, prefix: str) -> list[StoredFile]:
    return sorted((one for page in storage.pages(prefix) for one in page), key=lambda one: one.path)


def access(tmp_path: Path) -> FileAccess:
    place = f"file://{tmp_path}/t"
    return open_access({}, place, read_locations=[place], write_locations=[f"{place}/data"])


@pytest.fixture(params=["local", "arrow"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Storage, str]:
    """A storage, and the place of the directory in it."""
    if request.param == "local":
        return LocalStorage(), str(tmp_path)
    return ArrowStorage("hdfs://nn/", LocalFileSystem()), f"hdfs://nn{tmp_path}"


def test_all_files_below_a_prefix_are_listed(storage: tuple[Storage, str], tmp_path: Path) -> None:
    opened, place = storage
    for name in ("a", "b/c/d %20#?", "b/_e", "b/.f", "bc/g"):
        write(tmp_path / "t" / name)
    assert listed(opened, f"{place}/t/b") == [
        StoredFile(f"{place}/t/b/{name}", 3, WRITTEN) for name in (".f", "_e", "c/d %20#?")
    ]
    assert listed(opened, f"{place}/none") == []


def test_listings_come_in_pages(tmp_path: Path) -> None:
    for number in range(PAGE + 1):
        write(tmp_path / f"{number % 3}" / f"{number}", 0)
    assert [len(page) for page in LocalStorage().pages(str(tmp_path))] == [PAGE, 1]


def test_links_are_neither_followed_nor_listed_nor_deleted(tmp_path: Path) -> None:
    real = write(tmp_path / "real" / "f")
    os.makedirs(tmp_path / "t")
    (tmp_path / "t" / "directory").symlink_to(tmp_path / "real")
    (tmp_path / "t" / "file").symlink_to(real)
    assert listed(LocalStorage(), f"{tmp_path}/t") == []
    assert LocalStorage().stat(f"{tmp_path}/t/file") is None
    link = tmp_path / "link"
    link.symlink_to(write(tmp_path / "f"))
    assert LocalStorage().delete_many([str(link)]) == {str(link): Removal(Ended.FAILED, "it is not a regular file")}
    assert link.is_symlink()


def test_files_are_looked_at_and_nothing_but_files_is_deleted(storage: tuple[Storage, str], tmp_path: Path) -> None:
    opened, place = storage
    write(tmp_path / "d" / "f", 7)
    assert opened.stat(f"{place}/d/f") == StoredFile(f"{place}/d/f", 7, WRITTEN)
    assert opened.stat(f"{place}/d") is None
    assert opened.stat(f"{place}/none/g") is None
    opened, place = storage
    write(tmp_path / "d" / "f")
    write(tmp_path / "d" / "kept")
    done = opened.delete_many([f"{place}/d/f", f"{place}/d", f"{place}/none"])
    assert done[f"{place}/d/f"] == DELETED
    assert done[f"{place}/none"] == ABSENT
    assert done[f"{place}/d"].ended is not Ended.DELETED
    assert os.listdir(tmp_path / "d") == ["kept"]


def test_files_are_moved_and_never_over_another(storage: tuple[Storage, str], tmp_path: Path) -> None:
    opened, place = storage
    source, target = f"{place}/d/f", f"{place}/x/y/f"
    assert opened.move(source, target) == ABSENT
    write(tmp_path / "d" / "f", 7)
    assert opened.move(source, target) == MOVED
    assert listed(opened, place) == [StoredFile(target, 7, WRITTEN)]
    assert opened.move(source, target) == MOVED, "as it was before"
    write(tmp_path / "d" / "f", 8)
    assert opened.move(source, target) == Removal(Ended.CHANGED, f"{target} exists already")
    assert [one.size_bytes for one in listed(opened, place)] == [8, 7]
    (tmp_path / "x" / "folder").mkdir()
    assert opened.move(source, f"{place}/x/folder").ended is Ended.CHANGED
    assert opened.move(source, f"{place}/x/y/f/below").ended is Ended.FAILED
    assert [one.size_bytes for one in listed(opened, place)] == [8, 7]


def test_a_local_move_that_died_between_its_two_names_is_ended(tmp_path: Path) -> None:
    source, target = write(tmp_path / "f"), tmp_path / "t" / "f"
    target.parent.mkdir()
    target.hardlink_to(source)
    assert LocalStorage().move(source, str(target)) == MOVED
    assert listed(LocalStorage(), str(tmp_path)) == [StoredFile(str(target), 3, WRITTEN)]


def test_no_link_is_moved_nor_anything_to_where_nothing_may_be_written(tmp_path: Path) -> None:
    real, link = write(tmp_path / "t" / "data" / "real"), tmp_path / "t" / "data" / "link"
    link.symlink_to(real)
    reached, data = access(tmp_path), f"file://{tmp_path}/t/data"
    ended = reached.move_many({f"{data}/link": f"{data}/a", f"{data}/real": f"file://{tmp_path}/t/b"})
    assert [one.ended for one in ended.values()] == [Ended.FAILED, Ended.FAILED]
    assert reached.move_many({f"{data}/real": "s3://bucket/t/data/real"})[f"{data}/real"].ended is Ended.FAILED
    assert (link.is_symlink(), Path(real).exists()) == (True, True)


def test_what_is_outside_of_the_locations_or_behind_a_link_is_not_deleted(tmp_path: Path) -> None:
    inside, outside = write(tmp_path / "t" / "data" / "f"), write(tmp_path / "t" / "f")
    dots, spelled = f"{tmp_path}/t/data/../f", f"file:{tmp_path}/t//data/g"
    write(tmp_path / "t" / "data" / "g")
    done = access(tmp_path).delete_many([inside, outside, dots, spelled, inside])
    assert {path: one.ended for path, one in done.items()} == {
        inside: Ended.DELETED,
        outside: Ended.FAILED,
        dots: Ended.FAILED,
        spelled: Ended.DELETED,
    }
    assert "outside the locations" in done[outside].why
    assert os.path.exists(outside)
    elsewhere = write(tmp_path / "elsewhere" / "f")
    (tmp_path / "t" / "data").rmdir()
    (tmp_path / "t" / "data").symlink_to(tmp_path / "elsewhere")
    through = f"{tmp_path}/t/data/f"
    assert access(tmp_path).delete_many([through])[through].ended is Ended.FAILED
    assert os.path.exists(elsewhere)


def test_files_are_listed_and_looked_at_only_where_they_may_be_read(tmp_path: Path) -> None:
    with pytest.raises(TableRefused, match="outside"):
        list(access(tmp_path).pages(str(tmp_path)))
    with pytest.raises(TableRefused, match="outside"):
        access(tmp_path).stat_many([f"{tmp_path}/t/f", f"{tmp_path}/f"])
    here = write(tmp_path / "t" / "f", 1)
    assert access(tmp_path).stat_many([f"file:{here}", f"{here}x"]) == {
        f"file:{here}": StoredFile(here, 1, WRITTEN),
        f"{here}x": None,
    }


def test_a_storage_that_fails_fails_for_its_own_files_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    io = PyArrowFileIO({})
    places = [f"file://{tmp_path}", "hdfs://nn/x"]
    opened = FileAccess(io, read_locations=places, write_locations=places)

    def unreachable(scheme: str, netloc: str | None) -> Sequence[object]:
        raise OSError("no namenode answers")

    monkeypatch.setattr(io, "fs_by_scheme", unreachable)
    local, remote = write(tmp_path / "f"), "hdfs://nn/x/f"
    assert opened.delete_many([local, remote]) == {local: DELETED, remote: Removal(Ended.FAILED, "no namenode answers")}


@pytest.mark.parametrize(
    ("properties", "told"), [({"s3.role-arn": "arn:1"}, r"s3\.role-arn"), ({"s3.endpoint": "store"}, "'store'")]
)
def test_what_cannot_be_used_refuses_the_listing(properties: dict[str, str], told: str) -> None:
    opened = open_access(properties, "s3://b/t", read_locations=["s3://b/t"], write_locations=["s3://b/t"])
    with pytest.raises(TableRefused, match=told):
        list(opened.pages("s3://b/t"))


class FullAtEnd(io.BytesIO):
    """A file whose buffer does not find room on the disk when it is closed."""

    def close(self) -> None:
        super().close()
        raise OSError(errno.ENOSPC, "Error writing bytes to file")


@pytest.mark.parametrize(
    "write_some",
    [lambda files, path: files.write_bytes(path, b"some"), lambda files, path: write_vectors(files, path, [], 1)],
    ids=["bytes", "vectors"],
)
def test_a_disk_that_is_full_when_a_file_is_closed_is_said_and_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write_some: Callable[[FileAccess, str], object]
) -> None:
    path = write(tmp_path / "table" / "written")
    files = open_access({}, path, read_locations=[str(tmp_path)], write_locations=[str(tmp_path)])
    monkeypatch.setattr(FileAccess, "create_output", lambda self, path: FullAtEnd())
    with pytest.raises(StorageFull, match=f"no space left for {path}"):
        write_some(files, path)
    assert not Path(path).exists()
