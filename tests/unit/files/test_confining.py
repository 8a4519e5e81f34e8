"""Local files where they really are: links are followed before anything is opened, and only files are."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from amoro_core.errors import TableRefused
from amoro_core.files.io import FileAccess, open_access


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A granted directory with a table in it, and a foreign one beside it."""
    (tmp_path / "lake/t/data").mkdir(parents=True)
    (tmp_path / "foreign").mkdir()
    (tmp_path / "foreign/secret").write_bytes(b"secret")
    return tmp_path / "lake"


@pytest.fixture
def access(lake: Path) -> FileAccess:
    return open_access({}, f"{lake}/t", read_locations=[str(lake)], write_locations=[f"{lake}/t"])


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(TableRefused) as error:
        call()
    return error.value.reason


def test_a_directory_that_is_a_link_to_a_foreign_one_is_neither_read_nor_written(
    lake: Path, access: FileAccess, tmp_path: Path
) -> None:
    (lake / "t/data").rmdir()
    (lake / "t/data").symlink_to(tmp_path / "foreign")
    path = f"{lake}/t/data/secret"
    for ask in (access.read_bytes, access.open_input, access.size, access.exists, access.require_readable):
        assert refused(lambda ask=ask: ask(path)) == "location"
    assert refused(lambda: access.delete(path)) == "location"
    assert refused(lambda: access.create_output(f"{lake}/t/data/new")) == "location"
    assert sorted(os.listdir(tmp_path / "foreign")) == ["secret"]


def test_a_table_whose_own_directory_is_a_link_is_not_believed(lake: Path, tmp_path: Path) -> None:
    (lake / "linked").symlink_to(tmp_path / "foreign")
    access = open_access({}, f"{lake}/linked", read_locations=[str(lake)], write_locations=[f"{lake}/linked"])
    with pytest.raises(TableRefused, match=f"links lead to {tmp_path}/foreign/secret"):
        access.read_bytes(f"{lake}/linked/secret")
    assert refused(lambda: access.create_output(f"{lake}/linked/new")) == "location"


def test_a_file_that_is_a_link_out_is_refused_and_one_within_is_read(
    lake: Path, access: FileAccess, tmp_path: Path
) -> None:
    (lake / "t/out").symlink_to(tmp_path / "foreign/secret")
    assert refused(lambda: access.read_bytes(f"{lake}/t/out")) == "location"
    (lake / "t/new").symlink_to(tmp_path / "foreign/new")
    assert refused(lambda: access.create_output(f"{lake}/t/new")) == "location"
    (lake / "kept").write_bytes(b"own")
    (lake / "t/in").symlink_to(lake / "kept")
    assert access.read_bytes(f"{lake}/t/in") == b"own"


def test_a_granted_prefix_may_be_a_link_itself(lake: Path, tmp_path: Path) -> None:
    (lake / "t/data/x").write_bytes(b"x")
    (tmp_path / "alias").symlink_to(lake)
    alias = f"{tmp_path}/alias"
    access = open_access({}, f"{alias}/t", read_locations=[alias], write_locations=[f"{alias}/t"])
    assert access.read_bytes(f"{alias}/t/data/x") == b"x"
    access.create_output(f"{alias}/t/data/y").close()
    assert (lake / "t/data/y").exists()


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
    access = open_access({}, str(place.parent), read_locations=[str(place.parent)], write_locations=[])
    for ask in (access.read_bytes, access.open_input):
        with pytest.raises(TableRefused, match=f"{place} is not a regular file but {kind}") as error:
            ask(str(place))
        assert error.value.reason == "file"


def test_what_is_written_must_be_readable_too(tmp_path: Path) -> None:
    access = open_access({}, str(tmp_path), read_locations=[f"{tmp_path}/in"], write_locations=[f"{tmp_path}/out"])
    assert refused(lambda: access.create_output(f"{tmp_path}/out/x")) == "location"
