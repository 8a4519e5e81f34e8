"""`amoro optimizer package`: what it makes runs where nothing of ours is."""

import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path

import pytest

from amoro_core.errors import InvalidArgument
from amoro_optimizer import packaging
from amoro_optimizer.packaging import Archive, default_name, make_archive
from tests.packaging.conftest import Machine

PYTHON = f"{sys.version_info.major}.{sys.version_info.minor}"


def unpack(archive: Archive, place: Path) -> Path:
    """As Spark's executors do it."""
    subprocess.run(["tar", "-xzf", archive.path, "-C", place], check=True)
    return place


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Archive:
    return make_archive(tmp_path_factory.mktemp("archive") / default_name())


@pytest.fixture(scope="module")
def unpacked(archive: Archive, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(archive, tmp_path_factory.mktemp("executor"))


def test_the_archive_runs_the_engine_with_its_own_python_and_packages(unpacked: Path, machine: Machine) -> None:
    said = machine.run(
        *(unpacked / "bin/python", "-c"),
        "import os, ssl, sqlite3, sys, zlib\n"
        "import amoro_optimizer.rewrite.engine, amoro_core.protocol.codec, pyarrow.dataset\n"
        "ours = os.path.realpath(sys.argv[1])\n"
        "found = {one.__file__ for one in tuple(sys.modules.values()) if getattr(one, '__file__', None)}\n"
        "print(sorted(one for one in found if not os.path.realpath(one).startswith(ours)))\n"
        "print(sys.version_info[:2], os.path.realpath(sys.executable).startswith(ours))",
        unpacked,
    )
    assert (said.returncode, said.stderr) == (0, "")
    assert said.stdout == f"[]\n{sys.version_info[:2]} True\n"


def test_the_archive_tells_what_is_in_it(archive: Archive, unpacked: Path) -> None:
    assert archive.path.name.startswith(f"amoro-python{PYTHON}-")
    assert (archive.python, archive.has_interpreter) == (PYTHON, True)
    assert archive.size_bytes == archive.path.stat().st_size
    assert dict(archive.distributions)["pyarrow"] == version("pyarrow")
    assert {"amoro", "numpy", "pyiceberg", "protobuf"} <= dict(archive.distributions).keys()
    # Spark's own Python comes from the cluster, and tests stay at home.
    assert not dict(archive.distributions).keys() & {"pyspark", "pytest"}
    assert {path.name for path in unpacked.iterdir()} == {"bin", "packages", "python"}
    with tarfile.open(archive.path) as opened:
        assert [name for name in opened.getnames() if "__pycache__" in name] == []


def test_without_the_interpreter_the_machines_own_is_started(tmp_path: Path, machine: Machine) -> None:
    made = make_archive(tmp_path / "small.tar.gz", with_interpreter=False)
    assert not made.has_interpreter
    (tmp_path / "amoro").mkdir()
    place = unpack(made, tmp_path / "amoro")
    assert not (place / "python").exists()
    started = subprocess.run(
        [place / "bin/python", "-c", "import amoro_optimizer.rewrite.engine as e; print(e.__file__)"],
        env={"PATH": f"{Path(sys.base_prefix) / 'bin'}:/usr/bin:/bin", "HOME": str(machine.home)},
        cwd=machine.home,
        capture_output=True,
        text=True,
    )
    assert (started.returncode, started.stderr) == (0, "")
    assert Path(started.stdout.strip()) == (place / "packages/amoro_optimizer/rewrite/engine.py").resolve()


def test_a_distribution_that_is_not_installed_is_named_and_the_old_archive_stays(tmp_path: Path) -> None:
    target = tmp_path / "a.tar.gz"
    target.write_bytes(b"old")
    with pytest.raises(InvalidArgument, match="no-such-thing, which the archive needs, is not installed here"):
        make_archive(target, include=("no-such-thing",))
    assert [(path.name, path.read_bytes()) for path in tmp_path.iterdir()] == [("a.tar.gz", b"old")]


def test_what_is_no_name_of_a_distribution_or_no_place_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"'\.\./s3fs' is not the name of a distribution"):
        make_archive(tmp_path / "a.tar.gz", include=("../s3fs",))
    with pytest.raises(InvalidArgument, match=r"none/a\.tar\.gz can't be written: No such file or directory"):
        make_archive(tmp_path / "none" / "a.tar.gz")


def test_an_extra_brings_what_it_requires_and_no_more() -> None:
    plain = packaging.closure(("pyiceberg",)).keys()
    glue = packaging.closure(("pyiceberg[glue]",)).keys()
    assert "boto3" not in plain
    assert {"boto3", "botocore"} <= glue - plain


def test_condas_python_is_refused_with_the_way_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "conda-meta").mkdir()
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path))
    with pytest.raises(InvalidArgument, match="conda's Python can't be packed") as caught:
        make_archive(tmp_path / "a.tar.gz")
    assert "--without-interpreter" in (caught.value.hint or "")
    assert not (tmp_path / "a.tar.gz").exists()
