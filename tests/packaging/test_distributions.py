"""The wheel, the sdist and the single file, and what runs on a machine that has nothing else of ours."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import pytest

from amoro_core.documents.json_documents import schemas
from docs.generate import file_name, file_schema
from tests.packaging.conftest import Machine

ROOT = Path(__file__).parents[2]
PACKAGES = ("amoro_core", "amoro_optimizer", "amoro_cli")
VERSION = version("amoro")
#: Without the sources on Python's path: they must not pass for an installation.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MAKEFLAGS")}

pytestmark = pytest.mark.timeout(900)  # it downloads and packs what it needs


def copy_sources(names: Sequence[str], target: Path) -> Path:
    """The named files and directories of the repository without what running and building left there."""
    for name in names:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, target / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target / name)
    return target


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make binary` leaves, made from a copy of the sources: it makes the wheel and the sdist first."""
    others = ("Makefile", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in", "docs/generate.py", "proto")
    repository, place = copy_sources((*others, *PACKAGES), tmp_path_factory.mktemp("repository")), Path(sys.prefix)
    # What is installed already is not installed anew.
    command = ["make", "--old-file", str(place / ".test"), f"VENV={place}", "binary"]
    ended = subprocess.run(command, cwd=repository, env=ENVIRONMENT, capture_output=True, text=True, timeout=800)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return repository / "dist"


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def clean_amoro(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The command in an environment that holds the wheel and what it asks for."""
    place = tmp_path_factory.mktemp("clean")
    venv.create(place, with_pip=True)
    pip = "-m pip --quiet --disable-pip-version-check install --no-compile"
    install = [place / "bin/python", *pip.split(), wheel]
    ended = subprocess.run(install, env=ENVIRONMENT, capture_output=True, text=True, timeout=800)
    assert ended.returncode == 0, ended.stderr
    return place / "bin/amoro"


def sources() -> dict[str, bytes]:
    """Every file of the packages by its path in the wheel."""
    paths = (path for package in PACKAGES for path in (ROOT / package).rglob("*") if path.is_file())
    files = {path.relative_to(ROOT).as_posix(): path for path in paths if "__pycache__" not in path.parts}
    return {name: path.read_bytes() for name, path in files.items() if not is_generated(name)}


def is_generated(name: str) -> bool:
    """Whether `make dist` generates the file, so that the sources need not hold it."""
    return name.startswith("amoro_core/documents/") and name.endswith(".json")


def contents(wheel: Path) -> dict[str, bytes]:
    """What the wheel holds, without what is generated."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not is_generated(name)}


def test_the_wheel_made_from_the_sdist_holds_the_packages_as_they_are_and_nothing_else(wheel: Path) -> None:
    about = f"amoro-{VERSION}.dist-info"
    inside = contents(wheel)
    own = {name: data for name, data in inside.items() if not name.startswith(f"{about}/")}
    assert own == sources()  # what says that it is typed, and the types of its stubs, among it
    assert {f"{package}/py.typed" for package in PACKAGES} <= own.keys()
    names = ("METADATA", "RECORD", "WHEEL", "entry_points.txt", "licenses/LICENSE", "top_level.txt")
    assert sorted(inside.keys() - own.keys()) == [f"{about}/{name}" for name in names]
    assert inside[f"{about}/licenses/LICENSE"] == (ROOT / "LICENSE").read_bytes()


def test_the_sdist_holds_what_the_wheel_is_made_of_and_the_contract(dist: Path) -> None:
    with tarfile.open(dist / f"amoro-{VERSION}.tar.gz") as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    assert {name.partition("/")[0] for name in names} == {
        *("LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"),
        *("amoro.egg-info", "proto", *PACKAGES),
    }
    assert sources().keys() <= names
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "proto").rglob("*.proto")} <= names


def test_the_wheel_holds_the_generated_schemas(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        generated = set(filter(is_generated, archive.namelist()))
        settings = json.loads(archive.read("amoro_core/documents/settings.schema.json"))
    assert {f"amoro_core/documents/schemas/{file_name(name)}" for name in schemas()} < generated
    assert "amoro_core/documents/openapi.json" in generated
    assert settings == file_schema()


def test_what_the_image_is_built_of_makes_the_same_wheel(wheel: Path, tmp_path: Path) -> None:
    lines = (ROOT / "Dockerfile").read_text().splitlines()
    copied = [name for line in lines if re.match(r"COPY (?!--from)", line) for name in line.split()[1:-1]]
    allowed = [line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")]
    assert sorted(copied) == sorted(allowed)
    context = copy_sources(copied, tmp_path / "src")
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", tmp_path, context]
    subprocess.run(command, env=ENVIRONMENT, check=True, capture_output=True, timeout=120)
    (built,) = tmp_path.glob("*.whl")
    record = f"amoro-{VERSION}.dist-info/RECORD"  # it lists the generated schemas too, which the image lacks
    made, expected = contents(built), contents(wheel)
    assert made.keys() == expected.keys()
    assert [name for name, content in made.items() if content != expected[name]] == [record]


def assert_runs_the_demo(machine: Machine, *command: str | Path) -> str:
    """Fail unless the version and a short demo are right; what the demo printed."""
    said = machine.run(*command, "--version")
    assert (said.returncode, said.stdout, said.stderr) == (0, f"amoro {VERSION}\n", "")
    shown = machine.run(*command, "demo", "--seconds", "8")
    assert (shown.returncode, shown.stderr) == (0, ""), shown.stderr + shown.stdout
    assert re.search(r"rows ([\d,]+) = \1 ✓  checksum ([0-9a-f]{16}) = \2 ✓$", shown.stdout, re.MULTILINE)
    return shown.stdout


def test_the_wheel_shows_the_main_job_in_a_clean_environment(clean_amoro: Path, machine: Machine) -> None:
    assert "generated ones" in assert_runs_the_demo(machine, clean_amoro)


def test_the_single_file_runs_the_demo_where_only_python_is(dist: Path, machine: Machine) -> None:
    """With the Python that the tests' environment was made with: no package of ours is in it."""
    python = Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}"
    assert_runs_the_demo(machine, python, dist / "amoro.pyz")
