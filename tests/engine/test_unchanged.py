"""What is remembered of a file is what the file says now."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine import unchanged
from tests.engine.unchanged import once


@pytest.fixture
def read() -> list[str]:
    return []


def test_a_file_is_read_once_until_it_changes(tmp_path: Path, read: list[str]) -> None:
    @once
    def text(path: str) -> str:
        read.append(path)
        return Path(path.removeprefix("file:")).read_text()

    path = tmp_path / "one"
    path.write_text("first")
    assert [text(str(path)), text(str(path)), text(f"file:{path}")] == ["first"] * 3
    assert read == [str(path), f"file:{path}"]
    other = tmp_path / "other"
    other.write_text("third")
    other.replace(path)
    assert text(str(path)) == "third"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        text(str(path))


def test_a_large_file_is_not_kept(tmp_path: Path, read: list[str]) -> None:
    @once
    def size(path: str) -> int:
        read.append(path)
        return Path(path).stat().st_size

    for length, times in ((unchanged.LARGEST_BYTES, 1), (unchanged.LARGEST_BYTES + 1, 2)):
        read.clear()
        path = tmp_path / str(length)
        path.write_bytes(b"\0" * length)
        assert [size(str(path)), size(str(path))] == [length, length]
        assert len(read) == times
