"""Files listed in pages, looked at, and deleted many at once."""

import errno
import io
import os
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
from pyarrow.fs import LocalFileSystem
from pyiceberg.io.pyarrow import PyArrowFileIO

from amoro_core.errors import StorageFull, TableRefused
from amoro_core.files.arrow_storage import ArrowStorage
from amoro_core.files.io import FileAccess, open_access
from amoro_core.files.local import LocalStorage
from amoro_core.files.storage import PAGE, Storage
from amoro_core.files.vector_writing import write_vectors
from amoro_core.model.stored import ABSENT, DELETED, MOVED, Ended, Removal, StoredFile

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


def test_links_are_neither_followed_nor_listed(tmp_path: Path) -> None:
    real = write(tmp_path / "real" / "f")
    os.makedirs(tmp_path / "t")
    (tmp_path / "t" / "directory").symlink_to(tmp_path / "real")
    (tmp_path / "t" / "file").symlink_to(real)
    assert listed(LocalStorage(), f"{tmp_path}/t") == []
    assert LocalStorage().stat(f"{tmp_path}/t/file") is None


def test_files_are_looked_at(storage: tuple[Storage, str], tmp_path: Path) -> None:
    opened, place = storage
    write(tmp_path / "d" / "f", 7)
    assert opened.stat(f"{place}/d/f") == StoredFile(f"{place}/d/f", 7, WRITTEN)
    assert opened.stat(f"{place}/d") is None
    assert opened.stat(f"{place}/none/g") is None


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


def test_files_and_nothing_else_are_deleted(storage: tuple[Storage, str], tmp_path: Path) -> None:
    opened, place = storage
    write(tmp_path / "d" / "f")
    write(tmp_path / "d" / "kept")
    done = opened.delete_many([f"{place}/d/f", f"{place}/d", f"{place}/none"])
    assert done[f"{place}/d/f"] == DELETED
    assert done[f"{place}/none"] == ABSENT
    assert done[f"{place}/d"].ended is not Ended.DELETED
    assert os.listdir(tmp_path / "d") == ["kept"]


def test_a_link_is_not_deleted(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(write(tmp_path / "f"))
    assert LocalStorage().delete_many([str(link)]) == {str(link): Removal(Ended.FAILED, "it is not a regular file")}
    assert link.is_symlink()


def test_only_places_that_may_be_written_are_deleted_from(tmp_path: Path) -> None:
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


def test_a_link_out_of_the_table_is_not_deleted_through(tmp_path: Path) -> None:
    elsewhere = write(tmp_path / "elsewhere" / "f")
    os.makedirs(tmp_path / "t")
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


def test_credentials_that_cannot_be_used_refuse_the_listing() -> None:
    opened = open_access(
        {"s3.role-arn": "arn:1"}, "s3://b/t", read_locations=["s3://b/t"], write_locations=["s3://b/t"]
    )
    with pytest.raises(TableRefused, match=r"s3\.role-arn"):
        list(opened.pages("s3://b/t"))


def test_an_endpoint_that_is_no_address_refuses_the_listing() -> None:
    opened = open_access({"s3.endpoint": "store"}, "s3://b/t", read_locations=["s3://b/t"], write_locations=[])
    with pytest.raises(TableRefused, match="'store'"):
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
