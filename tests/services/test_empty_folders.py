"""Folders that lie empty beside a table's files: removed once they are old, and none that anything was put in."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pytest

from amoro_core.errors import CatalogUnavailable
from amoro_core.files.local import LocalStorage
from amoro_core.model.processes import ProcessStatus
from tests.services.test_orphans import Place, place

__all__ = ["place"]

OLD, YOUNG = timedelta(days=5), timedelta(hours=47)


def folder(place: Place, below: str, old: timedelta = OLD) -> Path:
    made = place.root / below
    made.mkdir(parents=True, exist_ok=True)
    at = (place.world.now - old).timestamp()
    for one in (made, *made.relative_to(place.root).parents):
        path = place.root / one
        os.utime(path, (at, at))
    return made


def test_old_empty_folders_go_with_those_that_had_nothing_else(place: Place) -> None:
    nested = folder(place, "data/year=2024/month=1/day=3")
    plain = folder(place, "data/part=gone")
    assert place.run().status is ProcessStatus.SUCCESS
    assert not plain.exists()
    assert not nested.parent.parent.exists()
    assert (place.root / "data").is_dir()
    assert all(os.path.exists(path.removeprefix("file://")) for path in place.live)


def test_what_is_young_or_hidden_or_has_anything_in_it_stays(place: Place) -> None:
    young = folder(place, "data/part=new", YOUNG)
    hidden = [folder(place, f"data/{name}") for name in ("_temporary/0", ".trash/20260101")]
    holds_link = folder(place, "data/part=link")
    (holds_link / "elsewhere").symlink_to(place.root)
    os.utime(holds_link, (0, 0))
    outside = folder(place, "metadata/empty")
    elsewhere = folder(place, "empty")
    assert place.run().status is ProcessStatus.SUCCESS
    assert all(one.is_dir() for one in (young, *hidden, holds_link, outside, elsewhere))


def test_a_preview_and_a_held_process_remove_none(place: Place) -> None:
    empty = folder(place, "data/part=gone")
    place.preview()
    assert empty.is_dir()
    for number in range(100):
        place.put(f"data/many/{number}.parquet")
    os.utime(empty, (0, 0))
    assert place.run().status is ProcessStatus.HELD
    assert empty.is_dir()
    assert place.world.confirm("clean-orphan-files") is ProcessStatus.SUCCESS
    assert not empty.exists()


def test_a_storage_that_does_not_answer_is_no_failure(place: Place) -> None:
    def fail(*_: object) -> int:
        raise CatalogUnavailable("no answer")

    place.world.iceberg.table(remove_empty_folders=fail)
    assert place.run().status is ProcessStatus.SUCCESS


def test_a_folder_that_is_filled_while_it_is_looked_at_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: Place
) -> None:
    empty = tmp_path / "place" / "empty"
    empty.mkdir(parents=True)
    os.utime(empty, (0, 0))
    rmdir = os.rmdir

    def fill(path: str) -> None:
        (empty / "data.parquet").write_bytes(b"x")
        rmdir(path)

    monkeypatch.setattr("amoro_core.files.local.os.rmdir", fill)
    assert LocalStorage().remove_empty(str(tmp_path / "place"), place.world.now) == 0
    assert (empty / "data.parquet").exists()


def test_links_are_not_followed(tmp_path: Path, place: Place) -> None:
    target = tmp_path / "target" / "empty"
    target.mkdir(parents=True)
    root = tmp_path / "place"
    root.mkdir()
    (root / "link").symlink_to(tmp_path / "target")
    for one in (target, target.parent, root):
        os.utime(one, (0, 0))
    assert LocalStorage().remove_empty(str(root), place.world.now) == 0
    assert target.is_dir()
